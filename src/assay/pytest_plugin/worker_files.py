"""The files that each test writes when it ends, and that the end of the session joins.

Every session has a folder of its own, and every test two files in it: its samples, then its
record. So the processes of pytest-xdist need no channel, a worker that dies loses only its current
test, and the files of a killed session are neither lost nor mixed into the next.
"""

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from assay.types import Sample, make_private_folder, open_private, write_private

from .evaluation_record import Record, mark_failed


@dataclass(frozen=True)
class StoredTest:
    """One test on disk."""

    record: Record
    rows: Path | None
    """None for a test that was aborted."""


@dataclass(frozen=True)
class SessionFiles:
    """The parts of one session."""

    summary: Path
    session: str
    """Begins with the id of the process that owns the session."""

    @property
    def folder(self) -> Path:
        return _sessions_folder_of(self.summary) / self.session

    @contextmanager
    def running(self, record: Record) -> Iterator[None]:
        """Keep a marker file while a test runs: it stays if the process dies."""
        note = self._reserve_path(".begun")
        self._write_record(mark_failed(record, "the process ended while the test ran"), note)
        try:
            yield
        finally:
            # The outcome of the test has been written by now.
            note.unlink()

    def write(self, record: Record, samples: Iterable[Sample]) -> None:
        """Stream the samples of one test to a file, then write its record, which completes it."""
        rows = self._reserve_path(".jsonl")
        with open_private(rows) as file:
            for sample in samples:
                named = sample.model_copy(update={"test": record.test})
                file.write(f"{named.to_json()}\n")
        self._write_record(record, rows.with_suffix(".json"))

    def write_verdict(self, nodeid: str, verdict: dict[str, object]) -> None:
        """Override the records of an item whose outcome pytest changed."""
        write_private(
            self._reserve_path(".verdict"), json.dumps({"item": nodeid, "fields": verdict})
        )

    def write_reports(self, nodeid: str, reports: list[dict[str, object]]) -> None:
        """Keep the reports of an item for the process that concludes the session."""
        text = json.dumps({"item": nodeid, "reports": reports})
        write_private(self._reserve_path(".reports"), text)

    def read_reports(self) -> dict[str, list[dict[str, object]]]:
        """Read the reports that `write_reports` kept, by item."""
        found = (json.loads(path.read_text("utf-8")) for path in self._list_files(".reports"))
        return {each["item"]: each["reports"] for each in found}

    def _list_files(self, *suffixes: str) -> list[Path]:
        # Names begin with a timestamp, so this is the order in which they were written.
        return sorted(path for suffix in suffixes for path in self.folder.glob(f"*{suffix}"))

    def _reserve_path(self, suffix: str) -> Path:
        # Unique across processes, and sorted by time.
        make_private_folder(self.folder)
        return self.folder / f"{time.time_ns()}-{os.getpid()}{suffix}"

    def _write_record(self, record: Record, path: Path) -> None:
        write_private(path, json.dumps(asdict(record)))

    def read(self) -> list[StoredTest]:
        """Read the tests of the session by name. Of several attempts the last one counts."""
        found: dict[str, StoredTest] = {}
        for path in self._list_files(".json", ".begun", ".verdict"):
            plain = json.loads(path.read_text(encoding="utf-8"))
            if path.suffix == ".verdict":
                _apply_verdict(found, plain["item"], plain["fields"])
                continue
            record = Record.from_plain(plain)
            if (earlier := found.get(record.test)) is not None:
                record = replace(record, attempts=earlier.record.attempts + 1)
            whole = path.suffix == ".json"
            found[record.test] = StoredTest(record, path.with_suffix(".jsonl") if whole else None)
        return [found[test] for test in sorted(found)]

    def remove(self) -> None:
        """Remove the files, once they are joined."""
        shutil.rmtree(self.folder)
        home = _sessions_folder_of(self.summary)
        if not any(home.iterdir()):
            home.rmdir()


def _apply_verdict(found: dict[str, StoredTest], nodeid: str, fields: dict[str, Any]) -> None:
    for test, part in found.items():
        if part.record.item == nodeid:
            found[test] = replace(part, record=replace(part.record, **fields))


def find_leftovers(summary: Path) -> list[Path]:
    """Find the folders of killed sessions: their process no longer exists."""
    home = _sessions_folder_of(summary)
    if not home.is_dir():
        return []
    return sorted(path for path in home.iterdir() if not _is_running(path.name.partition("-")[0]))


def _sessions_folder_of(summary: Path) -> Path:
    return summary.with_name(f"{summary.name}.parts")


def _is_running(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # the process exists and belongs to another user
    return True
