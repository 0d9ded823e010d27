"""Options of single tests in whole sessions: bounds, tolerance, lists of samples, totals."""

from pathlib import Path

import pytest

from evaluation_sessions import Session, call_pytest, write_tests

EVALUATIONS = """
    SCORE = float(os.environ.get("SCORE", "1"))
    TEN = rows(**dict.fromkeys("abcdefghij", "yes"))

    @evaluation_test(TEN, tolerance=0.5)
    def test_tolerant(reply):
        return SCORE

    @evaluation_test(TEN)
    def test_strict(reply):
        return SCORE

    @evaluation_test(rows(a="-1", b="1"), bounds=(-1, 1))
    def test_bounds(reply):
        return float(reply)

    @evaluation_test(rows(a="-1", b="1"), bounds=(-1, 1), batch=True)
    def test_bounds_of_a_batch(rows: list[Sample]):
        assert [type(row).__name__ for row in rows] == ["Sample", "Sample"]
        return [float(row["reply"]) for row in rows]

    @evaluation_test(TEN, groupwise=True)
    def test_any_list_of_samples(answers: "list[Sample]", samples):
        assert answers == samples
        return [1.0 for _ in answers]

    @evaluation_test(
        [{"question": "4", "files": {"ready.txt": ""}}],
        agent="cmd:sh -c 'cat > out.txt'",
        setup="test -f ready.txt",
        check="grep -qx {question} out.txt",
    )
    def test_checked(sample: Sample):
        assert sample.trajectory.evaluation_result.reason == "the check passed"
        return sample.trajectory.evaluation_result

    @evaluation_test(TEN, endpoint=says("yes"))
    def test_model(response):
        return response == "yes"
"""
BASELINE = "--assay-baseline=base.json"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("options")
    write_tests(folder, EVALUATIONS)
    session = call_pytest(folder, BASELINE, "--assay-update-baseline")
    assert session.status == 0, session.output
    return session


def test_bounds_give_an_interval_on_their_scale(first: Session) -> None:
    for test in ("test_bounds", "test_bounds_of_a_batch"):
        low, high = first.tests[test]["interval"]
        assert first.tests[test]["score"] == 0.0
        assert -1 < low < -0.5
        assert 0.5 < high < 1


def test_totals_are_sums_over_what_is_known(first: Session) -> None:
    summary, model = first.summary, first.tests["test_model"]

    assert model["input_tokens"] is not None
    assert summary["input_tokens"] == model["input_tokens"]
    assert summary["output_tokens"] == model["output_tokens"]
    assert summary["unknown"]["input_tokens"] == 0
    # The price of the mock is not known: that is counted, for its ten results only.
    assert (summary["cost_usd"] is None) == (summary["unknown"]["cost_usd"] == 10)


def test_a_test_may_have_a_tolerance_of_its_own(first: Session) -> None:
    fallen = call_pytest(first.folder, BASELINE, "-k", "tolerant or strict", env={"SCORE": "0.6"})

    assert fallen.outcomes == {"test_tolerant": "passed", "test_strict": "failure"}
    assert fallen.tests["test_tolerant"]["tolerance"] == 0.5
    told = " ".join(fallen.output.split())
    assert "-0.400 over 10 pairs, within the tolerance of 0.500" in told
    general = call_pytest(
        first.folder, BASELINE, "--assay-tolerance=0.1", "-k", "tolerant", env={"SCORE": "0.6"}
    )
    assert general.status == 0, general.output


def test_other_bounds_than_in_the_baseline_cannot_be_compared(first: Session) -> None:
    changed = EVALUATIONS.replace("bounds=(-1, 1))", "bounds=(-2, 2))")
    write_tests(first.folder, changed, "test_evals.py")

    session = call_pytest(first.folder, BASELINE, "-k", "test_bounds and not batch")

    assert session.outcomes == {"test_bounds": "failure"}
    reason = session.tests["test_bounds"]["reason"]
    assert reason.startswith("the runs are scored on different scales: -1.000 to 1.000 and -2.000")
    assert reason.endswith("write a new baseline with --assay-update-baseline")


def test_a_misspelt_parameter_is_found_before_the_first_call(tmp_path: Path) -> None:
    write_tests(
        tmp_path,
        """
        @evaluation_test(rows(a="yes", b="no"))
        def test_misspelt(replly, ground_truth):
            open("called", "w").close()

        @evaluation_test(rows(a="yes", b="no"), batch=True)
        def test_misspelt_in_a_batch(replly):
            open("called", "w").close()
        """,
    )

    session = call_pytest(tmp_path)

    assert session.status == 1
    for test, found in session.tests.items():
        assert found["reason"].startswith(f"{test}: sample 'a' has no field 'replly'")
        assert found["results"] == 0
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--assay-max-samples=0", "--assay-max-samples is 0, not a number of at least 1"),
        ("--assay-tolerance=0", "--assay-tolerance and --assay-update-baseline need"),
        ("--assay-max-cost-usd=0", "--assay-max-cost-usd=0.0 is not a number above 0"),
    ],
)
def test_a_zero_is_checked_before_anything_runs(option: str, problem: str, tmp_path: Path) -> None:
    write_tests(tmp_path, EVALUATIONS)

    session = call_pytest(tmp_path, option)

    assert session.status == pytest.ExitCode.USAGE_ERROR
    assert problem in session.output
    assert not (tmp_path / ".assay").exists()
