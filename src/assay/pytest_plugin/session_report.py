"""All evaluations of one pytest session: collected, written, compared and reported."""

import textwrap
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import AssayError
from assay.stats import WIDTH, clean_text, format_plural, join_wrapped
from assay.types import Sample

from .baseline import TestComparison, compare_with_baseline
from .evaluation_record import Record, mark_regression
from .github_annotations import annotate, write_step_summary
from .pending_reports import PendingReports
from .session_settings import read_settings
from .summary_file import copy_summary, read_summary, write_summary
from .worker_files import SessionFiles, StoredTest, find_leftovers

if TYPE_CHECKING:
    import pytest

_INDENT = " " * 8
_MAX_REPORT_CHARS = 1000


class Evaluations:
    """Writes each test to disk as it ends; at the end of the session joins and judges them."""

    def __init__(self, config: "pytest.Config", session: str) -> None:
        self._config = config
        self._settings = read_settings(config)
        self._parts = SessionFiles(self._settings.summary, session)
        self.pending = PendingReports(config, self._parts)
        self._concluded: list[StoredTest] = []
        self._passed: set[str] = set()
        self._error: Exception | None = None
        self._comparisons: list[TestComparison] = []
        self._notes: list[str] = []

    @property
    def _records(self) -> list[Record]:
        return [part.record for part in self._concluded]

    @property
    def store(self) -> str | Path:
        return self._settings.store

    @property
    def store_must_be_named(self) -> bool:
        """Whether `assay show` needs `--store` to find the runs."""
        return self._settings.store_must_be_named

    @property
    def limit(self) -> int | None:
        return self._settings.limit

    @property
    def model(self) -> str | None:
        return self._settings.model

    @property
    def rows(self) -> Path | None:
        """The dataset of a bundle. None: each test reads its own."""
        return self._settings.rows

    def limits(self) -> dict[str, Any]:
        """Return the limits of runs from the command line."""
        return self._settings.limits()

    def running(self, record: Record) -> AbstractContextManager[None]:
        """Mark a test as running: the summary contains it even if the process dies."""
        return self._parts.running(record)

    def add(self, record: Record, samples: Iterable[Sample]) -> None:
        """Store the record of a test, with its samples."""
        self._parts.write(record, samples)
        self._passed.discard(record.item)
        if record.passed:
            self._passed.add(record.item)

    def passed(self, nodeid: str) -> bool:
        """Whether a test of this process passed so far."""
        return nodeid in self._passed

    def override_outcome(self, nodeid: str, fields: dict[str, object]) -> None:
        """Change the records of a test: pytest decided otherwise than its samples did."""
        self._parts.write_verdict(nodeid, fields)

    def conclude(self) -> None:
        """Compare all tests with the baseline, and log the reports that waited for it."""
        self._concluded = self._parts.read()
        try:
            baseline = self._settings.baseline
            if baseline is not None and not self._settings.update:
                self._comparisons = compare_with_baseline(
                    baseline, self._concluded, tolerance=self._settings.tolerance
                )
        except (AssayError, OSError) as error:
            self._error = error
        regressed = {each.test: each.problem for each in self._comparisons if each.regressed}
        failing: dict[str, list[str]] = {}
        for number, part in enumerate(self._concluded):
            record = part.record
            if record.test not in regressed:
                continue
            worse = mark_regression(record, regressed[record.test])
            self._concluded[number] = replace(part, record=worse)
            # Failed and xfailed tests have been reported already.
            if record.outcome in ("passed", "xpassed"):
                failing.setdefault(record.item, []).append(self._describe_regression(worse))
        self.pending.release({nodeid: "\n".join(texts) for nodeid, texts in failing.items()})

    def _describe_regression(self, record: Record) -> str:
        (found,) = (each for each in self._comparisons if each.test == record.test)
        name = clean_text(record.test.rpartition("::")[2], _MAX_REPORT_CHARS)
        lines = [f"{name}: {record.format_headline()}", found.problem]
        if found.comparison is not None:
            lines += join_wrapped(found.comparison.lines())
        return "\n".join(lines)

    def finish(self, session: "pytest.Session") -> None:
        """Write the summary, and the baseline if `--assay-update-baseline` is set."""
        try:
            write_summary(self._settings.summary, self._concluded, root=self._config.rootpath)
            self._parts.remove()
            self._update_baseline(session)
            write_step_summary(self._records, self._comparisons)
        except (AssayError, OSError) as error:
            self._error = self._error or error
        if self._error is not None:
            self._notes.append(f"ERROR: {self._error}")
            # Any other exit status is more specific.
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        for path in find_leftovers(self._settings.summary):
            self._notes.append(
                f"a killed session left its samples in {self._shorten_path(path)}; no summary "
                "contains them: delete the folder if you do not need them"
            )

    def _update_baseline(self, session: "pytest.Session") -> None:
        baseline = self._settings.baseline
        if baseline is None or not self._settings.update:
            return
        # A partial session would drop all tests that did not run from the baseline.
        if _has_ended_early(session):
            self._notes.append(
                f"the session ended early: {self._shorten_path(baseline)} was not updated"
            )
            return
        self._notes += self._list_dropped_tests(baseline)
        copy_summary(self._settings.summary, baseline)
        self._notes.append(f"baseline written: {self._shorten_path(baseline)}")

    def _list_dropped_tests(self, baseline: Path) -> Iterator[str]:
        try:
            before = {test["test"] for test in read_summary(baseline)["tests"]}
        except AssayError:
            return  # the baseline is new or unreadable
        for test in sorted(before - {record.test for record in self._records}):
            yield f"the baseline no longer contains a test that did not run: {test}"

    def write_terminal_section(self, reporter: "pytest.TerminalReporter") -> None:
        """Write the terminal's section about evaluations, at most 80 columns wide."""
        if not self._records:
            return
        reporter.section("evaluations")
        for line in self._render_lines():
            reporter.write_line(_escape_workflow_command(line))
        root = self._config.rootpath
        for line in annotate(self._records, root=root):
            reporter.write_line(line)

    def _render_lines(self) -> Iterator[str]:
        against = {comparison.test: comparison for comparison in self._comparisons}
        for record in self._records:
            yield from _render_record(record, against.get(record.test))
        for comparison in self._comparisons:
            if comparison.comparison is None and not comparison.regressed:
                yield from _format_title("base", comparison.test)
                yield from _wrap_text(comparison.text)
        for note in self._notes:
            yield from _wrap_text(note, indent="")
        yield from _wrap_text(f"summary: {self._shorten_path(self._settings.summary)}", indent="")

    def _shorten_path(self, path: Path) -> str:
        here = self._config.invocation_params.dir
        return str(path.relative_to(here) if path.is_relative_to(here) else path)


_OUTCOME_LABELS = {"passed": "passed", "failed": "FAILED", "xfailed": "xfailed", "xpassed": "XPASS"}


def _render_record(record: Record, found: TestComparison | None) -> Iterator[str]:
    compared = None if found is None or found.comparison is None else found
    worse = compared is not None and compared.regressed and record.outcome == "failed"
    yield from _format_title("WORSE" if worse else _OUTCOME_LABELS[record.outcome], record.test)
    if compared is not None:
        yield from _wrap_text(compared.text)
    yield from _wrap_text(record.format_headline())
    if record.reason and not (compared is not None and record.reason.endswith(compared.text)):
        yield from _wrap_text(record.reason)
    if record.xfail:
        yield from _wrap_text(f"expected to fail: {record.xfail}")
    if record.attempts > 1:
        yield from _wrap_text(f"ran {format_plural(record.attempts, 'time')}; the last one counts")


def _format_title(word: str, test: str) -> Iterator[str]:
    # Long names are cut at the front: the end identifies a test better than its folder.
    name = clean_text(test, _MAX_REPORT_CHARS)
    room = WIDTH - len(_INDENT)
    while clean_text(name, room) != name:
        name = f"…{name[2:]}"
    yield f"{word:<{len(_INDENT)}}{name}"


def _wrap_text(text: str, indent: str = _INDENT) -> list[str]:
    return textwrap.wrap(
        clean_text(text, _MAX_REPORT_CHARS),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def _escape_workflow_command(line: str) -> str:
    # GitHub Actions executes lines that begin with `::`; the name of a sample may do so.
    stripped = line.lstrip()
    if not stripped.startswith("::"):
        return line
    return f"{line[: len(line) - len(stripped)]}: {stripped[1:]}"


def _has_ended_early(session: "pytest.Session") -> bool:
    early = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
    return bool(session.shouldstop or session.shouldfail or session.exitstatus in early)
