"""All evaluations of one pytest session: collected, written, compared and reported."""

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assay.errors import AssayError
from assay.stats import WIDTH, clean_text, format_plural, join_wrapped

from .baseline import TestComparison, compare_with_baseline
from .evaluation_record import Record, mark_regression
from .github_annotations import annotate, write_step_summary
from .pending_reports import PendingReports
from .session_settings import read_settings
from .summary_file import copy_summary, read_summary_file, write_summary
from .worker_files import RecordedTest, SessionFiles, find_leftovers

_INDENT = " " * 8
_MAX_REPORT_CHARS = 1000


class Evaluations:
    """Records each test as it ends; at the end of the session compares and reports them all."""

    def __init__(self, config: "pytest.Config", session: str) -> None:
        self._config = config
        self.settings = read_settings(config)
        self.files = SessionFiles(self.settings.summary, session)
        self.pending = PendingReports(config, self.files)
        self.passed: set[str] = set()
        """The items of this process that passed so far."""

        self._tests: list[RecordedTest] = []
        self._records: list[Record] = []
        self._error: Exception | None = None
        self._comparisons: list[TestComparison] = []
        self._notes: list[str] = []

    def add(self, record: Record, store: str | None = None) -> None:
        """Record a test, with the address of the store that has its samples."""
        self.files.write(record, store)
        self.passed.discard(record.item)
        if record.passed:
            self.passed.add(record.item)

    def conclude(self) -> None:
        """Compare all tests with the baseline, and log the reports that waited for it."""
        self._tests = self.files.read(self.settings.store)
        try:
            baseline = self.settings.baseline
            if baseline is not None and not self.settings.update:
                self._comparisons = compare_with_baseline(
                    baseline, self._tests, tolerance=self.settings.tolerance
                )
        except (AssayError, OSError) as error:
            # Reported by `finish`: the pending reports must be logged all the same.
            self._error = error
        regressed = {each.test: each for each in self._comparisons if each.regressed}
        failing: dict[str, list[str]] = {}
        for number, test in enumerate(self._tests):
            record, found = test.record, regressed.get(test.record.test)
            if found is None:
                continue
            worse = mark_regression(record, found.problem)
            self._tests[number] = replace(test, record=worse)
            # Failed and xfailed tests have been reported already.
            if record.outcome in ("passed", "xpassed"):
                name = clean_text(record.test.rpartition("::")[2], _MAX_REPORT_CHARS)
                # One item reports all of its endpoints that became worse.
                lines = failing.setdefault(record.item, [])
                lines += [f"{name}: {worse.format_headline()}", found.problem]
                if found.comparison is not None:
                    lines += join_wrapped(found.comparison.lines())
        self._records = [test.record for test in self._tests]
        self.pending.release({nodeid: "\n".join(lines) for nodeid, lines in failing.items()})

    def finish(self, session: "pytest.Session") -> None:
        """Write the summary, and the baseline if `--assay-update-baseline` is set."""
        try:
            samples = (sample for test in self._tests for sample in test.samples())
            root = self._config.rootpath
            write_summary(self.settings.summary, self._records, samples, root=root)
            self.files.remove()
            self._update_baseline(session)
            self._write_html_report()
            write_step_summary(self._records, self._comparisons)
        except (AssayError, OSError) as error:
            self._error = self._error or error
        if self._error is not None:
            self._notes.append(f"ERROR: {self._error}")
            # Any other exit status is more specific.
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        for path in find_leftovers(self.settings.summary):
            self._notes.append(
                f"a killed session left the verdicts of its tests in {self._shorten_path(path)} "
                "and their samples in the store; no summary contains them: delete the folder if "
                "you do not need them"
            )

    def _update_baseline(self, session: "pytest.Session") -> None:
        baseline = self.settings.baseline
        if baseline is None or not self.settings.update:
            return
        # A partial session would drop all tests that did not run from the baseline.
        early = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
        if session.shouldstop or session.shouldfail or session.exitstatus in early:
            self._notes.append(
                f"the session ended early: {self._shorten_path(baseline)} was not updated"
            )
            return
        try:
            before = {test["test"] for test in read_summary_file(baseline)["tests"]}
        except AssayError:
            before = set()  # the baseline is new or unreadable
        for test in sorted(before - {record.test for record in self._records}):
            self._notes.append(f"the baseline no longer contains a test that did not run: {test}")
        for record in self._records:
            if not record.judged:
                self._notes.append(f"the baseline has no judged result to compare: {record.test}")
        copy_summary(self.settings.summary, baseline)
        self._notes.append(f"baseline written: {self._shorten_path(baseline)}")

    def _write_html_report(self) -> None:
        target = self.settings.html
        if target is None:
            return
        # Not above: only sessions with the option need the packages of the pages.
        from assay.store import Store
        from assay.web import MAX_REPORT_RUNS, write_static_report

        # Failed tests first: the others are cut off where there are too many.
        records = sorted((test.record for test in self._tests), key=lambda record: record.passed)
        runs = list(dict.fromkeys(each.run for each in records if each.run is not None))
        if not runs:
            self._notes.append("no evaluation was recorded: no HTML report was written")
            return
        with Store.open(self.settings.store, create=False) as store:
            # Runs of different tests have nothing to compare.
            shown = runs[:MAX_REPORT_RUNS]
            write_static_report(store, shown, target, compared=False, force=True)
        self._notes.append(f"report: {self._shorten_path(target)}")
        if left_out := len(runs) - len(shown):
            self._notes.append(f"{format_plural(left_out, 'run')} did not fit into the report")

    def write_terminal_section(self, reporter: "pytest.TerminalReporter") -> None:
        """Write the terminal's section about evaluations, at most 80 columns wide."""
        if not self._records:
            return
        reporter.section("evaluations")
        for line in self._render_lines():
            reporter.write_line(_escape_workflow_command(line))
        for line in annotate(self._records, root=self._config.rootpath):
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
        yield from _wrap_text(f"summary: {self._shorten_path(self.settings.summary)}", indent="")

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
    # A regression is the reason of its record as well.
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
