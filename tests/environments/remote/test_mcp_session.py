"""MCP of both eras, against a server made with the `mcp` package and against hand-made answers."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer as LocalServer

import mcp_sdk_server
from assay.environments import Step
from assay.environments.remote.http_client import (
    EnvironmentClient,
    InvalidResponse,
    normalize_server_url,
)
from assay.environments.remote.mcp import McpEnvironment
from assay.environments.remote.mcp_session import (
    MODERN_VERSION,
    Era,
    encode_header_value,
    get_server,
    list_mcp_urls,
    open_mcp_session,
)
from assay.errors import EnvironmentFault
from assay.types import Message, ToolCall
from make import called, said
from started import Started

Made = TypeVar("Made")

ERAS: tuple[Era, ...] = ("modern", "legacy")


@pytest.fixture(scope="module", params=["events", "json"])
def server(request: pytest.FixtureRequest) -> Iterator[Started]:
    options = ["--json"] if request.param == "json" else []
    with Started(Path(mcp_sdk_server.__file__), *options) as started:
        yield started


def at(url: str, play: Callable[[EnvironmentClient], Awaitable[Made]]) -> Made:
    async def run() -> Made:
        async with aiohttp.ClientSession() as http:
            return await play(EnvironmentClient(normalize_server_url(url), http, timeout_s=10.0))

    return asyncio.run(run())


def stepped(url: str, era: Era | None, *calls: ToolCall) -> tuple[McpEnvironment, Step]:
    async def play(link: EnvironmentClient) -> tuple[McpEnvironment, Step]:
        environment = McpEnvironment(link, era=era)
        assert await environment.open(seed=1) == ()
        step = await environment.step(said(None, *calls))
        await environment.close()
        return environment, step

    return at(url, play)


def texts(step: Step) -> list[str]:
    return [reply.text for reply in step.replies]


@pytest.mark.parametrize("era", ERAS)
def test_a_server_of_the_package_is_spoken_to_in_both_eras(server: Started, era: Era) -> None:
    environment, step = stepped(
        f"{server.url}/mcp", era, called("add", first=2, second=3), called("narrate", "c2")
    )

    assert [tool.name for tool in environment.tools] == ["add", "greet", "narrate", "größe", "fail"]
    assert texts(step) == ["5", "done"]
    assert step.reward is None
    assert not step.terminated


def test_the_modern_era_is_preferred(server: Started) -> None:
    async def play(link: EnvironmentClient) -> str:
        session = await open_mcp_session(link, episode="e", extra={})
        return session.era

    assert at(f"{server.url}/mcp", play) == "modern"


def test_the_session_header_belongs_to_the_handshake_era(server: Started) -> None:
    said_by = {
        era: texts(stepped(f"{server.url}/mcp", era, called("greet", whom="Ada"))[1])[0]
        for era in ERAS
    }

    assert said_by["modern"].startswith("Hello Ada, without a session, as ")
    assert said_by["legacy"].startswith("Hello Ada, with a session, as ")
    assert said_by["modern"].rpartition(" ")[2] != said_by["legacy"].rpartition(" ")[2]


@pytest.mark.parametrize("era", ERAS)
def test_names_and_arguments_that_fit_no_header_arrive(server: Started, era: Era) -> None:
    _, step = stepped(f"{server.url}/mcp", era, called("größe", region="Île\n1"))

    assert texts(step) == ["size of Île\n1"]


@pytest.mark.parametrize("era", ERAS)
def test_a_tool_that_fails_or_is_called_wrongly_is_told_in_words(server: Started, era: Era) -> None:
    _, step = stepped(
        f"{server.url}/mcp", era, called("fail"), called("add", "c2", first="two", second=1)
    )

    failed, wrong = texts(step)
    assert "fail" in failed
    assert "rror" in failed
    assert "first" in wrong


def test_what_is_learnt_of_a_server_serves_the_next_sessions(server: Started) -> None:
    async def play(link: EnvironmentClient) -> list[str]:
        sessions = [await open_mcp_session(link, episode=str(n), extra={}) for n in range(3)]
        assert get_server(link).url == f"{server.url}/mcp"
        return [session.era for session in sessions]

    assert at(f"{server.url}/mcp", play) == ["modern"] * 3


class Told:
    """A server that answers each method as it is told, and remembers what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[Any] = []

    async def answer(self, request: web.Request) -> web.Response:
        message = await request.json()
        self.asked.append({"headers": dict(request.headers), **message})
        answer = self.answers.get(message["method"].replace("/", "_"))
        if isinstance(answer, web.Response):
            return answer
        if callable(answer):
            answer = answer(message["params"])
        if answer is None:
            return web.Response(status=404, text="Not Found")
        kind = "error" if "code" in answer else "result"
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], kind: answer})


def with_told(told: Told, play: Callable[[EnvironmentClient], Awaitable[Made]]) -> Made:
    async def run() -> Made:
        application = web.Application()
        application.add_routes([web.post("/mcp", told.answer)])
        async with LocalServer(application) as local, aiohttp.ClientSession() as http:
            return await play(EnvironmentClient(str(local.make_url("/mcp")), http, timeout_s=60.0))

    return asyncio.run(run())


DISCOVERED = {"supportedVersions": [MODERN_VERSION], "capabilities": {"tools": {}}}


def listed(**more: Any) -> dict[str, Any]:
    return {"tools": [{"name": "a", "inputSchema": {"type": "object"}}], **more}


async def tool_names(link: EnvironmentClient) -> list[str]:
    session = await open_mcp_session(link, episode="e", extra={})
    return [tool.name for tool in await session.list_tools()]


def test_each_modern_request_says_who_asks_what_in_which_version() -> None:
    told = Told(server_discover=DISCOVERED, tools_list=listed())

    assert with_told(told, tool_names) == ["a"]

    for asked in told.asked:
        assert asked["headers"]["MCP-Protocol-Version"] == MODERN_VERSION
        assert asked["headers"]["Mcp-Method"] == asked["method"]
        assert "Mcp-Session-Id" not in asked["headers"]
        meta = asked["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == MODERN_VERSION
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "assay"
        assert meta["io.modelcontextprotocol/clientCapabilities"] == {}


def test_arguments_are_repeated_in_headers_where_a_schema_asks_it() -> None:
    inner = {"type": "object", "properties": {"deep": {"type": "integer", "x-mcp-header": "Deep"}}}
    flag = {"type": "boolean", "x-mcp-header": "Flag"}
    bad = {"type": "string", "x-mcp-header": "no token\r\n"}
    schema = {"type": "object", "properties": {"inner": inner, "flag": flag, "bad": bad}}
    tool = {"name": "a", "inputSchema": schema}
    told = Told(
        server_discover=DISCOVERED,
        tools_list={"tools": [tool]},
        tools_call={"content": [], "resultType": "complete"},
    )

    async def play(link: EnvironmentClient) -> None:
        session = await open_mcp_session(link, episode="e", extra={})
        await session.list_tools()
        await session.call_tool("a", {"inner": {"deep": 5}, "flag": True, "bad": "x"})
        await session.call_tool("a", {"inner": 1})

    with_told(told, play)

    first, second = (
        {name: value for name, value in asked["headers"].items() if name.startswith("Mcp-Param")}
        for asked in told.asked
        if asked["method"] == "tools/call"
    )
    assert first == {"Mcp-Param-Deep": "5", "Mcp-Param-Flag": "true"}
    assert second == {}


def test_all_pages_of_tools_are_read() -> None:
    def page(params: Any) -> dict[str, Any]:
        number = int(params.get("cursor", "0"))
        more = {"nextCursor": str(number + 1)} if number < 3 else {}
        return {"tools": [{"name": f"t{number}", "inputSchema": {}}], **more}

    assert with_told(Told(server_discover=DISCOVERED, tools_list=page), tool_names) == [
        *("t0", "t1", "t2", "t3")
    ]


BAD_TOOLS = {
    "twice": ({"tools": listed()["tools"] * 2}, "two tools are named 'a'"),
    "no list": ({"tools": None}, "no list of tools"),
    "no name": ({"tools": [{"inputSchema": {}}]}, "no name or no `inputSchema`"),
    "no schema": ({"tools": [{"name": "a"}]}, "no name or no `inputSchema`"),
    "text": ({"tools": ["a"]}, "no name or no `inputSchema`"),
    "endless": (lambda params: {"tools": [], "nextCursor": "x"}, "more than 100 pages"),
}


@pytest.mark.parametrize(("tools", "words"), BAD_TOOLS.values(), ids=BAD_TOOLS)
def test_tools_that_cannot_be_used_are_a_fault(tools: Any, words: str) -> None:
    with pytest.raises(InvalidResponse, match=words):
        with_told(Told(server_discover=DISCOVERED, tools_list=tools), tool_names)


HELLO = {"protocolVersion": "2025-03-26", "capabilities": {}}
FALLBACKS = {
    "unknown method": {"code": -32601, "message": "Method not found"},
    "other versions": {"code": -32022, "message": "no", "data": {"supported": ["2025-06-18"]}},
    "older versions only": {"supportedVersions": ["2025-11-25"], "capabilities": {}},
    "not found": None,
}


@pytest.mark.parametrize("discovered", FALLBACKS.values(), ids=FALLBACKS)
def test_a_server_without_the_modern_era_is_greeted_in_the_older_way(discovered: Any) -> None:
    told = Told(
        server_discover=discovered,
        initialize=HELLO,
        notifications_initialized=web.Response(status=202),
        tools_list=listed(),
    )

    assert with_told(told, tool_names) == ["a"]

    last = told.asked[-1]
    assert last["headers"]["MCP-Protocol-Version"] == "2025-03-26"
    assert "_meta" not in last["params"]


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"initialize": {**HELLO, "protocolVersion": "1999-01-01"}},
        {"initialize": {"code": -32602, "message": "go away"}},
    ],
    ids=["nothing", "unknown version", "refused"],
)
def test_a_server_of_no_known_era_is_a_fault_that_says_what_was_tried(answers: Any) -> None:
    with pytest.raises(EnvironmentFault, match=r"modern at /mcp: .*; legacy at /mcp: "):
        with_told(Told(**answers), tool_names)


def test_an_outage_is_no_sign_of_an_era() -> None:
    down = web.Response(status=500, text="down")
    told = Told(server_discover=down, initialize=HELLO, tools_list=listed())

    with pytest.raises(EnvironmentFault, match="HTTP 500: down"):
        with_told(told, tool_names)

    assert [asked["method"] for asked in told.asked] == ["server/discover"]


def test_the_second_session_of_a_server_that_changed_its_mind_is_a_fault() -> None:
    told = Told(initialize=HELLO, notifications_initialized=web.Response(status=202))

    async def play(link: EnvironmentClient) -> None:
        await open_mcp_session(link, episode="1", extra={})
        told.answers["initialize"] = {"code": -32000, "message": "closed for today"}
        await open_mcp_session(link, episode="2", extra={})

    with pytest.raises(EnvironmentFault, match="refused to open a session: closed for today"):
        with_told(told, play)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("move", "move"),
        ("", ""),
        ("größe", "=?base64?Z3LDtsOfZQ==?="),
        (" x", "=?base64?IHg=?="),
        ("a\nb", "=?base64?YQpi?="),
        ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
    ],
)
def test_a_text_is_wrapped_where_a_header_cannot_hold_it(text: str, written: str) -> None:
    assert encode_header_value(text) == written


def test_the_endpoint_is_looked_for_below_an_address_that_does_not_name_it() -> None:
    async def play(link: EnvironmentClient) -> tuple[str, ...]:
        return list_mcp_urls(link)

    assert at("http://h:1/mcp/", play) == ("http://h:1/mcp",)
    assert at("http://h:1/a?key=x", play) == ("http://h:1/a/mcp?key=x", "http://h:1/a?key=x")


def test_replies_read_as_messages(server: Started) -> None:
    _, step = stepped(f"{server.url}/mcp", None, called("add", first=1, second=1))

    (reply,) = step.replies
    assert reply == Message(role="tool", content="2", tool_call_id="call_1", name="add")
    assert json.loads(reply.text) == step.observation == 2
