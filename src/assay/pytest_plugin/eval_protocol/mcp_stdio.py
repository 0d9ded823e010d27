"""An MCP server that runs as a child process, with messages over stdin and stdout."""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from assay.environments import BasicEnvironment, Step
from assay.errors import ConfigError, EnvironmentFault
from assay.types import Message, ToolCall, ToolSpec

_MCP_PROTOCOL_VERSION = "2025-06-18"
_RESPONSE_TIMEOUT_S = 30.0
_STDIO_SHUTDOWN_TIMEOUT_S = 2.0
# asyncio's default of 64 KiB is too small for tool results.
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_METHOD_NOT_FOUND = -32601
_MAX_TOOL_PAGES = 100


class StdioServer:
    """The tools of one server process; each rollout has a process of its own."""

    def __init__(self, command: Sequence[str], where: str) -> None:
        self.tools: Sequence[ToolSpec] = ()
        self._command = command
        self._where = where
        self._process: asyncio.subprocess.Process | None = None
        self._requests = 0

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=_MAX_MESSAGE_BYTES,
                start_new_session=True,  # `close` kills the whole process group
            )
        except OSError as error:
            raise ConfigError(
                f"the MCP server cannot be started: {error.strerror}", where=self._where
            ) from error
        client = {"name": "assay", "version": "1"}
        hello = {"protocolVersion": _MCP_PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}
        await self._request("initialize", hello)
        await self._send({"method": "notifications/initialized"})
        self.tools = await self._list_tools()
        return ()

    async def _list_tools(self) -> list[ToolSpec]:
        tools: list[ToolSpec] = []
        cursor: str | None = None
        for _ in range(_MAX_TOOL_PAGES):
            page = await self._request("tools/list", {} if cursor is None else {"cursor": cursor})
            try:
                for tool in page.get("tools", ()):
                    schema = tool.get("inputSchema") or {"type": "object"}
                    about = tool.get("description") or ""
                    tools.append(ToolSpec(name=tool["name"], description=about, parameters=schema))
            except (AttributeError, KeyError, TypeError, ValidationError) as error:
                raise self._make_fault("the MCP server lists a tool that is not one") from error
            cursor, last = page.get("nextCursor"), cursor
            if cursor is None or cursor == last:
                return tools
        raise self._make_fault(f"the MCP server lists more than {_MAX_TOOL_PAGES} pages of tools")

    async def step(self, action: Message) -> Step:
        if not action.tool_calls:
            return await BasicEnvironment().step(action)
        return Step(replies=tuple([await self._call_tool(call) for call in action.tool_calls]))

    async def _call_tool(self, call: ToolCall) -> Message:
        names = [tool.name for tool in self.tools]
        if call.name not in names:
            text = f"Error: unknown tool {call.name!r}; the tools are {names}"
        elif call.malformed:
            text = f"Error: the arguments of {call.name!r} are not a JSON object"
        else:
            called = {"name": call.name, "arguments": call.arguments}
            result = await self._request("tools/call", called, is_call=True)
            blocks = result.get("content") or []
            if not isinstance(blocks, list):
                raise self._make_fault("the result of a tool has no list `content`")
            if not blocks and result.get("structuredContent") is not None:
                text = json.dumps(result["structuredContent"], ensure_ascii=False)
            else:
                # Content that is not text reaches the model as JSON.
                text = "\n".join(
                    block["text"] if isinstance(block.get("text"), str) else json.dumps(block)
                    for block in blocks
                    if isinstance(block, dict)
                )
        return Message(role="tool", content=text, tool_call_id=call.id, name=call.name)

    async def _request(
        self, method: str, params: dict[str, Any], *, is_call: bool = False
    ) -> dict[str, Any]:
        # A refused tool call is an answer for the model; any other refusal is a fault.
        self._requests += 1
        number = self._requests
        try:
            async with asyncio.timeout(_RESPONSE_TIMEOUT_S):
                await self._send({"id": number, "method": method, "params": params})
                answer = await self._read_answer(number)
        except TimeoutError as error:
            raise self._make_fault(
                f"the MCP server did not answer {method} in {_RESPONSE_TIMEOUT_S:g} s"
            ) from error
        refusal = answer.get("error")
        if isinstance(refusal, dict):
            if is_call:
                return {"content": [{"type": "text", "text": f"Error: {refusal.get('message')}"}]}
            raise self._make_fault(f"the MCP server refuses {method}: {refusal.get('message')}")
        result = answer.get("result")
        if not isinstance(result, dict):
            raise self._make_fault(f"the MCP server answers {method} without a result")
        return result

    async def _send(self, message: dict[str, Any]) -> None:
        stdin = None if self._process is None else self._process.stdin
        if stdin is None:
            raise self._make_fault("the MCP server is not running")
        stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        try:
            await stdin.drain()
        except ConnectionError as error:
            raise self._make_fault("the MCP server has ended") from error

    async def _read_answer(self, number: int) -> dict[str, Any]:
        stdout = None if self._process is None else self._process.stdout
        if stdout is None:
            raise self._make_fault("the MCP server is not running")
        while True:
            try:
                line = await stdout.readline()
            except ValueError as error:
                raise self._make_fault(
                    f"the MCP server sent more than {_MAX_MESSAGE_BYTES} bytes"
                ) from error
            if not line:
                raise self._make_fault(
                    "the MCP server has ended; run its command by hand to see why"
                )
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            if not isinstance(message, dict):
                raise self._make_fault("the MCP server wrote a line that is not a JSON object")
            # Notifications are skipped. Requests of the server are refused, except pings.
            if "method" not in message and message.get("id") == number:
                return message
            if "method" in message and "id" in message:
                pong: dict[str, Any] = {"result": {}}
                refusal = {"code": _METHOD_NOT_FOUND, "message": "not supported"}
                known = message["method"] == "ping"
                await self._send({"id": message["id"], **(pong if known else {"error": refusal})})

    def _make_fault(self, message: str) -> EnvironmentFault:
        return EnvironmentFault(message, where=self._where)

    async def close(self) -> None:
        """Stop the process and its children: close its input, then kill the process group."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_STDIO_SHUTDOWN_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
