"""A regression against the baseline is a failed test, and every file says so."""

from pathlib import Path

import pytest

from evaluation_sessions import Session, call_pytest, run, write_tests

EVALUATIONS = """
    FELL = "FELL" in os.environ
    TEN = rows(**dict.fromkeys("abcdefghij", "yes"))

    @evaluation_test(TEN)
    def test_fell(reply):
        return float(not FELL)

    @evaluation_test(TEN)
    def test_kept(reply):
        return 1.0

    @evaluation_test(TEN, groupwise=True, endpoints=[says("yes"), says("no")])
    def test_one_of_two(sample, endpoints):
        return [float(not (FELL and name.endswith("#2"))) for name in endpoints]

    @pytest.mark.xfail(reason="known to be bad")
    @evaluation_test(TEN, threshold=1)
    def test_expected(reply):
        return 0.0

    @pytest.mark.xfail(reason="may get worse")
    @evaluation_test(TEN)
    def test_expected_to_fall(reply):
        return float(not FELL)

    def test_plain():
        pass
"""
OUTCOMES = {
    "test_fell": "failure",
    "test_kept": "passed",
    "test_one_of_two": "failure",
    "test_expected": "skipped",
    "test_expected_to_fall": "skipped",
    "test_plain": "passed",
}
BASELINE = "--assay-baseline=base.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("regression")
    write_tests(folder, EVALUATIONS)
    written = call_pytest(folder, BASELINE, "--assay-update-baseline")
    assert written.status == 0, written.output
    return folder


@pytest.fixture(scope="module", params=[(), ("-n", "2")], ids=["one process", "workers"])
def session(request: pytest.FixtureRequest, folder: Path) -> Session:
    page = folder / "step.md"
    page.unlink(missing_ok=True)
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page)}
    return run(folder, BASELINE, "-rA", *request.param, env={"FELL": "1", **github})


def test_a_regressed_test_fails_once_in_every_place(session: Session) -> None:
    assert session.status == 1, session.output
    assert session.outcomes == OUTCOMES
    assert len(session._cases()) == len(OUTCOMES)
    assert "2 failed, 2 passed, 2 xfailed" in session.output.splitlines()[-1]
    assert "FAILED test_evals.py::test_fell - Failed: " in session.output
    assert "PASSED test_evals.py::test_fell" not in session.output
    assert session.summary["passed"] is False
    failed = {name for name, test in session.tests.items() if not test["passed"]}
    assert failed == {"test_fell", "test_one_of_two[mock:fixed#2]"}
    errors = [line for line in session.output.splitlines() if line.startswith("::error ")]
    assert len(errors) == 2
    assert (session.folder / "step.md").read_text("utf-8").count("❌") == 2


def test_its_report_tells_the_change_and_the_samples(session: Session) -> None:
    report = session.output.partition("= FAILURES =")[2].partition("= evaluations =")[0]

    assert "worse than the baseline: -1.000 over 10 pairs, worse (p = 0.0020" in report
    assert "regressions (10)" in report
    reason = session.tests["test_fell"]["reason"]
    assert reason.startswith("worse than the baseline: -1.000 over 10 pairs")


def test_each_test_has_one_verdict_in_the_section_of_evaluations(session: Session) -> None:
    section = session.output.partition("= evaluations =")[2]
    verdicts = [
        line.split()
        for line in section.splitlines()
        if line[:8].strip() and "test_evals.py::" in line[8:24]
    ]

    assert verdicts == [
        ["xfailed", "test_evals.py::test_expected"],
        ["xfailed", "test_evals.py::test_expected_to_fall"],
        ["WORSE", "test_evals.py::test_fell"],
        ["passed", "test_evals.py::test_kept"],
        ["WORSE", "test_evals.py::test_one_of_two[mock:fixed#2]"],
        ["passed", "test_evals.py::test_one_of_two[mock:fixed]"],
    ]


def test_the_samples_of_a_regression_are_listed_by_their_questions(tmp_path: Path) -> None:
    write_tests(
        tmp_path,
        """
        FELL = "FELL" in os.environ

        @evaluation_test([{"question": f"What is {n} + {n}?"} for n in range(12 - FELL)])
        def test_sums(question):
            return float(not FELL)
        """,
    )
    assert call_pytest(tmp_path, BASELINE, "--assay-update-baseline").status == 0

    lines = call_pytest(tmp_path, BASELINE, env={"FELL": "1"}).output.splitlines()

    changed = {line.split("?")[0].strip() for line in lines if "1.000 ->     0.000" in line}
    assert changed == {f"What is {n} + {n}" for n in range(11)}
    # The one that is missing in this session is known by the baseline only.
    assert any(line.endswith(" | What is 11 + 11?") for line in lines), lines


def test_an_expected_failure_is_no_error_anywhere(folder: Path) -> None:
    env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(folder / "xfail.md")}

    session = call_pytest(folder, "-k", "test_expected and not fall", env=env)

    assert session.status == 0, session.output
    assert session.summary["passed"] is True
    (found,) = session.tests.values()
    assert (found["outcome"], found["xfail"]) == ("xfailed", "known to be bad")
    assert found["reason"] == "mean 0.000 is below 1.000"
    assert "::error" not in session.output
    assert "❌" not in (folder / "xfail.md").read_text("utf-8")


def test_what_pytest_fails_is_not_passed_in_the_summary(tmp_path: Path) -> None:
    write_tests(
        tmp_path,
        """
        @pytest.fixture
        def leaks():
            yield
            raise OSError("cannot close")

        @evaluation_test(rows(a="yes"))
        def test_teardown(reply, leaks):
            return 1.0

        @pytest.mark.xfail(strict=True, reason="cannot pass")
        @evaluation_test(rows(a="yes"))
        def test_strict(reply):
            return 1.0
        """,
    )

    session = call_pytest(tmp_path)

    assert session.status == 1
    assert session.outcomes == {"test_teardown": "error", "test_strict": "failure"}
    reasons = {name: test["reason"] for name, test in session.tests.items() if not test["passed"]}
    assert reasons["test_strict"] == "[XPASS(strict)] cannot pass"
    assert reasons["test_teardown"].startswith("teardown: ")


def test_a_test_that_another_plugin_ran_is_failed_on_top(folder: Path) -> None:
    (folder / "own_protocol.py").write_text(
        "import pytest\n"
        "from _pytest.runner import runtestprotocol\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_runtest_protocol(item, nextitem):\n"
        "    runtestprotocol(item, nextitem=nextitem)\n"
        "    return True\n"
    )

    options = ("-p", "own_protocol", "-k", "test_fell", "-rA")
    session = call_pytest(folder, BASELINE, *options, env={"FELL": "1", "PYTHONPATH": str(folder)})

    assert session.status == 1
    assert "FAILED test_evals.py::test_fell" in session.output
    assert "failure" in {
        case.find("failure") is not None and "failure" for case in session._cases()
    }


INTERRUPTED = """
    TEN = rows(**dict.fromkeys("abcdefghij", "yes"))

    @evaluation_test(TEN)
    def test_a(reply):
        return float("FELL" not in os.environ)

    @evaluation_test(TEN)
    def test_b(reply):
        if os.environ.get("FELL") == "crash":
            os._exit(3)
        if os.environ.get("FELL") == "interrupt":
            raise KeyboardInterrupt
        return 1.0
"""


def test_pending_reports_survive_whatever_ends_the_session(tmp_path: Path) -> None:
    write_tests(tmp_path, INTERRUPTED)
    assert call_pytest(tmp_path, BASELINE, "--assay-update-baseline").status == 0

    interrupted = call_pytest(tmp_path, BASELINE, env={"FELL": "interrupt"})
    crashed = run(tmp_path, BASELINE, "-n", "1", env={"FELL": "crash"})

    assert interrupted.status == pytest.ExitCode.INTERRUPTED
    assert "FAILED test_evals.py::test_a" in interrupted.output
    assert crashed.status == 1
    assert crashed.outcomes == {"test_a": "failure", "test_b": "error"}
    assert crashed.tests["test_a"]["reason"].startswith("worse than the baseline: -1.000")
