"""Reports of evaluations that wait for the comparison with the baseline.

Whether a test is worse than its baseline is decided over all tests of the session. Until then
the reports of an evaluation that passed so far are pending. So every reporter (terminal, JUnit,
cache) sees one outcome of each test, the final one.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

# Not public, but pytest-rerunfailures depends on it as well.
from _pytest.runner import runtestprotocol

from .worker_files import SessionFiles

if TYPE_CHECKING:
    from _pytest._code.code import TerminalRepr


class PendingReports:
    """Holds the reports of this process back; those of xdist workers are on disk."""

    def __init__(self, config: "pytest.Config", files: SessionFiles) -> None:
        self._config = config
        self._files = files
        self._own: dict[str, list[pytest.TestReport]] = {}

    def run(self, item: "pytest.Item", nextitem: "pytest.Item | None") -> None:
        """Run a test as pytest does, but hold its reports back if it passed."""
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not (all(report.passed for report in reports) and self._keep(item.nodeid, reports)):
            for report in reports:
                hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _keep(self, nodeid: str, reports: "list[pytest.TestReport]") -> bool:
        if not hasattr(self._config, "workerinput"):
            self._own[nodeid] = reports
            return True
        hook = self._config.hook
        plain = [
            hook.pytest_report_to_serializable(config=self._config, report=report)
            for report in reports
        ]
        try:
            self._files.write_reports(nodeid, plain)
        except (TypeError, ValueError):
            # A plugin put an object on the report that is not JSON: it cannot leave the worker.
            return False
        return True

    def release(self, regressions: Mapping[str, str]) -> None:
        """Log all pending reports. A test in `regressions` fails with that text."""
        load = self._config.hook.pytest_report_from_serializable
        pending = {
            nodeid: [load(config=self._config, data=each) for each in plain]
            for nodeid, plain in self._files.read_reports().items()
        }
        pending |= self._own
        for nodeid, reports in pending.items():
            if (text := regressions.get(nodeid)) is not None:
                (call,) = (report for report in reports if report.when == "call")
                # For a test with an xfail mark this is the expected failure.
                call.outcome = "skipped" if hasattr(call, "wasxfail") else "failed"
                call.longrepr = _render_failure(text)
            self._log(reports)
        for nodeid in regressions.keys() - pending.keys():
            # Another plugin ran the test and reported it as passed: add a failed report.
            file, _, name = nodeid.partition("::")
            failure = _render_failure(regressions[nodeid])
            location = (file, None, name)
            self._log([pytest.TestReport(nodeid, location, {}, "failed", failure, "call")])

    def _log(self, reports: "list[pytest.TestReport]") -> None:
        hook, first = self._config.hook, reports[0]
        hook.pytest_runtest_logstart(nodeid=first.nodeid, location=first.location)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=first.nodeid, location=first.location)


def _render_failure(text: str) -> "TerminalRepr":
    # The same text as from `pytest.fail(text, pytrace=False)` in a test.
    try:
        pytest.fail(text, pytrace=False)
    except pytest.fail.Exception as error:
        return pytest.ExceptionInfo.from_exception(error).getrepr(style="value")
