"""Environments by address in whole pytest sessions: started, waited for, asked, stopped."""

import sys
from pathlib import Path

import pytest

from evaluation_sessions import Session, call_pytest, write_tests

SUPPORT = Path(__file__).parents[1] / "support"
TOKEN = "tok-5e0b7d2f94c1a386"
"""`assay env serve` demands it; the other servers do not mind it."""

EVALUATIONS = f"""
    SERVER = [{sys.executable!r}, {str(SUPPORT / "served_environments.py")!r}, "{{port}}"]
    URL = "http://127.0.0.1:{{port}}"
    COUNT = {{"id": "1", "name": "count", "arguments": {{}}}}
    AGENT = Endpoint(
        provider="mock",
        model="script",
        extra_params={{
            "by": "turn", "loop": True, "replies": [{{"role": "assistant", "tool_calls": [COUNT]}}]
        }},
    )

    def tasks(*names, **more):
        return [
            {{"id": name, "question": "Count.", "seed": seed, **more}}
            for seed, name in enumerate(names)
        ]

    @evaluation_test(tasks("zero", "one", "two"), endpoint=AGENT, env_url=URL, env_command=SERVER)
    def test_steps(sample, trajectory):
        assert sample.is_trajectory_evaluation()
        return sum(step.base_reward for step in trajectory.evaluation_result.step_outputs)

    @evaluation_test(
        tasks("over_mcp"), repeats=2,
        endpoint=AGENT,
        env_url=URL + "/mcp/",
        env_command=[{sys.executable!r}, "-m", "assay", "env", "serve",
            "served_environments:Counting", "--port", "{{port}}"],
    )
    def test_mcp(sample):
        return 1.0

    @evaluation_test(
        [*tasks("sound"), *tasks("garbage", fault="garbage"), *tasks("hang", fault="hang")],
        endpoint=AGENT, env_url=URL, env_command=SERVER, timeout_s=3,
    )
    def test_faults(sample):
        return 1.0

    @evaluation_test(
        tasks("dead", fault="die"), endpoint=AGENT, env_url=URL, env_command=SERVER
    )
    def test_dead(sample):
        return 1.0

    @evaluation_test(tasks("as_it_is"), env_url=URL, env_command=SERVER)
    def test_no_endpoint(messages):
        return len(messages) == 1

    @evaluation_test(
        tasks("never"), endpoint=AGENT, env_url=URL, env_deadline_s=20,
        env_command=[{sys.executable!r}, "-c", "print('the port is taken'); exit(1)"],
    )
    def test_cannot_start(sample):
        return 1.0
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("environments")
    write_tests(folder, EVALUATIONS)
    return call_pytest(folder, env={"PYTHONPATH": str(SUPPORT), "ASSAY_ENV_TOKEN": TOKEN})


def test_a_server_that_demands_the_token_of_the_variable_is_sent_it(session: Session) -> None:
    assert session.outcomes["test_mcp"] == "passed", session.output
    assert TOKEN not in session.output
    for path in (session.folder / ".assay").iterdir():
        assert TOKEN.encode() not in path.read_bytes(), path


def test_what_can_pass_passes(session: Session) -> None:
    passed = {name for name, found in session.outcomes.items() if found == "passed"}

    assert passed == {"test_steps", "test_mcp", "test_no_endpoint"}, session.output


@pytest.mark.parametrize("test", ["test_steps", "test_mcp"])
def test_each_sample_has_a_session_of_its_own_with_its_own_seed(
    session: Session, test: str
) -> None:
    for sample in session.rows(f"::{test}"):
        assert sample.is_trajectory_evaluation()
        assert sample.score is not None
        assert sample.score.step_outputs is not None
        steps = sample.score.step_outputs
        assert [step.base_reward for step in steps] == [0.25] * 10
        told = [step.control_plane_info for step in steps]
        seeds = {info["seed"] for info in told if info is not None}
        # In both of two repeats.
        assert seeds == {sample["seed"]}
        assert steps[-1].terminated


def test_the_trajectory_tells_duration_steps_and_why_it_ended(session: Session) -> None:
    sample = session.rows("::test_steps")[0]

    assert sample.reward == 2.5
    assert sample.score is not None
    info = sample.score.trajectory_info
    assert info is not None
    assert info["steps"] == 10
    assert info["duration"] >= 0
    assert info["termination_reason"] == "environment"
    assert sample.trajectory is not None
    assert sample.trajectory.session["kind"] == "own"
    assert sample.trajectory.session["seed"] == 0
    assert sample.trajectory.actions == ["count({})"] * 10


def test_a_fault_makes_the_sample_invalid_and_keeps_its_steps(session: Session) -> None:
    found = {each.id: each for each in session.rows("::test_faults")}
    found |= {each.id: each for each in session.rows("::test_dead")}

    assert found["sound"].reward == 1.0
    for name in ("garbage", "hang", "dead"):
        sample = found[name]
        assert sample.reward is None
        assert sample.failure is not None
        assert sample.failure.boundary == "environment", name
        assert sample.trajectory is not None
        assert len(sample.trajectory.messages) > 10
        own = sample.trajectory.evaluation_result
        assert own is not None
        assert [step.base_reward for step in own.step_outputs or []] == [0.25] * 5


def test_a_server_that_cannot_start_shows_the_end_of_its_log(session: Session) -> None:
    assert session.tests["test_cannot_start"]["results"] == 0
    assert "exited with status 1 before it was ready" in session.output
    assert "| the port is taken" in session.output
