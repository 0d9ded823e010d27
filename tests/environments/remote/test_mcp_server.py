"""Sessions served to MCP clients: ours, the `mcp` package's, and requests written by hand."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import aiohttp
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from assay.agents import RolloutFailed, run_agent
from assay.environments import (
    EnvironmentServer,
    GymEnvironment,
    ServerSettings,
    Step,
    ToolEnvironment,
    tool,
)
from assay.environments.remote.http_client import EnvironmentClient
from assay.environments.remote.mcp import McpEnvironment
from assay.environments.remote.mcp_session import Era, get_server
from assay.errors import ConfigError, EnvironmentFault
from assay.types import Message, ToolSpec
from make import called, said
from scripted import Scripted

Made = TypeVar("Made")

ERAS: tuple[Era, ...] = ("modern", "legacy")
COUNT = said(None, called("count"))


class Counting:
    """Counts to three, with its seed in what it shows. Breaks or shows an image when asked to."""

    tools: Sequence[ToolSpec] = (ToolSpec(name="count", description="Count on."),)

    def __init__(self, task: Mapping[str, Any]) -> None:
        self.task = task
        self.count = 0

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        shown = f"seed {seed}, task {json.dumps(dict(self.task))}"
        return (Message(role="user", content=shown),)

    async def step(self, action: Message) -> Step:
        arguments = action.tool_calls[0].arguments
        if arguments.get("fail"):
            raise RuntimeError("the counter broke")
        self.count += 1
        content: Any = str(self.count)
        if arguments.get("draw"):
            image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
            content = [{"type": "text", "text": "Look:"}, image, {"type": "sound", "pitch": 3}]
        return Step(
            replies=(Message.model_validate({"role": "tool", "content": content}),),
            reward=0.5 * self.count,
            terminated=self.count == 3,
            info={"odd": self.count % 2},
        )

    async def close(self) -> None:
        return None


@dataclass
class Served:
    """A running server, and requests to it written by hand."""

    server: EnvironmentServer
    http: aiohttp.ClientSession

    @property
    def link(self) -> EnvironmentClient:
        return EnvironmentClient(f"{self.server.url}/mcp", self.http, timeout_s=10.0)

    async def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, Mapping[str, str]]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.http.request(
            method, self.server.url + path, json=body, headers=named
        ) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None, response.headers

    async def control(self, name: str, session: str, body: Any = None) -> tuple[int, Any]:
        method = "GET" if body is None else "POST"
        status, value, _ = await self.ask(method, f"/control/{name}", body, mcp_session_id=session)
        return status, value


def serving(
    play: Callable[[Served], Awaitable[Made]],
    make: Callable[[Mapping[str, Any]], Any] = Counting,
    tools: Sequence[ToolSpec] = Counting.tools,
    **settings: Any,
) -> Made:
    async def run() -> Made:
        options = ServerSettings(name="counter", **settings)
        async with (
            EnvironmentServer(make, options, tools=tools) as server,
            aiohttp.ClientSession() as http,
        ):
            return await play(Served(server, http))

    return asyncio.run(run())


@pytest.mark.parametrize("era", ERAS)
def test_our_client_plays_an_episode_in_both_eras(era: Era) -> None:
    async def play(served: Served) -> Any:
        link = served.link
        environment = McpEnvironment(link, {"level": 2}, era=era)
        opening = await environment.open(seed=0)
        during = len(served.server.sessions)
        steps = [await environment.step(COUNT) for _ in range(3)]
        await environment.close()
        return opening, environment.tools, steps, during, len(served.server.sessions), link

    opening, tools, steps, during, after, link = serving(play)

    assert opening[0].text == 'seed 0, task {"level": 2}'
    assert (tools[0].name, tools[0].description) == ("count", "Count on.")
    assert [step.reward for step in steps] == [0.5, 1.0, 1.5]
    assert [step.terminated for step in steps] == [False, False, True]
    assert [step.replies[0].text for step in steps] == ["1", "2", "3"]
    assert steps[-1].info["odd"] == 1
    assert (during, after) == (1, 0)
    assert get_server(link).era == era


@pytest.mark.parametrize("era", ERAS)
def test_the_same_gymnasium_trajectory_comes_with_the_same_seed(era: Era) -> None:
    actions = [said(None, called("act", action=way)) for way in ("right", "down", "down")]

    async def play(served: Served) -> list[Any]:
        link = served.link

        async def episode(seed: int) -> list[str]:
            environment = McpEnvironment(link, era=era)
            texts = [message.text for message in await environment.open(seed=seed)]
            for action in actions:
                texts += [reply.text for reply in (await environment.step(action)).replies]
            await environment.close()
            return texts

        return list(await asyncio.gather(*(episode(seed) for seed in [0, 1, 0, 1])))

    def lake(task: Mapping[str, Any]) -> GymEnvironment:
        return GymEnvironment("FrozenLake-v1")

    episodes = serving(play, lake, lake({}).tools)

    assert episodes[0] == episodes[2]
    assert episodes[1] == episodes[3]
    assert episodes[0] != episodes[1]


def test_the_client_of_the_package_acts_here_after_a_handshake() -> None:
    async def play(served: Served) -> Any:
        async with Client(f"{served.server.url}/mcp", mode="legacy") as client:
            tools = await client.list_tools()
            result = await client.call_tool("count", {})
            text = getattr(result.content[0], "text", None)
            during = len(served.server.sessions)
        return [tool.name for tool in tools.tools], text, during, len(served.server.sessions)

    assert serving(play) == (["count"], "1", 1, 0)


def test_the_stateless_client_of_the_package_is_told_to_name_its_episode() -> None:
    async def play(served: Served) -> list[str]:
        async with Client(f"{served.server.url}/mcp", mode="auto") as client:
            tools = await client.list_tools()
            with pytest.raises(MCPError, match="the header `x-env-session` must name the episode"):
                await client.call_tool("count", {})
        return [tool.name for tool in tools.tools]

    assert serving(play) == ["count"]


def test_a_reset_before_first_contact_gives_its_seed_to_the_episode() -> None:
    async def play(served: Served) -> Any:
        reset = await served.control("reset_session", "abc", {"seed": 42})
        open_before = len(served.server.sessions)
        return reset, open_before, await served.control("initial_state", "abc")

    reset, open_before, state = serving(play)

    assert reset == (200, {"message": "Session reset successfully"})
    # Nothing is opened until somebody looks: a reset after the last step costs no place.
    assert open_before == 0
    assert state == (200, {"observation": "seed 42, task {}"})


@pytest.mark.parametrize("seed", [0, None])
def test_a_reset_begins_the_episode_anew(seed: int | None) -> None:
    async def play(served: Served) -> Any:
        environment = McpEnvironment(served.link)
        await environment.open(seed=9)
        await environment.step(COUNT)
        name = environment._episode
        await served.control("reset_session", name, {"seed": seed})
        state = await served.control("initial_state", name)
        return state, await served.control("status", name), len(served.server.sessions)

    state, status, open_now = serving(play)

    assert state[1]["observation"].startswith(f"seed {seed},")
    assert status[1]["step_count"] == 0
    assert open_now == 1


def test_readings_of_an_episode_without_a_step_hold_no_reward() -> None:
    async def play(served: Served) -> Any:
        await served.control("initial_state", "abc")
        return [(await served.control(name, "abc"))[1] for name in ("reward", "status", "info")]

    assert serving(play) == [
        {"reward": None, "step_count": 0},
        {"terminated": False, "truncated": False, "step_count": 0, "total_reward": None},
        {},
    ]


def test_what_is_not_named_or_not_there_is_refused() -> None:
    async def play(served: Served) -> list[int]:
        missing, _, _ = await served.ask("GET", "/control/reward")
        unknown = [(await served.control(name, "nope"))[0] for name in ("reward", "status", "info")]
        closing = (await served.control("close_session", "nope", {}))[0]
        long = (await served.control("initial_state", "x" * 300))[0]
        seed = (await served.control("reset_session", "abc", {"seed": "7"}))[0]
        truth = (await served.control("reset_session", "abc", {"seed": True}))[0]
        task = (await served.control("reset_session", "abc", {"task": [1]}))[0]
        return [missing, *unknown, closing, long, seed, truth, task]

    assert serving(play) == [400, 404, 404, 404, 404, 404, 400, 400, 400]


@pytest.mark.parametrize("era", ERAS)
def test_a_fault_of_the_environment_is_a_fault_for_the_client(era: Era) -> None:
    broken = said(None, called("count", fail=True))

    async def play(served: Served) -> Any:
        environment = McpEnvironment(served.link, era=era)
        with pytest.raises(RolloutFailed) as failed:
            await run_agent(Scripted(COUNT, broken), environment, [])
        return failed.value, len(served.server.sessions)

    failed, left_open = serving(play)

    assert isinstance(failed.__cause__, EnvironmentFault)
    assert "the counter broke" in str(failed)
    result = failed.trajectory.evaluation_result
    assert result is not None
    assert result.reward is None
    assert [step.base_reward for step in result.step_outputs or ()] == [0.5]
    assert left_open == 0


class Forgetful(Counting):
    """Tells no reward for its second step; a call that is a mistake is no step."""

    async def step(self, action: Message) -> Step:
        if action.tool_calls[0].arguments.get("wrong"):
            return Step(replies=(Message(role="tool", content="wrong"),), acted=False)
        step = await super().step(action)
        return replace(step, reward=None) if self.count == 2 else step


@pytest.mark.parametrize("era", ERAS)
def test_a_total_without_one_of_the_rewards_is_not_told(era: Era) -> None:
    async def play(served: Served) -> list[Any]:
        environment = McpEnvironment(served.link, era=era)
        await environment.open()
        wrong = said(None, called("count", wrong=True))
        return [await environment.step(action) for action in (COUNT, wrong, COUNT, COUNT)]

    steps = serving(play, Forgetful)

    assert [step.reward for step in steps] == [0.5, None, None, 1.5]
    assert [step.acted for step in steps] == [True, False, True, True]
    assert [step.info["total_reward"] for step in steps] == [0.5, 0.5, None, None]
    assert [step.info["step_count"] for step in steps] == [1, 1, 2, 3]


def test_a_broken_environment_answers_no_reading() -> None:
    async def play(served: Served) -> list[tuple[int, Any]]:
        environment = McpEnvironment(served.link)
        await environment.open()
        with pytest.raises(EnvironmentFault):
            await environment.step(said(None, called("count", fail=True)))
        return [await served.control(name, environment._episode) for name in ("reward", "status")]

    for status, body in serving(play):
        assert status == 500
        assert "the counter broke" in body["error"]


@pytest.mark.parametrize("era", ERAS)
def test_more_episodes_than_places_queue_and_none_fails(era: Era) -> None:
    async def play(served: Served) -> list[float | None]:
        link = served.link

        async def episode(seed: int) -> float | None:
            environment = McpEnvironment(link, era=era)
            opening = await environment.open(seed=seed)
            assert opening[0].text.startswith(f"seed {seed},")
            step = await environment.step(COUNT)
            assert len(served.server.sessions) <= 3
            await environment.close()
            return step.reward

        return list(await asyncio.gather(*(episode(seed) for seed in range(12))))

    assert serving(play, capacity=3) == [0.5] * 12


def test_a_full_server_says_when_to_ask_again() -> None:
    async def play(served: Served) -> Any:
        await served.control("initial_state", "first")
        status, body, headers = await served.ask(
            "GET", "/control/initial_state", mcp_session_id="second"
        )
        called_anyway = await served.ask(
            "POST",
            "/mcp",
            modern("tools/call", name="count", arguments={}),
            **modern_headers("tools/call", "count"),
            x_env_session="third",
        )
        return status, body, headers["Retry-After"], called_anyway[0]

    assert serving(play, capacity=1) == (429, {"error": "all 1 sessions are in use"}, "1", 429)


def test_a_call_after_the_end_is_told_in_words() -> None:
    async def play(served: Served) -> Any:
        for number in range(4):
            status, body, _ = await served.ask(
                "POST",
                "/mcp",
                modern("tools/call", name="count", arguments={}),
                **modern_headers("tools/call", "count"),
                x_env_session="abc",
            )
            assert (status, body["result"]["isError"]) == (200, number == 3)
        return body["result"]["content"]

    assert serving(play) == [{"type": "text", "text": "The episode is over."}]


def test_calls_at_once_in_one_episode_follow_each_other() -> None:
    async def play(served: Served) -> list[str]:
        answers = await asyncio.gather(
            *(
                served.ask(
                    "POST",
                    "/mcp",
                    modern("tools/call", name="count", arguments={}),
                    **modern_headers("tools/call", "count"),
                    x_env_session="abc",
                )
                for _ in range(3)
            )
        )
        return sorted(body["result"]["content"][0]["text"] for _, body, _ in answers)

    assert serving(play) == ["1", "2", "3"]


def test_images_and_unknown_blocks_are_carried() -> None:
    async def play(served: Served) -> Step:
        environment = McpEnvironment(served.link)
        await environment.open()
        return await environment.step(said(None, called("count", draw=True)))

    (reply,) = serving(play).replies

    assert isinstance(reply.content, tuple)
    assert [block.type for block in reply.content] == ["text", "image_url", "text"]
    assert reply.text == 'Look:{"type":"sound","pitch":3}'


def modern(method: str, **params: Any) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, **params}}


def modern_headers(method: str, name: str | None = None) -> dict[str, str]:
    named = {} if name is None else {"Mcp_Name": name}
    return {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": method, **named}


REFUSED: dict[str, tuple[Any, dict[str, str], int, int]] = {
    "not an object": ([1], {}, 400, -32600),
    "no JSON-RPC": ({"id": 1, "method": "ping"}, {}, 400, -32600),
    "no method": ({"jsonrpc": "2.0", "id": 1}, {}, 400, -32600),
    "list of params": ({"jsonrpc": "2.0", "id": 1, "method": "a", "params": []}, {}, 400, -32600),
    "unknown version": (modern("ping"), {"MCP_Protocol_Version": "2030-01-01"}, 400, -32022),
    "no meta": (
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        modern_headers("tools/list"),
        400,
        -32602,
    ),
    "other method in the header": (modern("tools/list"), modern_headers("ping"), 400, -32020),
    "other name in the header": (
        modern("tools/call", name="count"),
        modern_headers("tools/call", "look"),
        400,
        -32020,
    ),
    "unknown method": (modern("tasks/get"), modern_headers("tasks/get"), 404, -32601),
    "no episode": (
        modern("tools/call", name="count", arguments={}),
        modern_headers("tools/call", "count"),
        400,
        -32602,
    ),
    "no name": (
        modern("tools/call"),
        {**modern_headers("tools/call"), "x_env_session": "a"},
        400,
        -32602,
    ),
    "list of arguments": (
        modern("tools/call", name="count", arguments=[1]),
        {**modern_headers("tools/call", "count"), "x_env_session": "a"},
        400,
        -32602,
    ),
    "no session": ({"jsonrpc": "2.0", "id": 1, "method": "ping"}, {}, 400, -32600),
    "no such session": (
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"Mcp_Session_Id": "nope"},
        404,
        -32600,
    ),
}


@pytest.mark.parametrize(("body", "headers", "status", "code"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_request_is_refused_by_its_code(
    body: Any, headers: dict[str, str], status: int, code: int
) -> None:
    async def play(served: Served) -> Any:
        seen, answer, _ = await served.ask("POST", "/mcp/", body, **headers)
        return seen, answer["error"]["code"]

    assert serving(play) == (status, code)


def test_text_that_is_no_json_is_refused() -> None:
    async def play(served: Served) -> list[tuple[int, Any]]:
        answers = []
        for kind in ("application/json", "text/plain"):
            async with served.http.post(
                f"{served.server.url}/mcp", data=b"{", headers={"Content-Type": kind}
            ) as response:
                answers.append((response.status, (await response.json())["error"]["code"]))
        return answers

    # A page of another site can send plain text without being asked whether it may.
    assert serving(play) == [(400, -32700), (415, -32600)]


def test_the_handshake_gives_a_line_that_can_be_hung_up() -> None:
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "count"}}
    unknown = {"jsonrpc": "2.0", "id": 3, "method": "prompts/list"}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}

    async def play(served: Served) -> Any:
        _, greeting, headers = await served.ask("POST", "/mcp", hello)
        line = headers["Mcp-Session-Id"]

        async def on_line(body: Any) -> Any:
            return (await served.ask("POST", "/mcp", body, Mcp_Session_Id=line))[:2]

        said_on_it = [await on_line(body) for body in (note, ping, call, unknown)]
        reward = await served.control("reward", line)
        ended = [(await served.ask("DELETE", "/mcp", Mcp_Session_Id=line))[0] for _ in range(2)]
        after = (await on_line(ping))[0]
        return greeting, said_on_it, reward, ended, after, len(served.server.sessions)

    greeting, said_on_it, reward, ended, after, left_open = serving(play)

    assert greeting["result"]["serverInfo"]["name"] == "counter"
    assert greeting["result"]["protocolVersion"] == "2025-06-18"
    assert said_on_it[0] == (202, None)
    assert said_on_it[1] == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})
    assert said_on_it[2][1]["result"]["content"] == [{"type": "text", "text": "1"}]
    assert said_on_it[3][1]["error"]["code"] == -32601
    # Without a name of its own, the line is the name of the episode.
    assert reward == (200, {"reward": 0.5, "step_count": 1})
    assert ended == [200, 404]
    assert (after, left_open) == (404, 0)


def test_a_closed_episode_is_not_begun_again_by_a_late_call() -> None:
    async def play(served: Served) -> tuple[int, int]:
        environment = McpEnvironment(served.link, era="legacy")
        await environment.open()
        await served.control("close_session", environment._episode, {})
        with pytest.raises(EnvironmentFault, match="the session does not exist"):
            await environment.step(COUNT)
        return len(served.server.sessions), 0

    assert serving(play) == (0, 0)


@pytest.mark.parametrize("era", ERAS)
def test_an_expired_session_is_a_fault_and_not_a_new_episode(era: Era) -> None:
    async def play(served: Served) -> list[str]:
        environment = McpEnvironment(served.link, era=era)
        await environment.open()
        await environment.step(COUNT)
        served.server.sessions.idle_s = 0.0
        await served.server.sessions.sweep()
        with pytest.raises(EnvironmentFault) as gone:
            await environment.step(COUNT)
        return [str(gone.value)]

    (words,) = serving(play)

    assert "is not open" in words


def test_a_task_for_which_there_is_no_environment_is_refused() -> None:
    def none_such(task: Mapping[str, Any]) -> Any:
        raise ConfigError("there is no level 9")

    async def play(served: Served) -> Any:
        call = modern("tools/call", name="count", arguments={})
        headers = modern_headers("tools/call", "count")
        answer = await served.ask("POST", "/mcp", call, **headers, x_env_session="abc")
        return await served.control("initial_state", "abc"), answer[1]["error"]["message"]

    state, message = serving(play, none_such)

    assert state == (409, {"error": "there is no level 9"})
    assert message == "there is no level 9"


def test_environments_without_rewards_have_none_here_either() -> None:
    class Plain(ToolEnvironment):
        @tool
        def count(self) -> str:
            """Count."""
            return "1"

    async def play(served: Served) -> Any:
        environment = McpEnvironment(served.link)
        opening = await environment.open(seed=1)
        step = await environment.step(COUNT)
        return opening, step.reward, (await environment.step(said("Done."))).reward

    assert serving(play, lambda task: Plain(), Plain().tools) == ((), None, None)


def test_a_token_guards_both_planes() -> None:
    token = "a-token-of-sixteen"

    async def play(served: Served) -> Any:
        refused = [
            (await served.ask("POST", "/mcp", modern("server/discover")))[0],
            (await served.control("initial_state", "abc"))[0],
        ]
        link = EnvironmentClient(f"{served.server.url}/mcp", served.http, token)
        environment = McpEnvironment(link)
        await environment.open()
        reward = (await environment.step(COUNT)).reward
        await environment.close()
        return refused, reward

    assert serving(play, token=token) == ([401, 401], 0.5)
