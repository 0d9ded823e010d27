"""What tests leave on disk: sessions do not mix, nothing is lost silently, no sample is copied."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from assay.pytest_plugin.evaluation_record import Record
from assay.pytest_plugin.worker_files import SessionFiles, find_leftovers
from assay.runner import EvalConfig
from runner_runs import ECHO, right, rows, run

RECORD = Record(test="test_a.py::test_one", file="test_a.py", line=3, score=0.5)


@pytest.fixture
def summary(tmp_path: Path) -> Path:
    return tmp_path / "out" / "summary.json"


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_test_is_read_back_with_the_samples_of_its_run(summary: Path, tmp_path: Path) -> None:
    report = run(rows(2), EvalConfig(endpoint=ECHO, score_fn=right), store=tmp_path / "s.db")
    files = SessionFiles(summary, f"{os.getpid()}-1")
    files.write(replace(RECORD, run=report.run_id), report.store)

    (test,) = files.read("")

    assert test.record == replace(RECORD, run=report.run_id)
    found = list(test.samples())
    assert [sample.id for sample in found] == [sample.id for sample in report.samples]
    assert {(sample.model_extra or {})["test"] for sample in found} == {RECORD.test}


def test_the_samples_of_a_store_by_url_are_read_with_the_url_of_the_session(summary: Path) -> None:
    """The address in the file has no password, so that it opens nothing."""
    files = SessionFiles(summary, f"{os.getpid()}-1")
    files.write(RECORD, "postgresql://host/name")

    (test,) = files.read("postgresql://user:secret@host/name")

    assert test.store == "postgresql://user:secret@host/name"


def test_a_test_without_a_run_has_no_samples(summary: Path) -> None:
    files = SessionFiles(summary, f"{os.getpid()}-1")
    files.write(RECORD, None)

    (test,) = files.read("")

    assert list(test.samples()) == []


def test_a_test_that_ran_again_counts_as_its_last_time(summary: Path) -> None:
    parts = SessionFiles(summary, f"{os.getpid()}-1")
    parts.write(RECORD, None)
    parts.write(replace(RECORD, score=0.75), None)
    parts.write(replace(RECORD, test="test_a.py::test_another"), None)

    another, again = (test.record for test in parts.read(""))

    assert another.attempts == 1
    assert (again.score, again.attempts) == (0.75, 2)


def test_a_test_is_noted_while_it_runs_and_no_longer(summary: Path) -> None:
    parts = SessionFiles(summary, f"{os.getpid()}-1")

    with parts.running(RECORD):
        (during,) = parts.read("")
    with pytest.raises(KeyboardInterrupt), parts.running(RECORD):
        raise KeyboardInterrupt

    assert (during.store, during.record.passed) == (None, False)
    assert during.record.reason == "the process ended while the test ran"
    assert parts.read("") == []


def test_a_test_that_ran_again_after_a_crash_counts_both_attempts(summary: Path) -> None:
    parts = SessionFiles(summary, f"{os.getpid()}-1")
    with parts.running(RECORD):
        # What a worker leaves that dies now; another one then runs the test to its end.
        (parts.folder / f"{os.getpid()}.jsonl").rename(parts.folder / "1.jsonl")
        with parts.running(RECORD):
            parts.write(RECORD, None)

        (test,) = parts.read("")

    assert (test.record.reason, test.record.attempts) == ("", 2)


def test_a_verdict_of_pytest_overrides_the_records_of_its_item(summary: Path) -> None:
    parts = SessionFiles(summary, f"{os.getpid()}-1")
    for name in ("one", "two"):
        parts.write(replace(RECORD, test=f"t[{name}]", nodeid="t"), None)
    parts.write(RECORD, None)
    parts.write_verdict("t", {"passed": True, "xfail": "known"})

    assert [test.record.xfail for test in parts.read("")] == ["known", "known", None]


def test_a_line_that_was_cut_off_is_skipped(summary: Path) -> None:
    parts = SessionFiles(summary, f"{os.getpid()}-1")
    parts.write(RECORD, None)
    (file,) = parts.folder.iterdir()
    with file.open("a") as half:
        half.write('[1, "record", {"rec')

    assert len(parts.read("")) == 1


def test_sessions_in_one_folder_do_not_see_each_other(summary: Path) -> None:
    here, there = (
        SessionFiles(summary, f"{os.getpid()}-1"),
        SessionFiles(summary, f"{os.getpid()}-2"),
    )
    here.write(RECORD, None)
    there.write(replace(RECORD, score=0.0), None)

    here.remove()

    assert [test.record.score for test in there.read("")] == [0.0]
    assert find_leftovers(summary) == []
    there.remove()
    assert list(summary.parent.iterdir()) == []


def test_what_a_killed_session_left_is_found(summary: Path) -> None:
    assert find_leftovers(summary) == []
    killed = SessionFiles(summary, f"{ended_process()}-1")
    killed.write(RECORD, None)
    SessionFiles(summary, f"{os.getpid()}-1").write(RECORD, None)

    assert find_leftovers(summary) == [killed.folder]
    assert killed.read("")[0].record == RECORD
