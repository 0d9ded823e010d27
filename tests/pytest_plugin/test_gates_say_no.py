"""A gate that always passes is noticed: the same session, with one gate broken, ends otherwise.

Each of these sessions must fail, and does so for one reason only. With the gate behind that
reason taken out it no longer does. So a change that disables a gate fails the first test here.
"""

from collections.abc import Callable

import pytest

from evaluation_sessions import Session, call_pytest, finished, start, write_tests

EVALUATIONS = """
    @evaluation_test(rows(a="yes", b="no"), threshold=1)
    def test_threshold(reply, ground_truth):
        return reply == ground_truth

    @evaluation_test(rows(a="yes", b="no"))
    def test_invalid(reply):
        return 1.0 if reply == "yes" else None

    @evaluation_test(rows(a="yes", b="no"))
    def test_asserted(reply):
        assert reply == "yes"
        return 1.0

    @evaluation_test(rows(**{f"s{n}": "yes" for n in range(10)}))
    def test_fell(reply):
        return float("FELL" not in os.environ)
"""
BREAKING: dict[str, tuple[str, Callable[..., object]]] = {
    "threshold": ("verdict.misses", lambda verdict: False),
    "invalid": ("verdict.has_invalid", lambda record: False),
    "assertion": ("verdict.fails_by_assertion", lambda assertions, rule: False),
    "significance": ("baseline.is_significant", lambda comparison: False),
    "tolerance": ("baseline.is_beyond", lambda difference, tolerance: False),
    "missing baseline": ("session_settings._check_baseline", lambda baseline, settings: None),
}
"""The function behind each gate, and one that takes the gate out."""

USAGE, FAILED, PASSED = 4, 1, 0
GATES = {
    "threshold": (("-k", "threshold"), FAILED, PASSED),
    "invalid": (("-k", "invalid"), FAILED, PASSED),
    "assertion": (("-k", "asserted"), FAILED, PASSED),
    "significance": (("-k", "fell", "--assay-baseline=base.json"), FAILED, PASSED),
    "tolerance": (
        ("-k", "fell", "--assay-baseline=base.json", "--assay-tolerance=0.5"),
        FAILED,
        PASSED,
    ),
    # A second check, at the end of the session, still says no.
    "missing baseline": (("-k", "fell", "--assay-baseline=gone.json"), USAGE, FAILED),
}
"""What is run to meet a gate, how it ends, and how it ends without the gate."""


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Session]:
    """All sessions, by gate and by whether it was broken, in one folder.

    Those with every gate run at once, as processes.
    """
    folder = tmp_path_factory.mktemp("gates")
    write_tests(folder, EVALUATIONS)
    written = ("--assay-baseline=base.json", "--assay-update-baseline")
    made = call_pytest(folder, "-k", "fell", *written)
    assert made.status == 0, made.output

    def choose(gate: str, *, broken: bool) -> tuple[str, ...]:
        return (*GATES[gate][0], f"--assay-summary=out/{gate.replace(' ', '-')}-{broken}.json")

    fell = {"FELL": "1"}
    running = {gate: start(folder, *choose(gate, broken=False), env=fell) for gate in GATES}
    ended = {(gate, False): finished(each, folder) for gate, each in running.items()}
    for gate, (name, replacement) in BREAKING.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"assay.pytest_plugin.{name}", replacement)
            ended[gate, True] = call_pytest(folder, *choose(gate, broken=True), env=fell)
    return ended


@pytest.mark.parametrize("gate", GATES)
def test_the_gate_says_no(gate: str, sessions: dict[tuple[str, bool], Session]) -> None:
    assert sessions[gate, False].status == GATES[gate][1], sessions[gate, False].output


@pytest.mark.parametrize("gate", GATES)
def test_without_the_gate_nothing_would(
    gate: str, sessions: dict[tuple[str, bool], Session]
) -> None:
    assert sessions[gate, True].status == GATES[gate][2], sessions[gate, True].output


def test_sessions_in_one_folder_each_have_their_own_summary(
    sessions: dict[tuple[str, bool], Session],
) -> None:
    folder = sessions["threshold", False].folder
    written = {path.name for path in (folder / "out").glob("*.json")}

    assert written == {
        f"{gate.replace(' ', '-')}-{broken}.json"
        for gate in GATES
        for broken in (False, True)
        if (gate, broken) != ("missing baseline", False)
    }
    assert not list((folder / "out").glob("*.parts"))


def test_a_regression_is_told_with_its_samples(
    sessions: dict[tuple[str, bool], Session],
) -> None:
    output = sessions["significance", False].output

    assert "WORSE   test_evals.py::test_fell" in output
    assert "-1.000 over 10 pairs, worse" in output
    assert "regressions (10)" in output
    assert "1 failed" in output
