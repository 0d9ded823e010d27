"""All evaluations of one pytest session: collected, written, compared, told."""

import textwrap
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError
from assay.models import Sample
from assay.report.wording import WIDTH, plain, plural

from .baseline import TestComparison, compare_summaries
from .github import annotate, write_step_summary
from .parts import Parts, leftovers
from .records import Record
from .settings import read_settings
from .summary import copy_summary, read_summary, write_summary

if TYPE_CHECKING:
    import pytest

_INDENT = " " * 8
_LONGEST_TEXT = 1000


class Evaluations:
    """Puts each test on disk as it ends; at the end of the session joins and judges them."""

    def __init__(self, config: "pytest.Config", session: str) -> None:
        self._config = config
        self._settings = read_settings(config)
        self._parts = Parts(self._settings.summary, session)
        self._records: list[Record] = []
        self._comparisons: list[TestComparison] = []
        self._notes: list[str] = []

    @property
    def store(self) -> str | Path:
        return self._settings.store

    @property
    def store_must_be_named(self) -> bool:
        """Whether `assay show` would look elsewhere if it were not told the store."""
        return self._settings.store_must_be_named

    @property
    def limit(self) -> int | None:
        return self._settings.limit

    @property
    def model(self) -> str | None:
        return self._settings.model

    def limits(self) -> dict[str, Any]:
        """The limits of runs that the command line gives."""
        return self._settings.limits()

    def running(self, record: Record) -> AbstractContextManager[None]:
        """While a test runs: it is in the summary even if its process does not survive it."""
        return self._parts.running(record)

    def add(self, record: Record, samples: Iterable[Sample]) -> None:
        """Keep what a test came to, with its samples."""
        self._parts.write(record, samples)

    def finish(self, session: "pytest.Session") -> None:
        """Write the summary; on a regression against the baseline, fail the session."""
        parts = self._parts.read()
        self._records = [part.record for part in parts]
        try:
            write_summary(self._settings.summary, parts, root=self._config.rootpath)
            self._parts.remove()
            self._use_baseline(session)
            write_step_summary(self._records, self._comparisons)
        except (AssayError, OSError) as error:
            self._notes.append(f"NOT DONE: {error}")
            _fail(session)
        if any(comparison.regressed for comparison in self._comparisons):
            _fail(session)
        for path in leftovers(self._settings.summary):
            self._notes.append(
                f"a session that was killed left its samples in {self._near(path)}; they are in "
                "no summary: delete the folder when they are not needed"
            )

    def _use_baseline(self, session: "pytest.Session") -> None:
        baseline = self._settings.baseline
        if baseline is None:
            return
        if not self._settings.update:
            self._comparisons = compare_summaries(
                baseline, self._settings.summary, tolerance=self._settings.tolerance
            )
            return
        if _ended_early(session):
            self._notes.append(f"the session ended early: {self._near(baseline)} is left as it was")
            return
        self._notes += self._dropped(baseline)
        copy_summary(self._settings.summary, baseline)
        self._notes.append(f"baseline written: {self._near(baseline)}")

    def _dropped(self, baseline: Path) -> Iterator[str]:
        """Tests that a new baseline no longer has."""
        try:
            before = {test["test"] for test in read_summary(baseline)["tests"]}
        except AssayError:
            return  # there is none yet, or none that could be read
        for test in sorted(before - {record.test for record in self._records}):
            yield f"no longer in the baseline, since it was not in this session: {test}"

    def tell(self, reporter: "pytest.TerminalReporter") -> None:
        """The terminal's section about evaluations, at most 80 columns wide."""
        if not self._records:
            return
        reporter.section("evaluations")
        for line in self._lines():
            reporter.write_line(_inert(line))
        root = self._config.rootpath
        for line in annotate(self._records, self._comparisons, root=root):
            reporter.write_line(line)

    def _lines(self) -> Iterator[str]:
        for record in self._records:
            yield from _titled("passed" if record.passed else "FAILED", record.test)
            yield from _wrapped(record.headline())
            if not record.passed:
                yield from _wrapped(record.reason)
            if record.attempts > 1:
                yield from _wrapped(f"ran {plural(record.attempts, 'time')}: this is the last")
        for comparison in self._comparisons:
            yield from _titled("WORSE" if comparison.regressed else "base", comparison.test)
            yield from _wrapped(comparison.text)
            if comparison.regressed and comparison.comparison is not None:
                yield from comparison.comparison.lines()
        for note in self._notes:
            yield from _wrapped(note, indent="")
        yield from _wrapped(f"summary: {self._near(self._settings.summary)}", indent="")

    def _near(self, path: Path) -> str:
        """A path as one types it here."""
        here = self._config.invocation_params.dir
        return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _titled(word: str, test: str) -> Iterator[str]:
    """A word and a test's name, whose end tells more than its beginning."""
    name = plain(test, _LONGEST_TEXT)
    room = WIDTH - len(_INDENT)
    while plain(name, room) != name:
        name = f"…{name[2:]}"
    yield f"{word:<{len(_INDENT)}}{name}"


def _wrapped(text: str, indent: str = _INDENT) -> list[str]:
    return textwrap.wrap(
        plain(text, _LONGEST_TEXT),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def _inert(line: str) -> str:
    """A line of which GitHub Actions makes no command, whatever a sample is called."""
    stripped = line.lstrip()
    if not stripped.startswith("::"):
        return line
    return f"{line[: len(line) - len(stripped)]}: {stripped[1:]}"


def _fail(session: "pytest.Session") -> None:
    import pytest

    # What ended the session otherwise says more.
    if session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _ended_early(session: "pytest.Session") -> bool:
    import pytest

    early = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
    return bool(session.shouldstop or session.shouldfail or session.exitstatus in early)
