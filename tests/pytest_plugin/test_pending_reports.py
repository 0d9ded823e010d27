"""Pending reports: kept as they are, and failed only for a regression."""

from pathlib import Path

import pytest

from assay.pytest_plugin.pending_reports import PendingReports
from assay.pytest_plugin.worker_files import SessionFiles


def reports(nodeid: str) -> list[pytest.TestReport]:
    location = ("test_a.py", 1, "test_a")
    return [
        pytest.TestReport(nodeid, location, {}, "passed", None, when)
        for when in ("setup", "call", "teardown")
    ]


class Listener:
    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.told.append((report.nodeid, str(report.when), report.outcome))


@pytest.fixture
def config(pytester: pytest.Pytester) -> pytest.Config:
    return pytester.parseconfig("-p", "no:terminal")


def test_only_the_call_of_a_regressed_test_fails(config: pytest.Config, tmp_path: Path) -> None:
    listener = Listener()
    config.pluginmanager.register(listener)
    pending = PendingReports(config, SessionFiles(tmp_path / "summary.json", "1-1"))
    assert pending._keep("a", reports("a"))
    assert pending._keep("b", reports("b"))

    pending.release({"b": "worse"})

    assert [outcome for _, _, outcome in listener.told] == ["passed"] * 4 + ["failed", "passed"]


def test_a_worker_leaves_its_reports_to_the_process_that_decides(
    config: pytest.Config, tmp_path: Path
) -> None:
    parts = SessionFiles(tmp_path / "summary.json", "1-1")
    config.workerinput = {}  # type: ignore[attr-defined]  # as xdist sets it
    assert PendingReports(config, parts)._keep("a", reports("a"))
    odd = reports("b")
    odd[1].user_properties.append(("object", object()))
    assert not PendingReports(config, parts)._keep("b", odd)
    del config.workerinput  # type: ignore[attr-defined]  # the other process
    listener = Listener()
    config.pluginmanager.register(listener)

    PendingReports(config, parts).release({"a": "worse"})

    assert listener.told == [
        ("a", "setup", "passed"),
        ("a", "call", "failed"),
        ("a", "teardown", "passed"),
    ]
