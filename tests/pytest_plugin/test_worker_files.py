"""What tests leave on disk: sessions do not mix, and nothing is lost silently."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from assay.pytest_plugin.evaluation_record import Record
from assay.pytest_plugin.worker_files import SessionFiles, find_leftovers
from assay.types import Sample

RECORD = Record(test="test_a.py::test_one", file="test_a.py", line=3, score=0.5)


@pytest.fixture
def summary(tmp_path: Path) -> Path:
    return tmp_path / "out" / "summary.json"


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_test_is_read_back_with_its_samples(summary: Path) -> None:
    parts = SessionFiles(summary, f"{os.getpid()}-1")
    parts.write(RECORD, [Sample(id="a"), Sample(id="b")])

    (part,) = parts.read()

    assert part.record == RECORD
    assert part.rows is not None
    lines = part.rows.read_text().splitlines()
    assert [Sample.from_json(line).id for line in lines] == ["a", "b"]
    assert all('"test":"test_a.py::test_one"' in line.replace(": ", ":") for line in lines)


def test_a_test_that_ran_again_counts_as_its_last_time(summary: Path) -> None:
    parts = SessionFiles(summary, f"{os.getpid()}-1")
    parts.write(RECORD, [])
    parts.write(replace(RECORD, score=0.75), [])
    parts.write(replace(RECORD, test="test_a.py::test_another"), [])

    another, again = (part.record for part in parts.read())

    assert another.attempts == 1
    assert (again.score, again.attempts) == (0.75, 2)


def test_a_test_is_noted_while_it_runs_and_no_longer(summary: Path) -> None:
    parts = SessionFiles(summary, f"{os.getpid()}-1")

    with parts.running(RECORD):
        (during,) = parts.read()
    with pytest.raises(KeyboardInterrupt), parts.running(RECORD):
        raise KeyboardInterrupt

    assert (during.rows, during.record.passed) == (None, False)
    assert during.record.reason == "the process ended while the test ran"
    assert parts.read() == []


def test_a_test_that_was_cut_off_while_it_was_written_is_no_part(summary: Path) -> None:
    parts = SessionFiles(summary, f"{os.getpid()}-1")
    parts.write(RECORD, [])
    (parts.folder / "9-9.jsonl").write_text('{"id": "half')

    assert len(parts.read()) == 1


def test_sessions_in_one_folder_do_not_see_each_other(summary: Path) -> None:
    here, there = (
        SessionFiles(summary, f"{os.getpid()}-1"),
        SessionFiles(summary, f"{os.getpid()}-2"),
    )
    here.write(RECORD, [])
    there.write(replace(RECORD, score=0.0), [])

    here.remove()

    assert [part.record.score for part in there.read()] == [0.0]
    assert find_leftovers(summary) == []
    there.remove()
    assert list(summary.parent.iterdir()) == []


def test_what_a_killed_session_left_is_found(summary: Path) -> None:
    assert find_leftovers(summary) == []
    killed = SessionFiles(summary, f"{ended_process()}-1")
    killed.write(RECORD, [])
    SessionFiles(summary, f"{os.getpid()}-1").write(RECORD, [])

    assert find_leftovers(summary) == [killed.folder]
    assert killed.read()[0].record == RECORD
