"""Copies of runs: whole, once, and between both databases."""

from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.store import CopyProgress, SampleLabel, Store, TableQuery, copy_run
from store_runs import broken, key_of, record, scored, spec


def fill(store: Store, count: int = 3) -> None:
    run = store.start_run(spec(total=count))
    record(run, [scored(index, score=index / 4) for index in range(count - 1)])
    record(run, [broken(count - 1), scored(0)])
    run.record_step(1, {"loss": 0.5})
    run.write_label(SampleLabel(key=key_of(scored(0)), verdict="fail", author="ann"))
    run.finish("completed")


def describe(store: Store) -> object:
    run = store.run("run-1")
    row = run.row()
    return (
        row.spec,
        row.status,
        row.finished_at,
        row.totals,
        [sample.model_dump() for sample in run.samples()],
        [(each.key, each.message) for each in run.attempts()],
        [each.metrics for each in run.steps()],
        [(each.key, each.verdict, each.author) for each in run.labels()],
        [each.label for each in run.table().read_page(TableQuery()).rows],
    )


def test_a_copy_is_the_same_run(store: Store, tmp_path: Path) -> None:
    fill(store)

    with Store.open(tmp_path / "copy.db") as other, Store.open(tmp_path / "back.db") as back:
        done = copy_run(store, other, "run-1")
        assert (done.results, done.attempts, done.steps, done.labels) == (2, 1, 1, 1)
        assert describe(other) == describe(store)
        copy_run(other, back, "run-1")
        assert describe(back) == describe(store)


def test_a_run_of_a_file_is_copied_to_a_server(where: str, tmp_path: Path) -> None:
    with Store.open(tmp_path / "source.db") as source, Store.open(where) as store:
        fill(source)
        copy_run(source, store, "run-1")

        assert describe(store) == describe(source)


def test_a_copy_that_was_cut_short_is_resumed_and_nothing_is_copied_twice(
    store: Store, tmp_path: Path
) -> None:
    fill(store, 1200)

    class Cut(Exception):
        pass

    def cut(progress: CopyProgress) -> None:
        raise Cut

    with Store.open(tmp_path / "copy.db") as other:
        with pytest.raises(Cut):
            copy_run(store, other, "run-1", watch=cut)
        assert other.run("run-1").row().totals.recorded == 500
        assert other.run("run-1").status == "interrupted"

        again = copy_run(store, other, "run-1")
        assert (again.results, again.present) == (699, 500)
        assert describe(other) == describe(store)

        third = copy_run(store, other, "run-1")
        assert (third.results, third.attempts, third.steps, third.labels) == (0, 0, 0, 0)
        assert describe(other) == describe(store)


def test_another_run_with_the_same_id_is_not_overwritten(store: Store, tmp_path: Path) -> None:
    fill(store)

    with Store.open(tmp_path / "copy.db") as other:
        other.start_run(spec(config_fingerprint="c2")).finish("completed")
        with pytest.raises(ConfigError, match="they differ in config_fingerprint"):
            copy_run(store, other, "run-1")
        assert other.run("run-1").totals.recorded == 0


def test_a_copied_run_can_be_resumed(store: Store, tmp_path: Path) -> None:
    fill(store)

    with Store.open(tmp_path / "copy.db") as other:
        copy_run(store, other, "run-1")
        run = other.resume_run("run-1", spec())
        assert key_of(scored(0)) in run.read_done_keys()
        assert record(run, [scored(2)]) == [True]
        run.finish("completed")
        assert other.run("run-1").totals.recorded == 3
