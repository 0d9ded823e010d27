"""Labels of people: appended, the last one counts, deleted with their run."""

import pytest

from assay.errors import ConfigError
from assay.store import Run, SampleLabel, Store
from store_runs import broken, key_of, record, scored, spec


@pytest.fixture
def run(store: Store) -> Run:
    opened = store.start_run(spec())
    record(opened, [scored(0), scored(1), broken(2)])
    return opened


def test_the_last_label_of_a_sample_counts(run: Run) -> None:
    key = key_of(scored(0))
    run.write_label(SampleLabel(key, verdict="fail", note="too long\0", author="ada"))
    second = run.write_label(SampleLabel(key, score=0.5, answer="Paris", author="ada"))

    assert run.find_labels([key, "other"]) == {key: second}
    assert second.recorded_at > 0
    assert [each.note for each in run.labels(history=True)] == ["too long\ufffd", None]
    assert list(run.labels()) == [second]


def test_a_label_without_values_withdraws_the_others(run: Run) -> None:
    key = key_of(broken(2))
    run.write_label(SampleLabel(key, verdict="pass", author="ada"))

    run.write_label(SampleLabel(key, author="ada"))

    assert run.find_labels([key]) == {}
    assert list(run.labels()) == []
    assert len(list(run.labels(history=True))) == 2


def test_a_label_needs_a_sample(run: Run) -> None:
    with pytest.raises(ConfigError, match="no sample with the key 'unknown'"):
        run.write_label(SampleLabel("unknown", verdict="pass"))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"verdict": "maybe"}, "verdict must be"),
        ({"score": float("nan")}, "must be finite"),
        ({"note": "x" * 100_001}, "the note has more"),
        ({"answer": "x" * 100_001}, "the answer has more"),
        ({"author": "x" * 201}, "the author has more"),
    ],
)
def test_a_wrong_label_is_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        SampleLabel("key", **fields)  # type: ignore[arg-type]  # what a request may contain


def test_labels_and_excerpts_are_deleted_with_their_run(store: Store, run: Run) -> None:
    run.write_label(SampleLabel(key_of(scored(0)), verdict="pass"))
    run.keep_summary("{}", run.totals)
    run.finish("completed")

    store.delete_run(run.id)

    with store._database.read_transaction() as transaction:
        for table in ("label", "excerpt", "summary", "body", "result"):
            query = f"SELECT count(*) FROM assay_{table}"
            assert (table, transaction.execute(query).scalar()) == (table, 0)


def test_a_kept_summary_is_of_the_recorded_results_only(run: Run) -> None:
    assert run.find_summary() is None
    run.keep_summary('{"samples": 3}', run.totals)
    assert run.find_summary() == '{"samples": 3}'

    record(run, [scored(3)])

    assert run.find_summary() is None
