"""The own protocol on the wire: what is answered, what is refused, and who is let in."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from io import BytesIO
from typing import Any

import aiohttp
import pytest

from assay.environments import Environment, EnvironmentServer, ServerSettings, is_loopback
from assay.environments.remote.protocol import MAX_BODY_BYTES, SESSION_HEADER
from assay.errors import ConfigError
from assay.types import Message
from make import called, said
from served_environments import Counting, Faulty

ACTION = said(None, called("count")).to_dict()
TOKEN = "a-token-for-these-tests"


class Caller:
    """Sends what it is told to, and gives back what came."""

    def __init__(self, server: EnvironmentServer, http: aiohttp.ClientSession) -> None:
        self.server = server
        self._http = http
        self._headers: dict[str, str] = {}

    async def ask(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, Any]:
        headers = {**self._headers, **options.pop("headers", {})}
        sent = {"json": body} if body is not None else {}
        async with self._http.request(
            method, self.server.url + path, headers=headers, **sent, **options
        ) as response:
            self.answered = response.headers
            return response.status, await response.json() if await response.read() else None

    async def open(self, **body: Any) -> str:
        """Open a session and remember its token; its path."""
        status, opened = await self.ask("POST", "/sessions", body)
        assert status == 201
        self._headers = {SESSION_HEADER: opened["token"]}
        return f"/sessions/{opened['session']}"


def run(
    test: Callable[[Caller], Awaitable[None]],
    make: Callable[[Mapping[str, Any]], Environment] = Faulty,
    **settings: Any,
) -> None:
    async def served() -> None:
        async with (
            asyncio.timeout(180),
            EnvironmentServer(make, ServerSettings(**settings)) as server,
            aiohttp.ClientSession() as http,
        ):
            await test(Caller(server, http))

    asyncio.run(served())


def test_an_episode_takes_one_round_trip_a_step() -> None:
    async def test(caller: Caller) -> None:
        status, opened = await caller.ask("POST", "/sessions", {"seed": 0, "task": {}})
        assert status == 201
        assert opened["observation"] == [{"role": "user", "content": "Count from seed 0."}]
        assert [tool["name"] for tool in opened["tools"]] == ["count"]
        assert opened["limits"] == {"capacity": 7, "idle_s": 600.0, "largest_body": MAX_BODY_BYTES}

        path, headers = f"/sessions/{opened['session']}", {SESSION_HEADER: opened["token"]}
        status, step = await caller.ask(
            "POST", f"{path}/step", {"action": ACTION, "step_index": 0}, headers=headers
        )
        assert status == 200
        assert step == {
            "step_index": 0,
            "replies": [{"role": "tool", "content": "1", "tool_call_id": "call_1"}],
            "reward": 0.25,
            "terminated": False,
            "truncated": False,
            "ended_by_agent": False,
            "info": {"count": 1, "seed": 0},
            "reason": "counted",
            "observation": [1],
        }
        _, state = await caller.ask("GET", path, headers=headers)
        assert state == {
            "session": opened["session"], "seed": 0, "steps": 1, "over": False, "fault": None,
        }  # fmt: skip
        assert await caller.ask("DELETE", path, headers=headers) == (204, None)
        assert (await caller.ask("GET", path, headers=headers))[0] == 404

    run(test, capacity=7)


def test_health_says_which_protocol_and_how_many_sessions() -> None:
    async def test(caller: Caller) -> None:
        await caller.open()

        assert await caller.ask("GET", "/health") == (
            200,
            {
                "status": "ok",
                "protocol": "assay-env/1",
                "sessions": 1,
                "capacity": 100,
                "environment": "counter",
                "takes_task": False,
            },
        )

    run(test, name="counter", takes_task=False)


def test_a_full_server_says_when_to_come_back() -> None:
    async def test(caller: Caller) -> None:
        await caller.open()

        status, answer = await caller.ask("POST", "/sessions", {})

        assert status == 429
        assert caller.answered["Retry-After"] == "1"
        assert answer["error"]["kind"] == "capacity"

    run(test, capacity=1)


REFUSED = {
    "not an object": ("[]", 400, "body: Input should be an object"),
    "not JSON": ("{", 400, "body: Invalid JSON"),
    "no action": ('{"step_index": 0}', 400, "action: Field required"),
    "no index": ('{"action": {"role": "assistant"}}', 400, "step_index: Field required"),
    "a negative index": ('{"action": {"role": "a"}, "step_index": -1}', 400, "step_index: "),
    "an index in words": ('{"action": {"role": "a"}, "step_index": "0"}', 400, "step_index: "),
    "an unknown field": ('{"action": {"role": "a"}, "step_index": 0, "x": 1}', 400, "x: Extra"),
    "no number": ('{"action": {"role": "a", "x": NaN}, "step_index": 0}', 400, "body: expected"),
    "a gap": ('{"action": {"role": "a"}, "step_index": 3}', 409, "step 3 cannot be the first"),
    "too long": ('"' + "x" * (MAX_BODY_BYTES + 1) + '"', 413, "Too Large"),
}


@pytest.mark.parametrize(("body", "status", "words"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_step_is_the_callers_mistake(body: str, status: int, words: str) -> None:
    async def test(caller: Caller) -> None:
        path = await caller.open()

        found, answer = await caller.ask(
            "POST",
            f"{path}/step",
            data=BytesIO(body.encode()),
            headers={"Content-Type": "application/json"},
        )

        assert found == status
        assert words in answer["error"]["message"]
        assert "reward" not in answer

    run(test)


@pytest.mark.parametrize("seed", ["1", 1.5, True, [1]])
def test_a_seed_that_is_no_whole_number_is_refused(seed: object) -> None:
    async def test(caller: Caller) -> None:
        status, answer = await caller.ask("POST", "/sessions", {"seed": seed})

        assert status == 400
        assert answer["error"]["message"].startswith("seed: ")

    run(test)


def test_a_body_that_a_page_can_send_without_asking_is_refused() -> None:
    async def test(caller: Caller) -> None:
        status, _ = await caller.ask(
            "POST", "/sessions", data="{}", headers={"Content-Type": "text/plain"}
        )

        assert status == 415

    run(test)


def test_a_session_is_closed_to_whoever_knows_its_id_only() -> None:
    async def test(caller: Caller) -> None:
        path = await caller.open()
        ask: list[tuple[str, str, Any]] = [
            ("GET", path, None),
            ("DELETE", path, None),
            ("POST", f"{path}/step", {"action": ACTION, "step_index": 0}),
        ]

        for method, target, body in ask:
            for token in ("", "wrong", "wörong"):
                status, _ = await caller.ask(method, target, body, headers={SESSION_HEADER: token})
                assert status == 403

        assert (await caller.ask("GET", path))[1]["steps"] == 0

    run(test)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raise", "step 5: RuntimeError: the counter is jammed"),
        ("nan", "the reward is nan, not a finite number"),
        ("unwritable", "step 5: `Step.info['when']` cannot be written as JSON"),
    ],
)
def test_a_fault_of_the_environment_is_500_and_no_reward(fault: str, words: str) -> None:
    async def test(caller: Caller) -> None:
        path = await caller.open(task={"fault": fault})
        for index in range(5):
            await caller.ask("POST", f"{path}/step", {"action": ACTION, "step_index": index})

        status, answer = await caller.ask(
            "POST", f"{path}/step", {"action": ACTION, "step_index": 5}
        )

        assert status == 500
        assert answer["error"]["kind"] == "environment"
        assert words in answer["error"]["message"]
        assert set(answer) == {"error"}

    run(test)


def test_a_task_without_an_environment_is_422() -> None:
    def make(task: Mapping[str, Any]) -> Environment:
        raise ConfigError("no such map", hint="draw one")

    async def test(caller: Caller) -> None:
        assert await caller.ask("POST", "/sessions", {"task": {"map": "x"}}) == (
            422,
            {"error": {"kind": "bad_task", "message": "no such map", "hint": "draw one"}},
        )

    run(test, make)


@pytest.mark.parametrize(("tools", "status"), [(None, 201), ("act", 500), (5, 500)])
def test_tools_are_read_as_in_a_rollout(tools: Any, status: int) -> None:
    class Odd(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.tools = tools

    async def test(caller: Caller) -> None:
        found, answer = await caller.ask("POST", "/sessions", {})

        assert found == status
        assert answer.get("tools") == ([] if status == 201 else None)
        assert len(caller.server.sessions) == (status == 201)

    run(test, lambda task: Odd())


def test_an_opening_that_cannot_be_sent_leaves_no_session() -> None:
    class Odd(Counting):
        async def open(self, *, seed: int | None = None) -> tuple[Message, ...]:
            return (Message(role="user", content="x", details={"at": float("nan")}),)

    async def test(caller: Caller) -> None:
        status, answer = await caller.ask("POST", "/sessions", {})

        assert status == 500
        assert "cannot be sent" in answer["error"]["message"]
        assert len(caller.server.sessions) == 0

    run(test, lambda task: Odd())


def test_an_unknown_page_is_refused_in_the_same_words() -> None:
    async def test(caller: Caller) -> None:
        assert await caller.ask("GET", "/nothing") == (
            404,
            {"error": {"kind": "http", "message": "Not Found"}},
        )

    run(test)


def test_without_the_token_nothing_but_health_is_answered() -> None:
    async def test(caller: Caller) -> None:
        for shown in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": TOKEN}):
            status, answer = await caller.ask("POST", "/sessions", {}, headers=shown)
            assert status == 401
            assert TOKEN not in str(answer)

        assert (await caller.ask("GET", "/health"))[0] == 200
        status, _ = await caller.ask(
            "POST", "/sessions", {}, headers={"Authorization": f"Bearer {TOKEN}"}
        )
        assert status == 201

    run(test, token=TOKEN)


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("evil.example:80", 403),
     ("evil.example", 403), ("127.0.0.1.evil.example", 403), ("", 403)],
)  # fmt: skip
def test_a_page_that_renames_this_machine_is_refused(host: str, status: int) -> None:
    async def test(caller: Caller) -> None:
        found, _ = await caller.ask("GET", "/health", headers={"Host": host})

        assert found == status

    run(test)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_machines_are_not_let_in_without_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="is reachable from other machines, and no token is set"):
        ServerSettings(host=host)

    ServerSettings(host=host, token=TOKEN)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    ServerSettings(host=host)


@pytest.mark.parametrize("settings", [{"port": -1}, {"port": 65536}, {"token": "short"}])
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ServerSettings(**settings)


def test_the_token_is_not_shown() -> None:
    assert TOKEN not in repr(ServerSettings(token=TOKEN))


def test_a_port_that_is_taken_is_named() -> None:
    async def test(caller: Caller) -> None:
        port = int(caller.server.url.rpartition(":")[2])

        with pytest.raises(ConfigError, match=rf"127.0.0.1:{port}: the server cannot listen"):
            async with EnvironmentServer(Faulty, ServerSettings(port=port)):
                pass

    run(test)


def test_a_server_that_is_not_running_has_no_address() -> None:
    with pytest.raises(ConfigError, match="not running"):
        _ = EnvironmentServer(Faulty).url


def test_an_ipv6_address_stands_in_brackets() -> None:
    async def test(caller: Caller) -> None:
        assert caller.server.url.startswith("http://[::1]:")
        assert (await caller.ask("GET", "/health"))[0] == 200

    run(test, host="::1")
