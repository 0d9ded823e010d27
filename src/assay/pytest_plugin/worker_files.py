"""The file in which each process of a session records its tests, for the end of the session.

It contains verdicts and run ids, never samples: those are in the store. It is a file and not a
message of pytest-xdist, because it must survive a worker or a session that is killed.
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

from assay.errors import ConfigError
from assay.store import Store
from assay.types import Sample, create_private, make_private_folder

from .evaluation_record import Record, mark_failed


@dataclass(frozen=True)
class RecordedTest:
    """One test of a session, and where its samples are."""

    record: Record
    store: str | Path | None = None
    """None for a test without a run."""

    def read_labels(self, sample_ids: Iterable[str]) -> dict[str, str]:
        """Return the label of each of these samples that the test's run has."""
        if self.record.run is None or self.store is None:
            return {}
        with Store.open(self.store, create=False) as store:
            return store.run(self.record.run).read_labels(sample_ids)

    def samples(self) -> Iterator[Sample]:
        """Yield the samples of the test's run one at a time, with `test` added."""
        if self.record.run is None or self.store is None:
            return
        with Store.open(self.store, create=False) as store:
            for sample in store.run(self.record.run).samples():
                yield sample.model_copy(update={"test": self.record.test})


@dataclass(frozen=True)
class SessionFiles:
    """The files of one session, one for each process that runs tests."""

    summary: Path
    session: str
    """Begins with the id of the process that owns the session."""

    @property
    def folder(self) -> Path:
        return _sessions_folder_of(self.summary) / self.session

    @contextmanager
    def running(self, record: Record) -> Iterator[None]:
        """Mark a test as running: without its end, the process died meanwhile."""
        aborted = mark_failed(record, "the process ended while the test ran")
        self._append("start", {"record": asdict(aborted), "store": None})
        try:
            yield
        finally:
            self._append("end", None)

    def write(self, record: Record, store: str | None) -> None:
        """Record a test with the address of its store, which must not contain a password."""
        self._append("record", {"record": asdict(record), "store": store})

    def write_verdict(self, nodeid: str, verdict: dict[str, object]) -> None:
        """Override the records of an item whose outcome pytest changed."""
        self._append("verdict", {"item": nodeid, "fields": verdict})

    def write_reports(self, nodeid: str, reports: list[dict[str, object]]) -> None:
        """Keep the reports of an item for the process that concludes the session."""
        self._append("reports", {"item": nodeid, "reports": reports})

    def _append(self, kind: str, content: object) -> None:
        # Encoded first: a report that is not JSON must not leave half a line.
        line = json.dumps([time.time_ns(), kind, content])
        # One file for each process, opened for each line: no locks, and nothing left in a buffer.
        path = self.folder / f"{os.getpid()}.jsonl"
        try:
            make_private_folder(self.folder)
            if not path.exists():
                create_private(path)
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            raise ConfigError(
                f"the summary cannot be written: {error.strerror or error}",
                where=str(self.summary),
                hint="pass --assay-summary with a file in a folder that can be written",
            ) from error

    def _read_lines(self) -> list[tuple[str, Any]]:
        """Return the kind and content of all lines in the order of their time."""
        found: dict[tuple[int, str, int], tuple[str, Any]] = {}
        for path in self.folder.glob("*.jsonl"):
            start: tuple[int, str, int] | None = None
            with path.open(encoding="utf-8") as file:
                for number, line in enumerate(file):
                    if not line.endswith("\n"):
                        break  # the process was killed while it wrote
                    at, kind, content = json.loads(line)
                    if kind == "end" and start is not None:
                        del found[start]
                        continue
                    key = (at, path.name, number)
                    found[key] = (kind, content)
                    # A process runs one test at a time.
                    start = key if kind == "start" else start
        return [found[key] for key in sorted(found)]

    def read(self, store: str | Path) -> list[RecordedTest]:
        """Read the tests of the session by name. Of several attempts the last one counts.

        `store` is that of the session: its URL may have a password, which no file contains.
        """
        tests: dict[str, RecordedTest] = {}
        for kind, content in self._read_lines():
            if kind == "verdict":
                for test in tests.values():
                    if test.record.item == content["item"]:
                        changed = replace(test.record, **content["fields"])
                        tests[changed.test] = replace(test, record=changed)
            elif kind in ("start", "record"):
                record, where = Record.from_plain(content["record"]), content["store"]
                if (earlier := tests.get(record.test)) is not None:
                    record = replace(record, attempts=earlier.record.attempts + 1)
                is_url = where is not None and "://" in where
                tests[record.test] = RecordedTest(record, store if is_url else where)
        return [tests[name] for name in sorted(tests)]

    def read_reports(self) -> dict[str, list[dict[str, object]]]:
        """Read the reports that `write_reports` kept, by item."""
        lines = self._read_lines()
        return {each["item"]: each["reports"] for kind, each in lines if kind == "reports"}

    def remove(self) -> None:
        """Remove the files, once the summary is written."""
        shutil.rmtree(self.folder)
        home = _sessions_folder_of(self.summary)
        if not any(home.iterdir()):
            home.rmdir()


def find_leftovers(summary: Path) -> list[Path]:
    """Find the folders of killed sessions: their process no longer exists."""
    home, found = _sessions_folder_of(summary), []
    for path in sorted(home.iterdir()) if home.is_dir() else ():
        try:
            os.kill(int(path.name.partition("-")[0]), 0)
        except PermissionError:
            pass  # the process exists and belongs to another user
        except (ValueError, ProcessLookupError, OverflowError):
            found.append(path)
    return found


def _sessions_folder_of(summary: Path) -> Path:
    return summary.with_name(f"{summary.name}.parts")
