"""One run: what is recorded, read back in order, counted and finished."""

import tracemalloc
from dataclasses import fields

import pytest

from assay.errors import ConfigError, StoreError
from assay.store import ResultRow, RetriedAttempts, Store
from assay.store.result_reader import _ROW_COLUMNS
from assay.types import (
    Boundary,
    EvaluateResult,
    Failure,
    Metric,
    ModelCall,
    Sample,
    Status,
    Trajectory,
    Usage,
)
from make import asked, said, sample
from store_runs import broken, key_of, record, scored, spec


def test_samples_come_back_equal_and_in_dataset_order(store: Store) -> None:
    run = store.start_run(spec())
    given = [scored(index, score=index / 10) for index in range(120)]

    record(run, reversed(given))

    assert list(run.samples()) == given
    assert list(store.run("run-1").samples()) == given


def test_repeats_are_neighbours_and_samples_without_an_index_come_last(store: Store) -> None:
    run = store.start_run(spec(repeats=2))
    given = [scored(None, id="z"), scored(2), scored(None, id="ä"), scored(1)]

    for repeat in (1, 0):
        record(run, given, repeat=repeat)

    found = [(row.sample_id, row.index, row.repeat) for row in run.results()]
    assert found == [
        ("s1", 1, 0),
        ("s1", 1, 1),
        ("s2", 2, 0),
        ("s2", 2, 1),
        ("z", None, 0),
        ("z", None, 1),
        ("ä", None, 0),
        ("ä", None, 1),
    ]


def test_what_some_samples_of_a_batch_know_is_kept_apart_from_what_others_do_not(
    store: Store,
) -> None:
    run = store.start_run(spec())

    def spent(index: int, usage: Usage | None) -> Sample:
        one = scored(index)
        one.trajectory = Trajectory(messages=one.messages, calls=[ModelCall(usage=usage)])
        return one

    known, nothing = Usage(input_tokens=3, output_tokens=0), Usage()
    record(run, [spent(0, known), spent(1, nothing), spent(2, None), scored(3, group_index=7)])

    rows = [(row.input_tokens, row.output_tokens, row.group_index) for row in run.results()]
    assert rows == [(3, 0, None), (None, None, None), (None, None, None), (None, None, 7)]
    assert {(row.valid, row.cached) for row in run.results()} == {(True, False)}
    assert (run.totals.recorded, run.totals.tokens_known, run.totals.cost_usd) == (4, 1, None)


def test_narrow_rows_hold_what_is_filtered_and_averaged(store: Store) -> None:
    run = store.start_run(spec())
    usage = Usage(input_tokens=10, output_tokens=3, cost_usd=0.25)
    result = EvaluateResult(metrics={"a": Metric("a", 0.5), "b": Metric("b", 1.0)})
    trajectory = Trajectory(
        messages=[asked("q"), said("a")], calls=[ModelCall(usage=usage)], duration=1.5
    )
    one = Sample(id="s", index=4, group_index=9, trajectory=trajectory, score=result)

    record(run, [one])
    (row,) = run.results()

    assert row.key == key_of(one)
    assert (row.sample_id, row.index, row.repeat, row.group_index) == ("s", 4, 0, 9)
    assert (row.score, row.valid, row.boundary, row.status) == (0.75, True, None, "pending")
    assert row.metrics == {"a": 0.5, "b": 1.0}
    assert (row.cost_usd, row.input_tokens, row.output_tokens) == (0.25, 10, 3)
    assert (row.latency_s, row.cached) == (1.5, False)
    assert row.valid is True
    assert row.recorded_at > 1e9


def test_a_key_is_recorded_once_and_the_first_one_stays(store: Store) -> None:
    run = store.start_run(spec())

    assert record(run, [scored(0, 1.0), scored(0, 0.0)]) == [True, False]
    assert record(run, [scored(0, 0.5), scored(1, 0.5)]) == [False, True]

    assert [row.score for row in run.results()] == [1.0, 0.5]
    assert run.totals.recorded == 2
    assert run.totals.score_sum == 1.5


def test_two_runs_may_have_the_same_keys(store: Store) -> None:
    record(store.start_run(spec("a")), [scored(0)])

    assert record(store.start_run(spec("b")), [scored(0)]) == [True]


def test_failures_are_attempts_and_shown_until_there_is_a_result(store: Store) -> None:
    run = store.start_run(spec())
    record(run, [scored(0), broken(1, "first"), scored(2)])
    record(run, [broken(1, "second\0half \ud83d")])

    rows = list(run.results())
    assert [(row.sample_id, row.boundary, row.valid) for row in rows] == [
        ("s0", None, True),
        ("s1", "endpoint", False),
        ("s2", None, True),
    ]
    assert (rows[1].score, rows[1].metrics) == (None, {})
    assert [one.id for one in run.samples(failed=False)] == ["s0", "s2"]
    assert [one.id for one in run.samples(status=Status.FAILED)] == ["s1"]
    assert len(run.read_done_keys()) == 2
    assert (run.totals.failed, run.totals.attempts) == (1, 2)
    messages = [attempt.message for attempt in run.attempts()]
    assert messages == ["first", "second\ufffdhalf \ufffd"]

    assert record(run, [scored(1, 0.0)]) == [True]

    assert [row.boundary for row in run.results()] == [None, None, None]
    assert (run.totals.failed, run.totals.attempts, run.totals.recorded) == (0, 2, 3)
    assert [attempt.kind for attempt in run.attempts(key=key_of(broken(1)))] == ["TimeoutError"] * 2
    assert list(run.attempts(key="other")) == []


def test_the_failure_shown_is_the_last_one(store: Store) -> None:
    run = store.start_run(spec())
    record(run, [broken(1, "first")])
    record(run, [broken(1, "second")])

    (shown,) = run.samples()

    assert shown.failure is not None
    assert shown.failure.message == "second"


def test_samples_can_be_chosen(store: Store) -> None:
    run = store.start_run(spec())
    long_id = "x" * 3000
    record(
        run,
        [
            scored(0),
            scored(1, None),
            scored(2, status=Status.TRUNCATED),
            scored(3, id=long_id),
            broken(4),
        ],
    )

    assert [row.index for row in run.results(valid=True)] == [0, 2, 3]
    assert [row.index for row in run.results(valid=False)] == [1, 4]
    assert [row.index for row in run.results(valid=False, failed=False)] == [1]
    assert [one.index for one in run.samples(status=Status.TRUNCATED)] == [2]
    assert [one.id for one in run.samples(sample_id=long_id)] == [long_id]
    assert list(run.samples(sample_id="none")) == []


def test_totals_count_what_was_left_out(store: Store) -> None:
    run = store.start_run(spec())
    assert run.totals.mean is None
    assert run.totals.cost_usd is None
    paid = Trajectory(calls=[ModelCall(usage=Usage(input_tokens=5, output_tokens=1, cost_usd=0.5))])

    record(run, [scored(0, 0.5), scored(1, None), broken(2)])
    record(run, [Sample(id="p", trajectory=paid, score=EvaluateResult(score=1.0))])
    totals = run.totals

    assert (totals.recorded, totals.valid, totals.invalid, totals.failed) == (3, 2, 1, 1)
    assert (totals.score_sum, totals.score_square_sum, totals.mean) == (1.5, 1.25, 0.75)
    assert (totals.cost_usd, totals.cost_known) == (0.5, 1)
    assert (totals.input_tokens, totals.output_tokens, totals.tokens_known) == (5, 1, 1)
    assert store.runs()[0].totals == totals


def test_a_run_ends_in_one_of_three_ways(store: Store) -> None:
    run = store.start_run(spec())
    assert run.status == "running"

    with pytest.raises(ConfigError, match="'completed', 'interrupted' or 'failed', not 'running'"):
        run.finish("running")
    run.finish("completed")

    row = store.runs()[0]
    assert (row.status, row.holder) == ("completed", None)
    assert row.finished_at is not None


def test_reading_holds_a_page_in_memory_not_the_run(store: Store) -> None:
    run = store.start_run(spec())
    text = "word " * 4000
    record(run, [sample(asked("q"), said(text), id=f"s{i}", index=i) for i in range(600)])
    list(run.samples(sample_id="s0"))
    tracemalloc.start()

    read = sum(1 for _ in run.samples())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert read == 600
    assert peak < 600 * len(text) / 3


def test_a_stored_sample_that_cannot_be_read_is_told(store: Store) -> None:
    run = store.start_run(spec())
    record(run, [scored(0)])
    with store._database.write_transaction() as transaction:
        transaction.execute("UPDATE assay_body SET blob = ?", b'{"index": "canary"}')

    with pytest.raises(StoreError, match="a stored sample cannot be read") as refused:
        list(run.samples())

    assert "canary" not in str(refused.value)


def test_reading_while_another_records_gives_each_sample_once(store: Store) -> None:
    run = store.start_run(spec())
    record(run, [broken(0), scored(1), broken(2)])
    rows = run.results()
    first = next(rows)

    record(run, [scored(0), scored(2)])

    assert [first.sample_id, *(row.sample_id for row in rows)] == ["s0", "s1", "s2"]


def test_what_is_read_by_place_stands_in_the_order_of_the_fields() -> None:
    names = [field.name for field in fields(ResultRow)]

    assert names[:-1] == _ROW_COLUMNS[:-2]
    assert (names[-1], _ROW_COLUMNS[-2:]) == ("index", ["position", "number"])


def test_the_mean_of_a_run_averages_the_repeats_of_each_sample_first(store: Store) -> None:
    run = store.start_run(spec(repeats=2))
    assert [row.totals.mean for row in store.runs()] == [None]
    record(run, [scored(0, 1.0), scored(1, 0.0)], repeat=0)
    record(run, [scored(0, None), scored(1, 0.5)], repeat=1)
    other = store.start_run(spec("run-2", repeats=2))
    record(other, [scored(0, 0.25)], repeat=0)

    assert run.totals.mean == (1.0 + 0.25) / 2
    assert [row.totals.mean for row in store.runs()] == [0.25, 0.625]
    assert (run.totals.score_sum, run.totals.valid) == (1.5, 3)


def test_attempts_that_were_tried_again_are_counted_with_their_cost(store: Store) -> None:
    run = store.start_run(spec())
    paid = {"trajectory": Trajectory(calls=[ModelCall(usage=Usage(cost_usd=0.5))])}

    def failed(index: int) -> Sample:
        return broken(index).model_copy(update=paid)

    assert run.read_retries() == RetriedAttempts(0, None, 0)

    record(run, [failed(0), broken(1)])
    assert run.read_retries() == RetriedAttempts(0, None, 0)  # both are shown, with their cost

    record(run, [failed(0), scored(1)])
    assert run.read_retries() == RetriedAttempts(2, 0.5, 1)

    record(run, [scored(0).model_copy(update=paid)])
    record(store.start_run(spec("run-2")), [failed(0)])
    assert run.read_retries() == RetriedAttempts(3, 1.0, 2)
    assert sum(row.cost_usd or 0.0 for row in run.results()) == 0.5


def test_a_rollout_whose_scorer_failed_costs_nothing_more(store: Store) -> None:
    run = store.start_run(spec())
    paid = Trajectory(calls=[ModelCall(usage=Usage(cost_usd=0.5))])
    failure = Failure(boundary=Boundary.SCORER, kind="KeyError", message="no such column")

    for _ in range(2):
        record(run, [broken(0, failure=failure).model_copy(update={"trajectory": paid})])
        assert run.attempts_cost_usd() == 0.5
    record(run, [scored(0).model_copy(update={"trajectory": paid})])

    assert run.read_retries() == RetriedAttempts(2, 0.0, 2)
    assert run.attempts_cost_usd() == 0.0


def test_runs_are_found_by_the_end_of_their_ids(store: Store) -> None:
    run = store.start_run(spec("t"))
    for other in ("step-2-of-t", "step-0-of-t", "step-0-of-other", "-of-t"):
        store.start_run(spec(other))

    assert [each.id for each in run.find_runs(suffix="-of-t")] == ["step-2-of-t", "step-0-of-t"]
