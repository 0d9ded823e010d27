"""`OpenEnvEnvironment` against a server process that speaks its WebSocket, also badly."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer as LocalServer

import openenv_server
from assay.agents import Limits, RolloutFailed, run_agent
from assay.environments import Environment
from assay.environments.remote.http_client import (
    ConnectionFailed,
    EnvironmentClient,
    InvalidResponse,
    TimedOut,
    normalize_server_url,
    open_http_session,
)
from assay.environments.remote.openenv import _SOCKET_SCHEMES, OpenEnvEnvironment, build_route_url
from assay.errors import ConfigError, EnvironmentFault
from assay.types import Boundary
from make import asked, called, said
from scripted import Scripted
from started import Started

Made = TypeVar("Made")

PROGRAM = Path(openenv_server.__file__)
RIGHT = said(None, called("act", direction="right"))


@pytest.fixture(scope="module")
def process() -> Iterator[Started]:
    with Started(PROGRAM) as started:
        yield started


@pytest.fixture
def server(process: Started) -> Started:
    process.ask("/behave", {})
    return process


def at(
    server: Started,
    play: Callable[[EnvironmentClient], Awaitable[Made]],
    *,
    url: str | None = None,
    **options: Any,
) -> Made:
    """What a play over one link comes to."""

    async def run() -> Made:
        async with open_http_session() as http:
            address = normalize_server_url(server.url if url is None else url)
            return await play(EnvironmentClient(address, http, **{"timeout_s": 10.0, **options}))

    return asyncio.run(run())


async def opened(
    link: EnvironmentClient, seed: int | None = None
) -> tuple[OpenEnvEnvironment, dict[str, Any]]:
    environment = OpenEnvEnvironment(link)
    (first,) = await environment.open(seed=seed)
    return environment, json.loads(first.text)


async def seen(link: EnvironmentClient, seed: int | None) -> list[Any]:
    environment, first = await opened(link, seed)
    steps = [await environment.step(RIGHT) for _ in range(2)]
    await environment.close()
    return [first, *(step.observation for step in steps)]


def test_an_episode_gives_rewards_and_ends_when_it_is_done(server: Started) -> None:
    client = Scripted(RIGHT, RIGHT, RIGHT)

    trajectory = at(
        server, lambda link: run_agent(client, OpenEnvEnvironment(link), [asked("Go.")], seed=3)
    )

    result = trajectory.evaluation_result
    assert result is not None
    assert [step.base_reward for step in result.step_outputs or ()] == [0.25, 0.25, 1.0]
    assert (trajectory.termination_reason, trajectory.terminated) == ("environment", True)
    assert result.final_control_plane_info == {
        "done": True,
        "reward": True,
        # One `done` stands for both ends: whether the episode was cut short is not known.
        "truncated": None,
        "state": {"step_count": 3},
    }
    assert trajectory.truncated is False
    assert trajectory.session["kind"] == "openenv"
    assert trajectory.session["session_id"]


def test_the_tool_takes_the_action_that_the_server_describes(server: Started) -> None:
    async def play(link: EnvironmentClient) -> OpenEnvEnvironment:
        environment, _ = await opened(link)
        await environment.close()
        return environment

    (tool,) = at(server, play).tools

    assert (tool.name, tool.description) == ("act", "Walk through the corridor.")
    assert tool.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {"direction": {"type": "string", "enum": ["left", "right"]}},
        "required": ["direction"],
    }


@pytest.mark.parametrize("seed", [0, 1, 42])
def test_the_seed_comes_with_the_reset(server: Started, seed: int) -> None:
    once = at(server, lambda link: seen(link, seed))
    again = at(server, lambda link: seen(link, seed))

    assert once == again
    resets = server.ask("/journal")["resets"]
    assert [reset["seed"] for reset in resets] == [seed, seed]
    assert resets[0]["episode_id"] != resets[1]["episode_id"]


def test_no_seed_is_sent_where_there_is_none_and_the_task_is(server: Started) -> None:
    async def play(link: EnvironmentClient) -> None:
        environment = OpenEnvEnvironment(link, {"level": 2})
        await environment.open()
        await environment.close()

    at(server, play)

    (reset,) = server.ask("/journal")["resets"]
    assert sorted(reset) == ["episode_id", "level"]


def test_a_negative_seed_is_refused_before_anything_is_sent(server: Started) -> None:
    with pytest.raises(ConfigError, match="the seed -1 is negative"):
        at(server, lambda link: opened(link, -1))

    assert server.ask("/journal")["resets"] == []


def test_every_call_is_answered_in_order_also_after_the_end(server: Started) -> None:
    calls = [called("act", f"c{n}", direction="right") for n in range(5)]

    async def play(link: EnvironmentClient) -> Any:
        environment, _ = await opened(link)
        step = await environment.step(said(None, *calls))
        await environment.close()
        return step

    step = at(server, play)

    assert [reply.tool_call_id for reply in step.replies] == ["c0", "c1", "c2", "c3", "c4"]
    assert [reply.text for reply in step.replies[3:]] == ["The episode is over."] * 2
    assert (step.reward, step.terminated, step.observation["room"]) == (1.5, True, 3)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (said("I walk right."), "Nothing happened: use the tool `act`"),
        (said(None, called("fly")), "unknown tool 'fly'"),
        (
            said(None, called("act", direction="up")),
            "Invalid message: direction: Input should be 'left' or 'right'",
        ),
        (
            said(None, called("act").model_copy(update={"raw_arguments": "{"})),
            "are not a JSON object",
        ),
    ],
    ids=["no call", "no such tool", "bad action", "not JSON"],
)
def test_a_mistake_is_told_in_words_and_takes_no_step(
    server: Started, action: Any, words: str
) -> None:
    async def play(link: EnvironmentClient) -> Any:
        environment, _ = await opened(link)
        mistaken = await environment.step(action)
        after = await environment.step(RIGHT)
        await environment.close()
        return mistaken, after

    mistaken, after = at(server, play)

    assert words in mistaken.replies[0].text
    assert (mistaken.reward, mistaken.terminated) == (None, False)
    assert after.observation["room"] == 1


def test_a_full_server_is_waited_for_and_nobody_fails(server: Started) -> None:
    server.ask("/behave", {"capacity": 3})

    async def play(link: EnvironmentClient) -> list[list[Any]]:
        return list(await asyncio.gather(*(seen(link, seed) for seed in range(12))))

    episodes = at(server, play)

    journal = server.ask("/journal")
    assert sorted(reset["seed"] for reset in journal["resets"]) == list(range(12))
    assert all(episode[-1]["room"] == 2 for episode in episodes)
    assert journal["most_open"] == 3
    assert journal["full"] > 0


def test_a_server_that_stays_full_is_given_up(server: Started) -> None:
    server.ask("/behave", {"capacity": 0})

    with pytest.raises(EnvironmentFault, match=r"the server had no free session for 0\.2 s"):
        at(server, opened, queue_s=0.2)


def test_sessions_are_closed_at_the_end_and_after_a_failure(server: Started) -> None:
    at(server, lambda link: seen(link, 1))
    assert server.ask("/journal")["closed"] == 1

    server.ask("/behave", {"fault": "execution"})
    with pytest.raises(RolloutFailed):
        at(server, lambda link: run_agent(Scripted(RIGHT), OpenEnvEnvironment(link), []))

    journal = server.ask("/journal")
    assert (journal["closed"], journal["open"]) == (1, 0)


def observed(**fields: Any) -> str:
    data = {"observation": {}, "reward": 0.5, "done": False, **fields}
    return json.dumps({"type": "observation", "data": data})


FAULTS = {
    "execution": ("execution", "EXECUTION_ERROR: the floor gave way", EnvironmentFault),
    "garbage": ("<html>", "not a JSON object", InvalidResponse),
    "list": ("[]", "not a JSON object", InvalidResponse),
    "another type": ('{"type": "state", "data": {}}', "is a 'state'", InvalidResponse),
    "no data": ('{"type": "observation"}', "is a 'observation'", InvalidResponse),
    "no observation": (
        '{"type": "observation", "data": {}}',
        "has no observation",
        InvalidResponse,
    ),
    "done is text": (observed(done="no"), "`done` is 'no'", InvalidResponse),
    "reward is text": (observed(reward="1"), "not a finite number", InvalidResponse),
    "reward is NaN": (observed(reward=float("nan")), "not a JSON object", InvalidResponse),
    "reward is vast": (observed(reward=10**400), "not a finite number", InvalidResponse),
    "too long": ("huge", "longer than", InvalidResponse),
    "hangs up": (
        "hang up",
        "the server closed the connection before it answered step",
        EnvironmentFault,
    ),
}


@pytest.mark.parametrize(("fault", "words", "kind"), FAULTS.values(), ids=FAULTS)
def test_what_cannot_be_read_breaks_the_rollout_and_is_never_a_reward_of_zero(
    server: Started, fault: str, words: str, kind: type[Exception]
) -> None:
    server.ask("/behave", {"fault": fault, "at": 1})
    client = Scripted(RIGHT, RIGHT)

    with pytest.raises(RolloutFailed) as failed:
        at(server, lambda link: run_agent(client, OpenEnvEnvironment(link), [asked("Go.")]))

    assert failed.value.boundary is Boundary.ENVIRONMENT
    assert isinstance(failed.value.__cause__, kind)
    assert words in str(failed.value)
    result = failed.value.trajectory.evaluation_result
    assert result is not None
    assert result.reward is None
    assert [step.base_reward for step in result.step_outputs or ()] == [0.25]


def test_an_environment_may_give_no_reward(server: Started) -> None:
    server.ask("/behave", {"fault": observed(reward=None)})

    async def play(link: EnvironmentClient) -> Any:
        environment, _ = await opened(link)
        step = await environment.step(RIGHT)
        await environment.close()
        return step

    assert at(server, play).reward is None


def test_a_null_between_known_rewards_makes_the_total_unknown(server: Started) -> None:
    server.ask("/behave", {"fault": observed(reward=None), "at": 1})
    client = Scripted(RIGHT, RIGHT, said("Enough."), RIGHT)

    trajectory = at(
        server,
        lambda link: run_agent(
            client, OpenEnvEnvironment(link), [asked("Go.")], limits=Limits(max_turns=4)
        ),
    )

    result = trajectory.evaluation_result
    assert result is not None
    assert (result.score, result.is_score_valid) == (None, False)
    assert [step.base_reward for step in result.step_outputs or ()] == [0.25, None, None]


def test_words_and_mistakes_between_rewards_leave_the_total_known(server: Started) -> None:
    client = Scripted(RIGHT, said("Hm."), said(None, called("fly")), RIGHT, RIGHT)

    trajectory = at(server, lambda link: run_agent(client, OpenEnvEnvironment(link), []))

    result = trajectory.evaluation_result
    assert result is not None
    assert result.reward == 1.5


def test_a_refused_action_without_particulars_is_told_too(server: Started) -> None:
    data = {"code": "VALIDATION_ERROR", "message": "Invalid message"}
    server.ask("/behave", {"fault": json.dumps({"type": "error", "data": data})})

    async def play(link: EnvironmentClient) -> Any:
        environment, _ = await opened(link)
        step = await environment.step(RIGHT)
        await environment.close()
        return step

    assert at(server, play).replies[0].text == (
        "Error: Invalid message: the action does not fit its schema"
    )


def test_a_server_that_hangs_is_left_after_the_timeout(server: Started) -> None:
    server.ask("/behave", {"fault": "hang"})

    with pytest.raises(RolloutFailed) as failed:
        at(
            server,
            lambda link: run_agent(Scripted(RIGHT), OpenEnvEnvironment(link), []),
            timeout_s=1.0,
        )

    assert isinstance(failed.value.__cause__, TimedOut)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def opened_at(talk: Handler, timeout_s: float) -> None:
    """Open an episode at a server with this WebSocket."""

    async def schema(request: web.Request) -> web.Response:
        return web.json_response({"action": openenv_server.ACTION})

    application = web.Application()
    application.add_routes([web.get("/schema", schema), web.get("/ws", talk)])
    async with LocalServer(application) as server, open_http_session() as http:
        link = EnvironmentClient(str(server.make_url("")).rstrip("/"), http, None, timeout_s)
        environment = OpenEnvEnvironment(link)
        try:
            await environment.open()
        finally:
            await environment.close()


async def in_time(opening: Awaitable[None]) -> None:
    # A hang would otherwise stop the whole suite.
    async with asyncio.timeout(60):
        await opening


def test_pings_of_a_server_that_hangs_do_not_extend_the_timeout() -> None:
    async def ping_forever(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        while not socket.closed:
            await socket.ping()
            # Answers the pongs, and waits for as long as a fraction of the timeout.
            with suppress(TimeoutError):
                await socket.receive(timeout=0.05)
        return socket

    with pytest.raises(TimedOut, match=r"did not answer reset within 0\.5 s"):
        asyncio.run(in_time(opened_at(ping_forever, 0.5)))


def test_a_handshake_that_hangs_is_left_after_the_timeout() -> None:
    async def never_answer(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(TimedOut, match=r"did not accept the WebSocket within 0\.2 s"):
        asyncio.run(in_time(opened_at(never_answer, 0.2)))


def test_a_redirect_of_the_socket_is_not_followed() -> None:
    reached: list[str] = []

    async def note(request: web.Request) -> web.Response:
        reached.append(request.path)
        return web.Response()

    async def play() -> None:
        other = web.Application()
        other.router.add_route("*", "/{path:.*}", note)
        async with LocalServer(other) as elsewhere:

            async def redirect(request: web.Request) -> web.Response:
                raise web.HTTPFound(elsewhere.make_url("/internal"))

            await opened_at(redirect, 10.0)

    with pytest.raises(InvalidResponse, match=r"redirects to another address \(HTTP 302\)"):
        asyncio.run(play())

    assert reached == []


def test_a_state_that_cannot_be_read_does_not_undo_the_episode(server: Started) -> None:
    server.ask("/behave", {"place": "state", "fault": "execution"})

    async def play(link: EnvironmentClient) -> Any:
        environment, _ = await opened(link)
        step = await environment.step(said(None, *[called("act", direction="right")] * 3))
        await environment.close()
        return step

    step = at(server, play)

    assert (step.reward, step.terminated) == (1.5, True)
    assert "EXECUTION_ERROR" in step.info["state_error"]


def test_a_server_that_dies_keeps_the_steps_so_far() -> None:
    with Started(PROGRAM) as mortal:
        mortal.ask("/behave", {"fault": "die", "at": 2})
        client = Scripted(RIGHT, RIGHT, RIGHT)

        with pytest.raises(RolloutFailed) as failed:
            at(mortal, lambda link: run_agent(client, OpenEnvEnvironment(link), []))

        with pytest.raises(ConnectionFailed):
            at(mortal, opened)

    result = failed.value.trajectory.evaluation_result
    assert "the server closed the connection before it answered" in str(failed.value)
    assert result is not None
    assert result.reward is None
    assert [step.base_reward for step in result.step_outputs or ()] == [0.25, 0.25]


def test_a_server_without_a_schema_is_a_fault(server: Started) -> None:
    server.ask("/behave", {"schema": False})

    with pytest.raises(EnvironmentFault, match=r"GET /schema returned no schema .*HTTP 404"):
        at(server, opened)


def test_a_server_without_a_socket_is_a_fault(server: Started) -> None:
    async def play(link: EnvironmentClient) -> None:
        environment = OpenEnvEnvironment(EnvironmentClient(link.url + "/nowhere", link.http))
        await environment._connect()

    with pytest.raises(EnvironmentFault, match="refused the WebSocket: HTTP 404"):
        at(server, play)
    with pytest.raises(ConnectionFailed, match="the connection failed"):
        at(server, play, url="http://127.0.0.1:1")


def test_a_step_without_an_open_episode_is_a_fault(server: Started) -> None:
    async def play(link: EnvironmentClient) -> None:
        await OpenEnvEnvironment(link).step(RIGHT)

    with pytest.raises(EnvironmentFault, match="is not open"):
        at(server, play)


def test_the_address_may_be_that_of_the_socket(server: Started) -> None:
    url = server.url.replace("http:", "ws:") + "/ws"

    assert at(server, lambda link: seen(link, 1), url=url)[-1]["room"] == 2


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/ws", "ws://h:1", "ws://h:1/ws"])
def test_socket_and_routes_are_found_from_either(url: str) -> None:
    assert build_route_url(url, "ws", _SOCKET_SCHEMES) == "ws://h:1/ws"
    assert build_route_url(url, "schema") == "http://h:1/schema"
    secure = url.replace("://h:1", "s://h:1/a") + "?k=v"
    assert build_route_url(secure, "ws", _SOCKET_SCHEMES) == "wss://h:1/a/ws?k=v"


def test_it_is_an_environment(server: Started) -> None:
    async def play(link: EnvironmentClient) -> Environment:
        environment = OpenEnvEnvironment(link)
        await environment.close()
        return environment

    assert isinstance(at(server, play), Environment)
