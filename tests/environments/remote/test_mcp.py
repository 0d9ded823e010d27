"""`McpEnvironment` against a server process with a control plane."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

import control_plane_server
from assay.agents import RolloutFailed, run_agent
from assay.environments import Environment
from assay.environments.remote.http_client import EnvironmentClient, InvalidResponse
from assay.environments.remote.mcp import McpEnvironment
from assay.types import Message
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


def test_an_episode_gives_rewards_step_by_step_and_ends_by_the_control_plane(
    server: Started,
) -> None:
    client = Scripted(RIGHT, RIGHT, RIGHT)

    trajectory = at(
        server, lambda link: run_agent(client, McpEnvironment(link), [asked("Go.")], seed=3)
    )

    result = trajectory.evaluation_result
    assert result is not None
    assert result.score == 1.5
    assert result.is_score_valid
    assert [step.base_reward for step in result.step_outputs or ()] == [0.25, 0.25, 1.0]
    assert (trajectory.termination_reason, trajectory.terminated) == ("environment", True)
    last = (result.step_outputs or ())[-1].control_plane_info
    assert last is not None
    assert last["wall"] == "blue"
    assert last["step_count"] == 3
    assert '"wall"' not in str([message.text for message in trajectory.messages])
    session_id = server.ask("/journal")["made"][-1][0]
    assert trajectory.session == {
        "environment": "McpEnvironment",
        "seed": 3,
        "kind": "mcp",
        "base_url": f"{server.url}/mcp",
        "session_id": session_id,
    }
    assert trajectory.actions == ['move({"direction":"right"})'] * 3


def test_tools_are_those_of_the_server(server: Started) -> None:
    async def play(link: EnvironmentClient) -> McpEnvironment:
        environment, _ = await opened(link)
        return environment

    tools = at(server, play).tools

    assert [tool.name for tool in tools] == ["move", "look", "jump"]
    assert tools[0].description == "Walk through the corridor."
    assert tools[0].parameters["required"] == ["direction"]


@pytest.mark.parametrize("seed", [0, 1, 42, 2**40])
def test_the_seed_is_applied_before_the_first_observation(server: Started, seed: int) -> None:
    once = at(server, lambda link: seen(link, seed))
    again = at(server, lambda link: seen(link, seed))

    assert once == again
    assert once[0]["number"] == control_plane_server.Corridor(seed, "").number
    # The server made one without the seed first, as it does on first contact: nobody saw it.
    made = [each[1:3] for each in server.ask("/journal")["made"]]
    assert made == [[None, "initial_state"], [seed, "reset_session"]] * 2


def test_without_a_seed_nothing_is_reset(server: Started) -> None:
    at(server, lambda link: seen(link, None))

    assert ["POST", "/control/reset_session"] not in server.ask("/journal")["asked"]


def test_equal_samples_with_equal_seeds_have_sessions_of_their_own(server: Started) -> None:
    async def play(link: EnvironmentClient) -> list[list[Any]]:
        return list(await asyncio.gather(*(seen(link, 7) for _ in range(8))))

    episodes = at(server, play)

    assert all(episode == episodes[0] for episode in episodes)
    assert [state["room"] for state in episodes[0]] == [0, 1, 2]
    assert len({name for name, *_ in server.ask("/journal")["made"]}) == 8


def test_fifty_sessions_at_once_keep_apart(server: Started) -> None:
    async def play(link: EnvironmentClient) -> list[list[Any]]:
        return list(await asyncio.gather(*(seen(link, seed) for seed in range(50))))

    episodes = at(server, play, timeout_s=60.0)

    expected = [control_plane_server.Corridor(seed, "").number for seed in range(50)]
    assert [episode[0]["number"] for episode in episodes] == expected
    assert all(episode[-1]["room"] == 2 for episode in episodes)


def test_an_episode_of_many_steps_uses_one_connection(server: Started) -> None:
    at(server, lambda link: seen(link, 1, moves=2))
    few = server.ask("/journal")
    server.ask("/behave", {})
    back_and_forth = said(
        None, *(called("move", f"c{n}", direction=("right", "left")[n % 2]) for n in range(20))
    )

    async def play(link: EnvironmentClient) -> None:
        environment, _ = await opened(link, 1)
        await environment.step(back_and_forth)
        await environment.close()

    at(server, play)

    many = server.ask("/journal")
    assert few["connections"] == many["connections"] == 1
    # A call, its status and its reward; what the environment says besides once per message.
    assert len(many["asked"]) - len(few["asked"]) == 3 * 20 + 1 - (3 * 2 + 2)


def test_every_call_is_answered_in_order_also_after_the_end(server: Started) -> None:
    calls = [called("move", f"c{n}", direction="right") for n in range(5)]

    async def play(link: EnvironmentClient) -> Any:
        environment, _ = await opened(link)
        return await environment.step(said(None, *calls))

    step = at(server, play)

    assert [reply.tool_call_id for reply in step.replies] == ["c0", "c1", "c2", "c3", "c4"]
    assert [reply.text for reply in step.replies[3:]] == ["The episode is over."] * 2
    assert (step.reward, step.terminated, step.observation["room"]) == (1.5, True, 3)
    called_tools = [each for each in server.ask("/journal")["asked"] if each == ["POST", "/mcp"]]
    assert len(called_tools) == 1 + 2 + 1 + 3  # discover, the handshake, the tools, three calls


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (called("fly"), "unknown tool 'fly'; the tools are ['move', 'look', 'jump']"),
        (called("move", direction="up"), "no direction 'up'"),
        (
            called("move").model_copy(update={"raw_arguments": "{right"}),
            "the arguments of 'move' are not a JSON object",
        ),
    ],
    ids=["no such tool", "bad argument", "not JSON"],
)
def test_a_mistake_is_told_in_words_and_earns_nothing(
    server: Started, call: Any, words: str
) -> None:
    async def play(link: EnvironmentClient) -> Any:
        environment, _ = await opened(link)
        await environment.step(RIGHT)
        return await environment.step(said(None, call))

    step = at(server, play)

    assert step.replies[0].text.startswith("Error")
    assert words in step.replies[0].text
    # The server would say 0.25 again: that is the reward of the step before.
    assert step.reward is None
    assert not step.terminated


def test_a_call_that_takes_no_step_is_not_paid_for_again(server: Started) -> None:
    async def play(link: EnvironmentClient) -> list[float | None]:
        environment, _ = await opened(link)
        actions = [RIGHT, said(None, called("look")), said(None, called("look")), RIGHT]
        return [(await environment.step(action)).reward for action in actions]

    assert at(server, play) == [0.25, None, None, 0.25]


def test_a_call_that_takes_two_steps_is_paid_for_both(server: Started) -> None:
    async def play(link: EnvironmentClient) -> Any:
        environment, _ = await opened(link)
        await environment.step(RIGHT)
        return await environment.step(said(None, called("jump")))

    step = at(server, play)

    assert (step.reward, step.terminated) == (1.25, True)


def test_an_agent_that_leaves_at_once_has_a_measured_zero(server: Started) -> None:
    async def play(link: EnvironmentClient) -> Any:
        environment, _ = await opened(link)
        return await environment.step(said("I would rather not."))

    step = at(server, play)

    assert (step.reward, step.ended_by_agent, step.terminated) == (0.0, True, False)


def test_an_agent_that_stops_does_not_terminate_the_environment(server: Started) -> None:
    client = Scripted(RIGHT, said("Enough."))

    trajectory = at(server, lambda link: run_agent(client, McpEnvironment(link), [asked("Go.")]))

    assert (trajectory.terminated, trajectory.truncated) == (False, False)
    assert (trajectory.termination_reason, trajectory.steps) == ("agent", 1)
    result = trajectory.evaluation_result
    assert result is not None
    assert result.final_control_plane_info is None
    assert [step.terminated for step in result.step_outputs or ()] == [False]
    assert result.reward == 0.25


def test_what_happens_while_the_agent_leaves_is_a_step(server: Started) -> None:
    async def play(link: EnvironmentClient) -> Any:
        environment, _ = await opened(link)
        await environment.step(RIGHT)
        over = '{"terminated": true, "step_count": 2, "total_reward": 1.25}'
        await asyncio.to_thread(server.ask, "/behave", {"place": "status", "fault": over})
        return await environment.step(said("Enough."))

    step = at(server, play)

    assert (step.reward, step.acted, step.terminated) == (1.0, True, True)


def test_a_server_that_counts_no_steps_is_believed(server: Started) -> None:
    server.ask("/behave", {"counts": False})

    async def play(link: EnvironmentClient) -> list[float | None]:
        environment, _ = await opened(link, 5)
        unknown, wrong = said(None, called("fly")), said(None, called("move", direction="up"))
        actions = [RIGHT, unknown, wrong, RIGHT, RIGHT, said("Done.")]
        return [(await environment.step(action)).reward for action in actions]

    # What a failed call earned is not known there: the last reward is not taken for it.
    assert at(server, play) == [0.25, None, None, 0.25, 1.0, None]


@pytest.mark.parametrize("counts", [True, False])
def test_arguments_that_the_server_refuses_are_told_in_words(server: Started, counts: bool) -> None:
    error = {"code": -32602, "message": "direction is required"}
    refusal = json.dumps({"jsonrpc": "2.0", "id": None, "error": error})
    server.ask("/behave", {"place": "tool", "fault": refusal, "at": 1, "counts": counts})

    async def play(link: EnvironmentClient) -> Any:
        environment, _ = await opened(link)
        await environment.step(RIGHT)
        return await environment.step(RIGHT)

    step = at(server, play)

    assert step.replies[0].text == "Error: direction is required"
    assert step.reward is None


def test_closing_what_was_not_opened_does_nothing(server: Started) -> None:
    async def play(link: EnvironmentClient) -> None:
        await McpEnvironment(link).close()

    at(server, play)

    assert server.ask("/journal")["asked"] == []


def test_without_a_control_plane_there_are_tools_and_no_rewards(server: Started) -> None:
    server.ask("/behave", {"control": False})
    client = Scripted(RIGHT, said("Done."))

    trajectory = at(
        server, lambda link: run_agent(client, McpEnvironment(link), [asked("Go.")], seed=3)
    )

    assert trajectory.evaluation_result is None
    assert (trajectory.termination_reason, trajectory.terminated) == ("agent", False)
    # The call was answered; nothing says that the agent's words were a step.
    assert trajectory.steps == 1
    assert [message.role for message in trajectory.messages] == [
        *("user", "assistant", "tool", "assistant")
    ]


@pytest.mark.parametrize("answers", ["json", "sse", "ping"])
def test_answers_come_as_json_or_as_events(server: Started, answers: str) -> None:
    server.ask("/behave", {"answers": answers})

    episode = at(server, lambda link: seen(link, 4))

    assert [state["room"] for state in episode] == [0, 1, 2]


@pytest.mark.parametrize("path", ["", "/mcp", "/mcp/"])
def test_the_endpoint_is_found_below_the_address_and_past_its_slash(
    server: Started, path: str
) -> None:
    server.ask("/behave", {"slash": True})

    episode = at(server, lambda link: seen(link, 4), path=path)

    assert [state["room"] for state in episode] == [0, 1, 2]


def test_the_session_is_closed_at_the_end_and_after_a_failure(server: Started) -> None:
    at(server, lambda link: seen(link, 1))
    server.ask("/behave", {"place": "reward", "fault": "500"})
    with pytest.raises(RolloutFailed):
        at(server, lambda link: run_agent(Scripted(RIGHT), McpEnvironment(link), []))

    journal = server.ask("/journal")

    assert journal["hung_up"] == [journal["made"][0][0]]


def test_a_server_that_cannot_close_a_session_does_not_undo_the_episode(server: Started) -> None:
    server.ask("/behave", {"place": "delete", "fault": "500"})
    client = Scripted(RIGHT, said("Done."))

    trajectory = at(server, lambda link: run_agent(client, McpEnvironment(link), []))

    assert trajectory.evaluation_result is not None
    assert trajectory.evaluation_result.score == 0.25
    assert "the server did not close the session" in str(trajectory.model_extra)


def test_a_full_server_is_waited_for(server: Started) -> None:
    server.ask("/behave", {"place": "initialize", "fault": "full", "times": 3})
    assert at(server, lambda link: seen(link, 4))[-1]["room"] == 2

    server.ask("/behave", {"place": "initial_state", "fault": "full", "times": 3})
    assert at(server, lambda link: seen(link, 4))[-1]["room"] == 2


def test_rewards_that_come_only_at_the_end_are_known(server: Started) -> None:
    server.ask("/behave", {"place": "reward", "fault": '{"reward": null}', "times": 2})
    client = Scripted(RIGHT, RIGHT, RIGHT)

    trajectory = at(server, lambda link: run_agent(client, McpEnvironment(link), [asked("Go.")]))

    result = trajectory.evaluation_result
    assert result is not None
    assert result.reward == 1.0


@pytest.mark.parametrize("counts", [True, False])
def test_mistakes_and_looks_between_rewards_leave_the_total_known(
    server: Started, counts: bool
) -> None:
    server.ask("/behave", {"counts": counts})
    mistake = said(None, called("fly"))
    client = Scripted(RIGHT, mistake, RIGHT, mistake, said("Enough."))

    trajectory = at(server, lambda link: run_agent(client, McpEnvironment(link), [asked("Go.")]))

    result = trajectory.evaluation_result
    assert result is not None
    assert result.reward == 0.5


def test_the_task_and_the_episode_are_told_in_the_handshake(server: Started) -> None:
    async def play(link: EnvironmentClient) -> None:
        environment = McpEnvironment(link, {"map": "4x4"})
        await environment.open(seed=0)
        await environment.close()

    at(server, play)

    journal = server.ask("/journal")
    (extra,) = journal["hellos"]
    assert (extra["seed"], extra["config"]) == (0, {"map": "4x4"})
    assert extra["session_id"] == journal["made"][0][0]


def test_it_is_an_environment(server: Started) -> None:
    async def play(link: EnvironmentClient) -> Environment:
        return McpEnvironment(link)

    assert isinstance(at(server, play), Environment)


def test_images_and_links_in_a_result_are_kept() -> None:
    link: Any = type("L", (), {"where": "here"})()
    environment = McpEnvironment(link)
    blocks = [
        {"type": "text", "text": "Look:"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "a:b", "text": "words"}},
        {"type": "resource_link", "uri": "a:b"},
    ]

    content = environment._convert_content({"content": blocks})
    message = Message(role="tool", content=content)

    assert message.text == 'Look:words{"type":"resource_link","uri":"a:b"}'
    assert content[1]["image_url"]["url"] == "data:image/png;base64,AAAA"
    assert environment._convert_content({"content": [], "structuredContent": {"a": 1}}) == '{"a":1}'
    with pytest.raises(InvalidResponse, match="no list `content`"):
        environment._convert_content({"content": "text"})
