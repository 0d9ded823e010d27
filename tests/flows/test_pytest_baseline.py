"""Baselines in whole pytest sessions: written, compared with, and what is said of the rest."""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.pytest_plugin.worker_files import SessionFiles
from evaluation_sessions import call_pytest, run, write_tests

EVALUATIONS = """
    NAMES = os.environ.get("NAMES", "abcdefghij")
    SCORE = float(os.environ.get("SCORE", "1"))

    @evaluation_test(rows(**dict.fromkeys(NAMES, "yes")))
    def test_kept(reply):
        return SCORE

    if "NAMES" not in os.environ:
        @evaluation_test(rows(a="yes"))
        def test_gone(reply):
            return 1.0
    else:
        @evaluation_test(rows(a="yes"))
        def test_new(reply):
            return 1.0
"""
BASELINE = "--assay-baseline=kept/base.json"


def test_a_baseline_is_written_compared_with_and_what_is_missing_is_said(tmp_path: Path) -> None:
    write_tests(tmp_path, EVALUATIONS)

    written = call_pytest(tmp_path, BASELINE, "--assay-update-baseline")
    assert written.status == 0, written.output
    assert "baseline written: kept/base.json" in written.output

    smaller = call_pytest(
        tmp_path, BASELINE, "--assay-tolerance=0.2", env={"NAMES": "abcdx", "SCORE": "0.9"}
    )
    assert smaller.status == 0, smaller.output
    told = " ".join(smaller.output.split())
    assert "-0.100 over 4 pairs, within the tolerance of 0.200; 6 baseline samples missing" in told
    assert "test_gone the test is not in this session" in told
    assert "test_new the test is not in the baseline" in told

    page = tmp_path / "step.md"
    fallen = call_pytest(
        tmp_path,
        BASELINE,
        "--assay-tolerance=0.2",
        env={"SCORE": "0.7", "GITHUB_STEP_SUMMARY": str(page), "GITHUB_ACTIONS": "true"},
    )
    assert fallen.status == 1
    assert fallen.outcomes == {"test_kept": "failure", "test_gone": "passed"}
    assert fallen.summary["passed"] is False
    assert "-0.300 over 10 pairs, more than the tolerance of 0.200" in page.read_text("utf-8")
    assert "::worse than the baseline" not in fallen.output
    assert "worse than the baseline: -0.300 over 10 pairs" in fallen.output

    again = call_pytest(tmp_path, BASELINE, "--assay-update-baseline", env={"NAMES": "ab"})
    assert "the baseline no longer contains a test that did not run" in again.output
    assert "test_evals.py::test_gone" in again.output


def test_a_baseline_that_was_changed_is_refused_before_anything_runs(tmp_path: Path) -> None:
    write_tests(tmp_path, EVALUATIONS)
    call_pytest(tmp_path, BASELINE, "--assay-update-baseline")
    rows = tmp_path / "kept" / "base.jsonl"
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[1:]))
    before = (tmp_path / ".assay" / "summary.json").read_text()

    session = call_pytest(tmp_path, BASELINE)

    assert session.status == 4
    assert "contains other samples than the summary beside it" in session.output
    assert (tmp_path / ".assay" / "summary.json").read_text() == before


def test_a_baseline_without_its_samples_does_not_pass(tmp_path: Path) -> None:
    write_tests(tmp_path, EVALUATIONS)
    call_pytest(tmp_path, BASELINE, "--assay-update-baseline")
    kept = tmp_path / "kept" / "base.json"
    kept.with_suffix(".jsonl").write_bytes(b"")
    empty = {**json.loads(kept.read_text()), "rows_sha256": hashlib.sha256(b"").hexdigest()}
    kept.write_text(json.dumps(empty))

    session = call_pytest(tmp_path, BASELINE, env={"SCORE": "0"})

    assert session.status == 1
    told = " ".join(session.output.split())
    assert "the samples of the test test_evals.py::test_gone are missing beside" in told


def test_a_summary_with_a_slash_at_its_end_is_written(tmp_path: Path) -> None:
    write_tests(tmp_path, EVALUATIONS)
    call_pytest(tmp_path, BASELINE, "--assay-update-baseline")

    session = call_pytest(tmp_path, BASELINE, "--assay-summary=out/", env={"SCORE": "0"})

    assert session.status == 1
    assert session.outcomes == {"test_kept": "failure", "test_gone": "passed"}
    assert (tmp_path / "out").is_file()


def test_what_a_killed_session_left_is_told_and_not_mixed_in(tmp_path: Path) -> None:
    write_tests(
        tmp_path,
        """
        @evaluation_test(rows(a="yes"))
        def test_done(reply):
            return 1.0

        @evaluation_test(rows(a="yes"))
        def test_killed(reply):
            if "KILL" in os.environ:
                os.kill(os.getpid(), 9)
            return 1.0
        """,
    )

    killed = run(tmp_path, env={"KILL": "1"})
    assert killed.status == -9
    assert not (tmp_path / ".assay" / "summary.json").exists()

    session = call_pytest(tmp_path, "-k", "killed")
    assert session.status == 0
    assert list(session.tests) == ["test_killed"]
    assert len(session.rows("")) == 1
    told = " ".join(session.output.split())
    assert "a killed session left the verdicts of its tests in .assay/summary.json.parts/" in told
    assert "and their samples in the store; no summary contains them" in told
    (left,) = (tmp_path / ".assay" / "summary.json.parts").iterdir()
    done, killed_one = SessionFiles(left.parent.with_name("summary.json"), left.name).read("")
    assert (done.record.test, done.record.passed) == ("test_evals.py::test_done", True)
    assert [sample.reward for sample in done.samples()] == [1.0]
    assert killed_one.record.test == "test_evals.py::test_killed"
    assert killed_one.record.reason == "the process ended while the test ran"


def test_a_session_records_its_samples_once(tmp_path: Path) -> None:
    write_tests(
        tmp_path,
        """
        @evaluation_test([{"id": "a", "question": "Needle?"}])
        def test_first(question):
            return 1.0

        def test_second(pytestconfig):
            home = pytestconfig.rootpath / ".assay"
            files = [path for path in home.rglob("*") if path.is_file()]
            holding = [path.name for path in files if b"Needle" in path.read_bytes()]
            assert {name.partition("-")[0] for name in holding} == {"assay.db"}
        """,
    )

    session = call_pytest(tmp_path)

    assert session.status == 0, session.output
    assert [sample.input["question"] for sample in session.rows("")] == ["Needle?"]


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="needs pytest-xdist")
def test_samples_are_read_from_the_store_that_a_worker_used(tmp_path: Path) -> None:
    """The process that writes the summary does not load this conftest, its workers do."""
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "conftest.py").write_text(
        "import os\nos.environ['ASSAY_STORE'] = 'elsewhere.db'\n"
    )
    write_tests(
        tmp_path / "evals",
        """
        @evaluation_test(rows(a="yes"))
        def test_elsewhere(reply):
            return 1.0
        """,
    )

    session = run(tmp_path, "-n", "1")

    assert session.status == 0, session.output
    assert (tmp_path / "elsewhere.db").exists()
    assert [sample.reward for sample in session.rows("")] == [1.0]


def test_a_summary_that_cannot_be_written_fails_the_session(tmp_path: Path) -> None:
    write_tests(tmp_path, EVALUATIONS)
    (tmp_path / ".assay" / "summary.jsonl").mkdir(parents=True)

    session = call_pytest(tmp_path)

    assert session.status == 1
    assert "ERROR: " in session.output
    assert list((tmp_path / ".assay" / "summary.json.parts").iterdir())


def test_a_store_that_is_gone_at_the_end_fails_the_session(tmp_path: Path) -> None:
    write_tests(
        tmp_path,
        """
        @evaluation_test(rows(a="yes"))
        def test_first(reply):
            return 1.0

        def test_second(pytestconfig):
            for path in (pytestconfig.rootpath / ".assay").glob("assay.db*"):
                path.unlink()
        """,
    )

    session = run(tmp_path)

    assert session.status == 1
    told = " ".join(session.output.split())
    assert "ERROR: " in told
    assert "the store does not exist" in told
    assert not (tmp_path / ".assay" / "summary.json").exists()
    assert list((tmp_path / ".assay" / "summary.json.parts").iterdir())


def test_the_commands_find_what_a_session_recorded(tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    write_tests(
        tmp_path / "evals",
        """
        @evaluation_test("data.jsonl", on_bad_row="skip")
        def test_file(question):
            raise ValueError("no")
        """,
    )
    (tmp_path / "evals" / "data.jsonl").write_text('{"id": "a", "question": "?"}\n{broken\n')
    (tmp_path / "deep").mkdir()

    process = call_pytest(tmp_path / "deep", "../evals")
    lines = [each.strip() for each in process.output.splitlines()]
    line = next(each for each in lines if each.startswith("transcript: "))
    shown = subprocess.run(
        [sys.executable, "-m", *line.partition("transcript: ")[2].split()],
        cwd=tmp_path / "deep",
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
        timeout=300,
    )

    assert shown.returncode == 0, shown.stderr
    assert "ValueError" in shown.stdout
    assert "1 of 2 rows skipped" in " ".join(process.output.split())
    record = json.loads((tmp_path / ".assay" / "summary.json").read_text())["tests"][0]
    assert record["dataset_fingerprint"] is not None
    assert record["skipped"].startswith("1 of 2 rows skipped")


MANY = """
    AGAIN, FELL = "AGAIN" in os.environ, "FELL" in os.environ

    @pytest.mark.parametrize("number", range(10))
    @evaluation_test(rows(**dict.fromkeys("abcdefg", "yes")))
    def test_noisy(sample, number):
        return float((number == 0 or sample.id < "d") != AGAIN)

    @evaluation_test(
        rows(**dict.fromkeys("abcdefghijklmnopqrst", "yes")),
        groupwise=True, endpoints=[says("yes"), says("no")],
    )
    def test_both(sample, endpoints):
        return [
            float(not (FELL and endpoint == "mock:fixed" and each.id < "p"))
            for each, endpoint in zip(sample, endpoints)
        ]
"""


def test_the_tests_of_a_session_are_judged_together(tmp_path: Path) -> None:
    """All seven samples of ten tests change; in one of them all fall, as happens by chance."""
    write_tests(tmp_path, MANY)
    written = call_pytest(tmp_path, BASELINE, "--assay-update-baseline")
    assert written.status == 0, written.output

    quiet = call_pytest(tmp_path, BASELINE, env={"AGAIN": "1"})
    told = " ".join(quiet.output.split())
    assert quiet.status == 0, quiet.output
    assert (
        "test_noisy[0] -1.000 over 7 pairs, no difference shown among all tests (p = 0.0156, "
        "adjusted 0.1562)" in told
    )
    assert "over 7 pairs, no difference shown (p = 1.0000, adjusted 1.0000)" in told

    fallen = run(tmp_path, BASELINE, "-n", "2", env={"AGAIN": "1", "FELL": "1"})
    told = " ".join(fallen.output.split())
    assert fallen.status == 1, fallen.output
    assert "WORSE test_evals.py::test_both[mock:fixed] -0.750 over 20 pairs, worse (p = " in told
    assert told.count("WORSE") == 1
