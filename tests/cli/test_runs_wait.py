"""`assay runs wait` and `copy`: when they end, and with which status."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay.cli import main
from assay.errors import StoreError
from assay.store import Run, RunRow, Store
from assay.types import AgentSession, Endpoint
from commands import call_main
from store_runs import broken, record, scored, spec


def write_run(folder: Path, *samples: object, total: int = 2) -> None:
    with Store.open(folder / "a.db") as store:
        run = store.join_run(spec(total=total), shard="1/1")
        record(run, samples)  # type: ignore[arg-type]  # any samples
        run.finish("completed")


def test_a_completed_run_is_reported_at_once(tmp_path: Path) -> None:
    write_run(tmp_path, scored(0), scored(1))

    done = call_main(tmp_path, "runs", "wait", "run-1", "--store", "a.db")

    assert done.returncode == 0
    assert "samples       2, 2 judged" in done.stdout
    assert "assay show run-1 --store a.db" in done.stdout


def test_failed_samples_make_it_inconclusive(tmp_path: Path) -> None:
    write_run(tmp_path, scored(0), broken(1))

    done = call_main(tmp_path, "runs", "wait", "run-1", "--store", "a.db", "--json")

    assert done.returncode == 3
    assert json.loads(done.stdout)["failed"] == 1
    assert "start the shards again, with the same command" in done.stderr


def test_an_unfinished_run_is_given_up_after_the_timeout(tmp_path: Path) -> None:
    write_run(tmp_path, scored(0))

    done = call_main(tmp_path, "runs", "wait", "run-1", "--store", "a.db", "--timeout-s", "0.01")

    assert done.returncode == 3
    assert "1 of 2 recorded; no process executes it" in done.stderr


def test_a_run_that_does_not_exist_is_refused_or_waited_for(tmp_path: Path) -> None:
    write_run(tmp_path, scored(0))

    typo = call_main(tmp_path, "runs", "wait", "nightly", "--store", "a.db")
    early = call_main(tmp_path, "runs", "wait", "nightly", "--store", "a.db", "--timeout-s", "0.01")

    assert (typo.returncode, early.returncode) == (2, 3)
    assert "run 'nightly' does not exist after 0.01 s" in early.stderr


def replace_sleep(monkeypatch: pytest.MonkeyPatch, act: Callable[[float], object]) -> None:
    """Act instead of waiting. Only the command: the writer of a store sleeps as well."""
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=act)
    monkeypatch.setattr("assay.cli.runs_wait.time", clock)


def abort_run(folder: Path) -> None:
    with Store.open(folder / "a.db") as store:
        run = store.join_run(spec(total=2), shard="1/1")
        record(run, [broken(1)])
        run.finish("failed")


def test_an_aborted_run_has_ended(tmp_path: Path) -> None:
    abort_run(tmp_path)

    done = call_main(tmp_path, "runs", "wait", "run-1", "--store", "a.db")

    assert done.returncode == 3
    assert "run 'run-1' was aborted: 0 of 2 recorded" in done.stderr
    assert "start the shards again" in done.stderr


def test_a_run_that_was_aborted_before_is_waited_for_until_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    abort_run(tmp_path)

    def restart(seconds: float) -> None:
        write_run(tmp_path, scored(0), scored(1))

    replace_sleep(monkeypatch, restart)
    done = call_main(tmp_path, "runs", "wait", "run-1", "--store", "a.db", "--timeout-s", "60")

    assert done.returncode == 0, done.stderr


def test_a_run_that_is_aborted_while_it_is_waited_for_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    abort_run(tmp_path)
    with Store.open(tmp_path / "a.db") as store:
        executing: list[Run] = []

        def join_then_abort(seconds: float) -> None:
            if executing:
                executing[0].finish("failed")
            else:
                executing.append(store.join_run(spec(total=2), shard="1/1"))

        replace_sleep(monkeypatch, join_then_abort)
        done = call_main(tmp_path, "runs", "wait", "run-1", "--store", "a.db", "--timeout-s", "600")

    assert done.returncode == 3
    assert "was aborted" in done.stderr


@pytest.mark.parametrize(("patience_s", "status"), [(60.0, 0), (-1.0, 3)])
def test_a_store_that_is_unavailable_for_a_while_does_not_end_the_wait(
    patience_s: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, scored(0), scored(1))
    read_row, refused = Run.row, iter([True, True])

    def fail_twice(run: Run) -> RunRow:
        if next(refused, False):
            raise StoreError("the server ended the connection")
        return read_row(run)

    monkeypatch.setattr(Run, "row", fail_twice)
    monkeypatch.setattr("assay.cli.runs_wait._STORE_TIMEOUT_S", patience_s)
    replace_sleep(monkeypatch, lambda seconds: None)

    done = call_main(tmp_path, "runs", "wait", "run-1", "--store", "a.db")

    assert done.returncode == status
    assert ("the server ended the connection" in done.stderr) == (status == 3)


def test_waiting_without_any_process_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, scored(0))
    monkeypatch.setattr("assay.cli.runs_wait._IDLE_S", -1.0)
    monkeypatch.setattr("assay.cli.runs_wait._POLL_S", 0.01)

    done = call_main(tmp_path, "runs", "wait", "run-1", "--store", "a.db", "--timeout-s", "0.2")

    assert done.stderr.count("no process executes run 'run-1'; waiting for its shards") == 1


def test_a_run_that_is_deleted_meanwhile_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, scored(0))
    with Store.open(tmp_path / "a.db") as store:
        replace_sleep(monkeypatch, lambda seconds: store.delete_run("run-1"))
        done = call_main(tmp_path, "runs", "wait", "run-1", "--store", "a.db")

    assert done.returncode == 2
    assert "run 'run-1' was deleted" in done.stderr


def test_runs_are_copied_to_another_store(tmp_path: Path) -> None:
    write_run(tmp_path, scored(0), broken(1))

    for copied, present in ((1, 0), (0, 1)):
        done = call_main(
            tmp_path, "runs", "copy", "run-1", "--to", "b.db", "--store", "a.db", "--json"
        )
        assert done.returncode == 0, done.stderr
        (found,) = json.loads(done.stdout)["copied"]
        assert (found["id"], found["results"], found["present"]) == ("run-1", copied, present)
    assert main(["runs", "--store", str(tmp_path / "b.db")]) == 0


def test_all_runs_and_sessions_are_copied(tmp_path: Path) -> None:
    write_run(tmp_path, scored(0), scored(1))
    with Store.open(tmp_path / "a.db") as store:
        store.start_run(spec("run-2")).finish("interrupted")
        endpoint = Endpoint(provider="mock", model="echo")
        store.save_session(AgentSession(id="alone", endpoint=endpoint, messages=[]))

    done = call_main(tmp_path, "runs", "copy", "--all", "--to", "b.db", "--store", "a.db")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == [
        "run-1: copied 2 results; 0 results already present",
        "run-2: copied 0 results; 0 results already present",
        "copied 1 session of no run",
    ]
    with Store.open(tmp_path / "b.db") as copy:
        assert [row.id for row in copy.runs()] == ["run-2", "run-1"]
        assert copy.has_session("alone")


@pytest.mark.parametrize("runs", [[], ["run-1", "--all"]])
def test_runs_or_all_of_them_must_be_named(tmp_path: Path, runs: list[str]) -> None:
    write_run(tmp_path, scored(0))

    done = call_main(tmp_path, "runs", "copy", *runs, "--to", "b.db", "--store", "a.db")

    assert done.returncode == 2
    assert "takes the ids of runs, or --all" in done.stderr
    assert not (tmp_path / "b.db").exists()
