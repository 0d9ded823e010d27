"""What each test leaves on disk as soon as it ends, for the end of the session to join.

Every session has a folder of its own, and every test two files in it: its samples, then its
record. So the processes of pytest-xdist need not talk to each other, a worker that dies loses
only the test it died in, and what a killed session left is neither lost nor mixed into the next.
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
    """None for a test that never came to its end."""


@dataclass(frozen=True)
class SessionFiles:
    """The parts of one session."""

    summary: Path
    session: str
    """Begins with the process that it belongs to."""

    @property
    def folder(self) -> Path:
        return _sessions_folder_of(self.summary) / self.session

    @contextmanager
    def running(self, record: Record) -> Iterator[None]:
        """Leave a note while a test runs: it stays if the process ends in the middle."""
        note = self._reserve_path(".begun")
        self._write_record(mark_failed(record, "the process ended while the test ran"), note)
        try:
            yield
        finally:
            # Whatever became of the test has been written by now.
            note.unlink()

    def write(self, record: Record, samples: Iterable[Sample]) -> None:
        """Stream the samples of one test to a file; the record behind it makes it whole."""
        rows = self._reserve_path(".jsonl")
        with open_private(rows) as file:
            for sample in samples:
                named = sample.model_copy(update={"test": record.test})
                file.write(f"{named.to_json()}\n")
        self._write_record(record, rows.with_suffix(".json"))

    def write_verdict(self, nodeid: str, verdict: dict[str, object]) -> None:
        """Overrule the records of an item: pytest decided otherwise than its samples did."""
        write_private(
            self._reserve_path(".verdict"), json.dumps({"item": nodeid, "fields": verdict})
        )

    def write_reports(self, nodeid: str, reports: list[dict[str, object]]) -> None:
        """Keep the reports of an item for the process that decides about the whole session."""
        text = json.dumps({"item": nodeid, "reports": reports})
        write_private(self._reserve_path(".reports"), text)

    def read_reports(self) -> dict[str, list[dict[str, object]]]:
        """What `write_reports` kept, by item."""
        found = (json.loads(path.read_text("utf-8")) for path in self._list_files(".reports"))
        return {each["item"]: each["reports"] for each in found}

    def _list_files(self, *suffixes: str) -> list[Path]:
        """The files of these kinds, earlier ones first."""
        return sorted(path for suffix in suffixes for path in self.folder.glob(f"*{suffix}"))

    def _reserve_path(self, suffix: str) -> Path:
        """A new file, whose name no other process takes; later ones come later."""
        make_private_folder(self.folder)
        return self.folder / f"{time.time_ns()}-{os.getpid()}{suffix}"

    def _write_record(self, record: Record, path: Path) -> None:
        write_private(path, json.dumps(asdict(record)))

    def read(self) -> list[StoredTest]:
        """The tests of the session by name. A test that ran again counts as its last time."""
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
        """Let go of them, once they are joined."""
        shutil.rmtree(self.folder)
        home = _sessions_folder_of(self.summary)
        if not any(home.iterdir()):
            home.rmdir()


def _apply_verdict(found: dict[str, StoredTest], nodeid: str, fields: dict[str, Any]) -> None:
    for test, part in found.items():
        if part.record.item == nodeid:
            found[test] = replace(part, record=replace(part.record, **fields))


def find_leftovers(summary: Path) -> list[Path]:
    """Folders of sessions that never came to their end: their process is gone."""
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
        return True
    return True
