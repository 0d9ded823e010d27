"""MCP servers that break, hang or contradict themselves: a fault, never a reward of zero."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from assay.agents import RolloutFailed, run_agent
from assay.environments.remote.http_client import ConnectionFailed, EnvironmentClient, TimedOut
from assay.environments.remote.mcp import McpEnvironment
from assay.errors import EnvironmentFault
from assay.types import Boundary
from make import asked, called, said
from mcp_play import PROGRAM, RIGHT, at, opened, seen
from scripted import Scripted
from started import Started


@pytest.fixture(scope="module")
def process() -> Iterator[Started]:
    with Started(PROGRAM) as started:
        yield started


@pytest.fixture
def server(process: Started) -> Started:
    process.ask("/behave", {})
    return process


def test_a_server_that_does_not_list_its_tools_is_a_fault(server: Started) -> None:
    error = {"code": -32601, "message": "no tools"}
    refusal = json.dumps({"jsonrpc": "2.0", "id": None, "error": error})
    server.ask("/behave", {"place": "list", "fault": refusal})

    with pytest.raises(EnvironmentFault, match="refused to list its tools: no tools"):
        at(server, opened)


def test_a_control_plane_that_vanishes_between_episodes_is_a_fault(server: Started) -> None:
    async def play(link: EnvironmentClient) -> None:
        await seen(link, 1)
        await asyncio.to_thread(server.ask, "/behave", {"control": False})
        await opened(link, 1)

    with pytest.raises(EnvironmentFault, match="the control plane has disappeared"):
        at(server, play)


FAULTS = {
    "reward 500": ("reward", "500", "/control/reward cannot be read: HTTP 500"),
    "reward garbage": ("reward", "garbage", "not JSON"),
    "reward list": ("reward", "[1]", "/control/reward is not an object"),
    "reward missing": ("reward", "{}", "`reward` is missing"),
    "reward text": ("reward", '{"reward": "1.0"}', "not a finite number"),
    "reward true": ("reward", '{"reward": true}', "not a finite number"),
    "reward NaN": ("reward", '{"reward": NaN}', "not JSON"),
    "reward infinite": ("reward", '{"reward": 1e999}', "not a finite number"),
    "reward vast": ("reward", '{"reward": 1' + "0" * 400 + "}", "not a finite number"),
    "reward of another step": ("reward", '{"reward": 1, "step_count": 9}', "between two requests"),
    "status 500": ("status", "500", "/control/status cannot be read: HTTP 500"),
    "status garbage": ("status", "garbage", "not JSON"),
    "status missing": ("status", "{}", "`terminated` is None"),
    "status count": ("status", '{"terminated": false, "step_count": -1}', "not a count"),
    "status fell": ("status", '{"terminated": false, "step_count": 0}', "fell to 0"),
    "two steps, no total": (
        "status",
        '{"terminated": false, "step_count": 4}',
        "the step count changed to 2 between",
    ),
    "tool 500": ("tool", "500", "HTTP 500"),
    "tool garbage": ("tool", "garbage", "not JSON-RPC"),
    "tool of another": ("tool", '{"jsonrpc": "2.0", "id": 99, "result": {}}', "not JSON-RPC"),
    "tool broke": (
        "tool",
        '{"jsonrpc": "2.0", "id": 0, "error": {"code": -32603, "message": "the floor gave way"}}',
        "the floor gave way",
    ),
    "tool asks back": ("tool", "ASKS", "must not ask the client for input"),
}


@pytest.mark.parametrize(("place", "fault", "words"), FAULTS.values(), ids=FAULTS)
def test_what_cannot_be_read_breaks_the_rollout_and_is_never_a_reward_of_zero(
    server: Started, place: str, fault: str, words: str
) -> None:
    if fault == "ASKS":
        # The sixth request of this episode is its second move.
        answer = {"jsonrpc": "2.0", "id": 4, "result": {"resultType": "input_required"}}
        fault = json.dumps(answer)
    at_step = 2 if place in ("reward", "status") else 1
    server.ask("/behave", {"place": place, "fault": fault, "at": at_step})
    client = Scripted(RIGHT, RIGHT)

    with pytest.raises(RolloutFailed) as failed:
        at(server, lambda link: run_agent(client, McpEnvironment(link), [asked("Go.")]))

    assert failed.value.boundary is Boundary.ENVIRONMENT
    assert isinstance(failed.value.__cause__, EnvironmentFault)
    assert words in str(failed.value)
    trajectory = failed.value.trajectory
    result = trajectory.evaluation_result
    assert trajectory.steps == 1
    assert trajectory.termination_reason == "error"
    assert result is not None
    assert not result.is_score_valid
    assert result.score is None
    assert [step.base_reward for step in result.step_outputs or ()] == [0.25]


@pytest.mark.parametrize("counts", [True, False])
def test_a_null_between_known_rewards_makes_the_total_unknown(
    server: Started, counts: bool
) -> None:
    server.ask(
        "/behave",
        {"place": "reward", "fault": '{"reward": null}', "at": 2, "times": 1, "counts": counts},
    )
    client = Scripted(RIGHT, RIGHT, RIGHT)

    trajectory = at(server, lambda link: run_agent(client, McpEnvironment(link), [asked("Go.")]))

    result = trajectory.evaluation_result
    assert result is not None
    assert (result.score, result.is_score_valid) == (None, False)
    assert [step.base_reward for step in result.step_outputs or ()] == [0.25, None, 1.0]
    assert "the reward of step 1 is unknown" in (result.error or "")


def test_a_null_among_the_calls_of_one_message_makes_their_reward_unknown(server: Started) -> None:
    server.ask("/behave", {"place": "reward", "fault": '{"reward": null}', "at": 2, "times": 1})
    twice = said(
        None, called("move", "c1", direction="right"), called("move", "c2", direction="left")
    )

    async def play(link: EnvironmentClient) -> Any:
        environment, _ = await opened(link)
        return await environment.step(twice)

    step = at(server, play)

    assert (step.reward, step.acted) == (None, True)


def test_a_null_among_the_calls_of_the_first_message_makes_the_total_unknown(
    server: Started,
) -> None:
    server.ask("/behave", {"place": "reward", "fault": '{"reward": null}', "at": 2, "times": 1})
    twice = said(
        None, called("move", "c1", direction="right"), called("move", "c2", direction="right")
    )
    client = Scripted(twice, RIGHT)

    trajectory = at(server, lambda link: run_agent(client, McpEnvironment(link), [asked("Go.")]))

    result = trajectory.evaluation_result
    assert result is not None
    assert (result.score, result.is_score_valid) == (None, False)
    assert [step.base_reward for step in result.step_outputs or ()] == [None, 1.0]


def test_a_total_that_is_gone_when_the_agent_leaves_is_a_fault(server: Started) -> None:
    gone = '{"terminated": false, "step_count": 1, "total_reward": null}'

    async def play(link: EnvironmentClient) -> None:
        environment, _ = await opened(link)
        await environment.step(RIGHT)
        server.ask("/behave", {"place": "status", "fault": gone})
        await environment.step(said("Enough."))

    with pytest.raises(EnvironmentFault, match="`total_reward` changed from a number to null"):
        at(server, play)


def test_several_steps_of_which_only_the_last_is_told_are_a_fault(server: Started) -> None:
    leap = '{"terminated": false, "step_count": 4}'
    server.ask("/behave", {"place": "status", "fault": leap, "at": 2, "counts": False})

    async def play(link: EnvironmentClient) -> None:
        environment, _ = await opened(link)
        await environment.step(RIGHT)
        await environment.step(RIGHT)

    with pytest.raises(
        EnvironmentFault, match="took 4 steps, and the server reports only the last"
    ):
        at(server, play)


@pytest.mark.parametrize("fault", ["500", "garbage", "[]"])
def test_info_that_cannot_be_read_is_told_and_breaks_nothing(server: Started, fault: str) -> None:
    server.ask("/behave", {"place": "info", "fault": fault})

    async def play(link: EnvironmentClient) -> Any:
        environment, _ = await opened(link)
        return await environment.step(RIGHT)

    step = at(server, play)

    assert step.reward == 0.25
    assert step.info["info_error"]


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        ("reset_session", "500"),
        ("initial_state", "500"),
        ("initial_state", "garbage"),
        ("status", "500"),
        ("status", "garbage"),
        ("initialize", "500"),
        ("initialize", "garbage"),
        ("initialize", "[]"),
    ],
)
def test_an_episode_that_cannot_begin_is_a_fault(server: Started, place: str, fault: str) -> None:
    server.ask("/behave", {"place": place, "fault": fault})

    with pytest.raises(EnvironmentFault):
        at(server, lambda link: opened(link, 1))


def test_a_session_that_is_not_fresh_is_refused(server: Started) -> None:
    stale = '{"terminated": false, "step_count": 2}'
    server.ask("/behave", {"place": "status", "fault": stale})

    with pytest.raises(EnvironmentFault, match="already has 2 steps"):
        at(server, lambda link: opened(link, 1))


@pytest.mark.parametrize("place", ["tool", "reward", "status"])
def test_a_server_that_hangs_is_left_after_the_timeout(server: Started, place: str) -> None:
    at_step = 0 if place == "tool" else 1
    server.ask("/behave", {"place": place, "fault": "hang", "at": at_step})

    with pytest.raises(RolloutFailed) as failed:
        at(server, lambda link: run_agent(Scripted(RIGHT), McpEnvironment(link), []), timeout_s=1.0)

    assert isinstance(failed.value.__cause__, TimedOut)
    assert "within 1 s" in str(failed.value)


def test_a_stream_that_ends_before_the_answer_is_a_fault(server: Started) -> None:
    server.ask("/behave", {"answers": "cut"})

    with pytest.raises(ConnectionFailed, match="ended before the answer to `tools/list`"):
        at(server, lambda link: opened(link, 1))


def test_a_server_that_dies_keeps_the_steps_so_far() -> None:
    with Started(PROGRAM) as mortal:
        mortal.ask("/behave", {"place": "tool", "fault": "die", "at": 2})
        client = Scripted(RIGHT, RIGHT, RIGHT)

        with pytest.raises(RolloutFailed) as failed:
            at(mortal, lambda link: run_agent(client, McpEnvironment(link), []))

    assert isinstance(failed.value.__cause__, ConnectionFailed)
    result = failed.value.trajectory.evaluation_result
    assert failed.value.trajectory.steps == 2
    assert result is not None
    assert result.reward is None
    assert [step.base_reward for step in result.step_outputs or ()] == [0.25, 0.25]
    assert failed.value.trajectory.model_extra is not None
    assert "close_error" in failed.value.trajectory.model_extra


def test_the_era_can_be_named_and_a_wrong_one_is_refused(server: Started) -> None:
    async def play(link: EnvironmentClient) -> None:
        await McpEnvironment(link, era="modern").open()

    with pytest.raises(EnvironmentFault, match="modern at /mcp"):
        at(server, play)


def test_a_step_after_the_end_is_a_fault(server: Started) -> None:
    async def play(link: EnvironmentClient) -> None:
        environment, _ = await opened(link)
        await environment.close()
        await environment.step(RIGHT)

    with pytest.raises(EnvironmentFault, match="is not open"):
        at(server, play)
