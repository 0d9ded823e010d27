"""`--assay-html`: the runs of a session as one file."""

from pathlib import Path

from evaluation_sessions import call_pytest, write_tests

TESTS = """
    @evaluation_test(rows(good="yes", bad="no"), threshold=0.9)
    def test_low(reply):
        return reply == "yes"

    @evaluation_test(rows(a="yes"))
    def test_right(reply):
        return 1.0
"""


def test_the_report_has_every_run_of_the_session(tmp_path: Path) -> None:
    write_tests(tmp_path, TESTS)

    session = call_pytest(tmp_path, "--assay-html", "report.html")

    text = (tmp_path / "report.html").read_text()
    assert session.status == 1
    assert "report: report.html" in session.output
    assert text.count('class="run-section"') == 2
    # The failed test comes first, and misses its threshold.
    assert text.index("test_low") < text.index("test_right")
    assert "misses threshold 0.900" in text
    assert (tmp_path / "report.html").stat().st_mode & 0o777 == 0o600


def test_a_later_session_replaces_the_report(tmp_path: Path) -> None:
    write_tests(tmp_path, TESTS)
    (tmp_path / "report.html").write_text("old")

    call_pytest(tmp_path, "--assay-html", "report.html", "-k", "right")

    text = (tmp_path / "report.html").read_text()
    assert text.count('class="run-section"') == 1


def test_a_target_that_cannot_be_written_stops_the_session(tmp_path: Path) -> None:
    write_tests(tmp_path, TESTS)

    session = call_pytest(tmp_path, "--assay-html", "missing/report.html")

    assert session.status == 4
    assert "--assay-html: the folder" in session.output
    assert not (tmp_path / ".assay").exists()


def test_a_session_without_evaluations_writes_no_report(tmp_path: Path) -> None:
    write_tests(tmp_path, TESTS)

    call_pytest(tmp_path, "--assay-html", "report.html", "-k", "nothing")

    assert not (tmp_path / "report.html").exists()
