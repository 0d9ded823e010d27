"""MCP servers over standard streams: well-behaved ones, and those that are not."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

import mcp_sdk_server
from assay.errors import ConfigError, EnvironmentFault
from assay.pytest_plugin.eval_protocol import mcp_stdio
from assay.pytest_plugin.eval_protocol.mcp_servers import McpServers
from assay.pytest_plugin.eval_protocol.mcp_stdio import StdioServer
from assay.types import Message, Sample
from make import called, said

SERVER = """
import json, sys

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "end", "refuse")]

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {}}
    if method == "tools/list":
        send(method="notifications/message", params={})
        send(id="own", method="ping")
        assert json.loads(sys.stdin.readline())["result"] == {}
        if "cursor" in params:
            return {"tools": TOOLS[2:]}
        return {"tools": TOOLS[:2], "nextCursor": "2"}
    if params["name"] == "end":
        sys.exit()
    blocks = [{"type": "text", "text": json.dumps(params["arguments"])}, {"type": "image"}]
    return {"content": blocks}

for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    if request.get("params", {}).get("name") == "refuse":
        send(id=request["id"], error={"code": -1, "message": "not today"})
    else:
        send(id=request["id"], result=answer(request["method"], request["params"]))
"""


def use(code: str, *calls: str) -> list[Message]:
    """What each tool answers. The process is gone afterwards."""

    async def run() -> list[Message]:
        server = StdioServer([sys.executable, "-c", code], "mcp.json: mcpServers.a")
        try:
            assert await server.open() == ()
            action = said(None, *(called(name, name, word=1) for name in calls))
            return list((await server.step(action)).replies)
        finally:
            process = server._process
            await server.close()
            await server.close()
            assert process is not None
            assert process.returncode is not None

    return asyncio.run(run())


def test_tools_are_listed_on_all_pages_and_called() -> None:
    echoed, refused, unknown = use(SERVER, "echo", "refuse", "fly")

    assert echoed.text == '{"word": 1}\n{"type": "image"}'
    assert (echoed.tool_call_id, echoed.role) == ("echo", "tool")
    assert refused.text == "Error: not today"
    known = ["echo", "end", "refuse"]
    assert unknown.text == f"Error: unknown tool 'fly'; the tools are {known}"


def says(line: str) -> str:
    """A program that reads one request and writes one line."""
    return f"input(); print({line!r}, flush=True); input()"


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("", "the MCP server has ended"),
        (says("hello"), "a line that is not a JSON object"),
        (says('{"id": 1}'), "answers initialize without a result"),
        (says('{"id": 1, "error": {"message": "no"}}'), "the MCP server refuses initialize: no"),
    ],
)
def test_a_server_that_does_not_speak_mcp_is_a_fault(code: str, problem: str) -> None:
    with pytest.raises(EnvironmentFault, match=problem):
        use(code)


def lists(page: str) -> str:
    """A program whose answer to each request is this result."""
    return f"""
import itertools, json, sys
numbers = itertools.count()
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        print(json.dumps({{"id": request["id"], "result": {page}}}), flush=True)
"""


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('{"tools": [{"description": "nameless"}]}', "lists a tool that is not one"),
        ('{"tools": 7}', "lists a tool that is not one"),
        ('{"tools": [{"name": "a", "inputSchema": 7}]}', "lists a tool that is not one"),
        ('{"tools": [], "nextCursor": str(next(numbers))}', "more than 100 pages of tools"),
        ('{"tools": [{"name": "a"}], "content": "text"}', "has no list `content`"),
    ],
)
def test_tools_that_cannot_be_read_are_a_fault(page: str, problem: str) -> None:
    with pytest.raises(EnvironmentFault, match=problem):
        use(lists(page), "a")


def test_a_server_that_ends_during_a_call_is_a_fault() -> None:
    with pytest.raises(EnvironmentFault, match="the MCP server has ended"):
        use(SERVER, "end")


def test_a_silent_server_is_a_fault_and_is_ended_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_stdio, "_RESPONSE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(mcp_stdio, "_STDIO_SHUTDOWN_TIMEOUT_S", 0.05)

    with pytest.raises(EnvironmentFault, match=r"did not answer initialize in 0\.2 s"):
        use("import threading; threading.Event().wait()")


def test_a_command_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="the MCP server cannot be started: No such file"):
        asyncio.run(StdioServer(["no-such-command-anywhere"], "mcp.json").open())


def test_a_server_of_the_mcp_package_is_started_by_its_command(tmp_path: Path) -> None:
    folder = str(Path(mcp_sdk_server.__file__).parent)
    code = (
        f"import sys; sys.path.insert(0, {folder!r}); from mcp_sdk_server import server; "
        "server.run('stdio')"
    )
    config = {"mcpServers": {"plain": {"command": sys.executable, "args": ["-c", code]}}}
    (tmp_path / "mcp.json").write_text(json.dumps(config))

    async def run() -> Message:
        async with McpServers(tmp_path / "mcp.json") as make:
            environment = make(Sample())
            await environment.open()
            try:
                action = said(None, called("add", first=2, second=3))
                (reply,) = (await environment.step(action)).replies
            finally:
                await environment.close()
        return reply

    assert asyncio.run(run()).text == "5"
