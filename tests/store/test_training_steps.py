"""The steps of a training in the store: one each, in order, and of one process alone."""

import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError, StoreError
from assay.store import Run, Store, StoreSettings
from store_runs import spec


def kept(run: Run) -> dict[int, dict[str, Any]]:
    return {row.step: row.metrics for row in run.steps()}


def test_steps_come_back_in_order_with_what_is_not_known(store: Store, where: str) -> None:
    run = store.start_run(spec())
    given: dict[int, dict[str, Any]] = {
        10: {"loss": 0.1 + 0.2},
        2: {"loss": None, "failed": {"scorer": 1}},
        1: {"on": True},
    }

    for step, metrics in given.items():
        run.record_step(step, metrics)

    with Store.open(where) as other:
        rows = other.run("run-1").steps()
    assert [row.step for row in rows] == [1, 2, 10]
    assert {row.step: row.metrics for row in rows} == given
    assert all(row.recorded_at > 1e9 for row in rows)


def test_a_run_without_steps_has_none(store: Store) -> None:
    assert store.start_run(spec()).steps() == []


def test_a_step_that_is_done_again_stands_once_as_it_was_last(store: Store) -> None:
    run = store.start_run(spec())
    run.record_step(1, {"loss": 1.0, "old": 1})

    run.record_step(1, {"loss": 2.0})

    assert kept(run) == {1: {"loss": 2.0}}


def test_steps_after_one_are_forgotten_and_those_of_other_runs_are_not(store: Store) -> None:
    run, other = store.start_run(spec("a")), store.start_run(spec("b"))
    for step in (1, 2, 3):
        run.record_step(step, {"step": step})
        other.record_step(step, {"step": step})

    run.forget_steps(after=1)

    assert list(kept(run)) == [1]
    assert list(kept(other)) == [1, 2, 3]


@pytest.mark.parametrize("text", ["nul \0 inside", "half \ud83d", "é 🙂"])
def test_any_text_survives(text: str, store: Store) -> None:
    run = store.start_run(spec())

    run.record_step(1, {text: text})

    assert kept(run) == {1: {text: text}}


def test_a_run_that_was_opened_for_reading_takes_no_steps(store: Store) -> None:
    store.start_run(spec())
    read = store.run("run-1")

    with pytest.raises(ConfigError, match=r"record_step\(\): run 'run-1' was opened read-only"):
        read.record_step(1, {})
    with pytest.raises(ConfigError, match=r"forget_steps\(\): .* opened read-only"):
        read.forget_steps(after=0)


def test_a_process_that_no_longer_has_the_run_cannot_replace_its_steps(store: Store) -> None:
    first = store.start_run(spec())
    first.record_step(1, {"by": "first"})
    second = store.resume_run("run-1", spec(), take_over=True)
    second.record_step(1, {"by": "second"})

    with pytest.raises(StoreError, match="another process has taken it over") as told:
        first.record_step(1, {"by": "first"})
    with pytest.raises(StoreError, match="another process has taken it over"):
        first.forget_steps(after=0)

    assert told.value.where == store.where
    assert kept(second) == {1: {"by": "second"}}


def test_a_finished_run_takes_no_more_steps(store: Store) -> None:
    run = store.start_run(spec())
    run.finish("completed")

    with pytest.raises(StoreError, match="the run was finished"):
        run.record_step(1, {})


@pytest.mark.parametrize("value", [math.nan, math.inf, object()], ids=["nan", "inf", "object"])
def test_what_is_not_plain_json_is_refused(value: object, store: Store) -> None:
    run = store.start_run(spec())

    with pytest.raises(ConfigError, match="the metrics are not plain JSON") as told:
        run.record_step(1, {"loss": value})

    assert "write None" in str(told.value.hint)
    assert run.steps() == []


def test_there_is_no_step_before_the_first(store: Store) -> None:
    with pytest.raises(ConfigError, match="step must be at least 1, not 0"):
        store.start_run(spec()).record_step(0, {})


@pytest.mark.parametrize("damaged", ['{"loss": ', "[1]"])
def test_a_stored_step_that_cannot_be_read_is_told(damaged: str, store: Store) -> None:
    run = store.start_run(spec())
    run.record_step(3, {"loss": 1.0})
    with store._database.write_transaction() as transaction:
        transaction.execute("UPDATE assay_step SET metrics = ?", damaged)

    with pytest.raises(StoreError, match="the stored metrics of step 3 are not a JSON object"):
        run.steps()


def test_a_store_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    path = tmp_path / "assay.db"
    with Store.open(path, settings=StoreSettings(lock_timeout_s=0.05)) as store:
        run = store.start_run(spec())
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreError, match="locked by another process"):
            run.record_step(1, {})

        other.close()
        assert run.steps() == []
