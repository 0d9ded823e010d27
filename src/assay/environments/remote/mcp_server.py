"""Sessions for MCP clients: tools at /mcp; seed, rewards and status at /control/*.

A tool call is one step. MCP cannot deliver an answer without a tool call, so that episodes that end
with the answer of the agent are not ended from here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from pydantic_core import from_json, to_json

from assay import __version__
from assay.errors import AssayError
from assay.formats import get_image_url, parse_data_url
from assay.types import ToolSpec

from ..environment import RewardSum
from .connections import read_body
from .control_plane import MCP_SESSION_HEADER
from .episodes import AtCapacity, EpisodeOver, NoSuchSession, SessionPool, SessionRefused
from .json_rpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from .mcp_episodes import Episode, Episodes
from .mcp_session import (
    CONTROL_CAPABILITY,
    EPISODE_HEADER,
    LEGACY_VERSION,
    LEGACY_VERSIONS,
    META_PREFIX,
    MODERN_VERSION,
    encode_header_value,
)

_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600
_AT_CAPACITY = -32000
_HEADER_MISMATCH = -32020
_UNSUPPORTED_VERSION = -32022


def build_mcp_routes(
    sessions: SessionPool, tools: Sequence[ToolSpec], name: str
) -> "list[web.RouteDef]":
    """Return the routes for MCP clients of both eras."""
    handlers = _McpHandlers(Episodes(sessions), tools, name)
    read = ("initial_state", "reward", "status", "info")
    return [
        # Both spellings: clients need not follow a redirect of a POST.
        *(web.post(path, handlers.post) for path in ("/mcp", "/mcp/")),
        *(web.delete(path, handlers.delete) for path in ("/mcp", "/mcp/")),
        *(web.get(f"/control/{action}", handlers.control) for action in read),
        web.post("/control/reset_session", handlers.control),
        web.post("/control/close_session", handlers.control),
    ]


@dataclass(eq=False)
class _McpRequestError(Exception):
    """A request that is answered with an error."""

    message: str
    code: int
    status: int = 400
    data: Any = None
    wait_s: float = 0.0


class _McpHandlers:
    """The MCP endpoint, and the control endpoints for the episode that a header names."""

    def __init__(self, episodes: Episodes, tools: Sequence[ToolSpec], name: str) -> None:
        self._episodes = episodes
        self._server_info = {"name": name, "version": __version__}
        self._tools = [
            {"name": tool.name, "description": tool.description, "inputSchema": tool.parameters}
            for tool in tools
        ]

    async def post(self, request: "web.Request") -> "web.Response":
        number: Any = None
        headers: dict[str, str] = {}
        try:
            message = await _read_json_body(request)
            params = message.setdefault("params", {})
            whole = message.get("jsonrpc") == "2.0" and isinstance(params, dict)
            if not whole or not isinstance(message.get("method"), str):
                raise _McpRequestError("the body is not a JSON-RPC request", code=_INVALID_REQUEST)
            number = message.get("id")
            # A notification: JSON-RPC forbids an answer.
            if number is None:
                return web.Response(status=202)
            if _is_modern(request):
                result = await self._handle_modern(request, message)
            else:
                result, headers = await self._handle_legacy(request, message)
        except (_McpRequestError, AssayError) as problem:
            refused = _to_mcp_error(problem)
            error = {"code": refused.code, "message": refused.message, "data": refused.data}
            if refused.wait_s:
                headers["Retry-After"] = str(math.ceil(refused.wait_s))
            return _build_json_response(
                {"jsonrpc": "2.0", "id": number, "error": error}, refused.status, headers
            )
        return _build_json_response(
            {"jsonrpc": "2.0", "id": number, "result": result}, 200, headers
        )

    async def delete(self, request: "web.Request") -> "web.Response":
        """End a session of the handshake era and its episode."""
        ended = await self._episodes.end_transport(request.headers.get(MCP_SESSION_HEADER, ""))
        return web.Response(status=200 if ended else 404)

    async def _handle_modern(
        self, request: "web.Request", message: dict[str, Any]
    ) -> dict[str, Any]:
        params = message["params"]
        meta = _check_meta(request, message)
        result: dict[str, Any]
        match message["method"]:
            case "server/discover":
                result = {
                    "supportedVersions": [*LEGACY_VERSIONS, MODERN_VERSION],
                    "capabilities": _CAPABILITIES,
                    "_meta": {f"{META_PREFIX}serverInfo": self._server_info},
                }
            case "tools/list":
                result = {"tools": self._tools}
            case "tools/call":
                client = meta.get(f"{META_PREFIX}clientInfo")
                named = request.headers.get(EPISODE_HEADER) or _get_client_extra(client).get(
                    "session_id"
                )
                if not isinstance(named, str):
                    raise _McpRequestError(
                        f"the header `{EPISODE_HEADER}` must name the episode", code=INVALID_PARAMS
                    )
                return {
                    **await self._call_tool(
                        self._episodes.get_or_create(named, _get_client_extra(client)), params
                    ),
                    "resultType": "complete",
                }
            case method:
                raise _McpRequestError(
                    f"unknown method {method!r}", code=METHOD_NOT_FOUND, status=404
                )
        return {**result, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

    async def _handle_legacy(
        self, request: "web.Request", message: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        params = message["params"]
        if message["method"] == "initialize":
            version = params.get("protocolVersion")
            supported = version if version in LEGACY_VERSIONS else LEGACY_VERSION
            greeting = {
                "protocolVersion": supported,
                "capabilities": _CAPABILITIES,
                "serverInfo": self._server_info,
            }
            new_transport = self._episodes.start_transport(
                _get_client_extra(params.get("clientInfo"))
            )
            return greeting, {"Mcp-Session-Id": new_transport}
        transport = request.headers.get(MCP_SESSION_HEADER)
        if transport is None:
            raise _McpRequestError("the session id is missing", code=_INVALID_REQUEST)
        episode = self._episodes.find_by_transport(transport)
        if episode is None:
            raise _McpRequestError("the session does not exist", code=_INVALID_REQUEST, status=404)
        match message["method"]:
            case "ping":
                return {}, {}
            case "tools/list":
                return {"tools": self._tools}, {}
            case "tools/call":
                return await self._call_tool(episode, params), {}
            case method:
                raise _McpRequestError(
                    f"unknown method {method!r}", code=METHOD_NOT_FOUND, status=200
                )

    async def _call_tool(self, episode: Episode, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a tool call. Mistakes of the agent are results; faults are errors."""
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not name or not isinstance(arguments, dict):
            raise _McpRequestError(
                "a tool call must have a name, and an object as its arguments", code=INVALID_PARAMS
            )
        try:
            replies = await episode.step(name, arguments)
        except EpisodeOver:
            # A result, not an error: the agent can read it and stop.
            words = {"type": "text", "text": "The episode is over."}
            return {"content": [words], "isError": True}
        blocks: list[dict[str, Any]] = []
        for reply in replies:
            if isinstance(reply.content, tuple):
                blocks += map(_to_mcp_block, reply.content)
            elif reply.content is not None:
                blocks.append({"type": "text", "text": reply.content})
        return {"content": blocks, "isError": False}

    async def control(self, request: "web.Request") -> "web.Response":
        name = request.headers.get(MCP_SESSION_HEADER)
        if not name:
            return _build_json_response({"error": f"Missing {MCP_SESSION_HEADER} header"}, 400)
        wait: dict[str, str] = {}
        try:
            return _build_json_response(await self._answer_control(name, request))
        except _McpRequestError as refused:
            return _build_json_response({"error": refused.message}, refused.status)
        except AssayError as problem:
            match problem:
                case AtCapacity():
                    status = 429
                    wait["Retry-After"] = str(math.ceil(problem.retry_after_s))
                case NoSuchSession():
                    status = 404
                case SessionRefused():
                    status = 409
                case _:
                    status = 500
            return _build_json_response({"error": problem.message}, status, wait)

    async def _answer_control(self, name: str, request: "web.Request") -> dict[str, Any]:
        action = request.path.rpartition("/")[2]
        if action == "initial_state":
            session = await self._episodes.get_or_create(name).session()
            return {"observation": "\n".join(message.text for message in session.opening)}
        if action == "reset_session":
            body = await _read_json_body(request)
            seed, task = body.get("seed"), body.get("task")
            if seed is not None and type(seed) is not int:
                raise _McpRequestError(f"`seed` is {seed!r}, not an integer", code=INVALID_PARAMS)
            if task is not None and not isinstance(task, dict):
                raise _McpRequestError("`task` is not an object", code=INVALID_PARAMS)
            await self._episodes.reset(name, seed, task)
            return {"message": "Session reset successfully"}
        if action == "close_session":
            await self._episodes.close(name)
            return {"message": "Session closed"}
        steps = self._episodes.get_existing(name).steps()
        if action == "info":
            return dict(steps[-1].info) if steps else {}
        taken = [step for step in steps if step.acted]
        if action == "reward":
            # None if the environment gave no reward or took no step; never 0.0.
            return {"reward": taken[-1].reward if taken else None, "step_count": len(taken)}
        rewards = RewardSum()
        for index, step in enumerate(steps):
            rewards.add(index, step)
        return {
            "terminated": bool(steps) and steps[-1].terminated,
            "truncated": bool(steps) and steps[-1].truncated,
            "step_count": len(taken),
            "total_reward": rewards.total,
        }


_CAPABILITIES: dict[str, Any] = {"tools": {}, "experimental": {CONTROL_CAPABILITY: {}}}


def _to_mcp_error(problem: _McpRequestError | AssayError) -> _McpRequestError:
    """Convert an error to a JSON-RPC code and an HTTP status."""
    match problem:
        case _McpRequestError():
            return problem
        case AtCapacity():
            wait_s = problem.retry_after_s
            return _McpRequestError(problem.message, code=_AT_CAPACITY, status=429, wait_s=wait_s)
        case NoSuchSession():
            return _McpRequestError(problem.message, code=_INVALID_REQUEST, status=404)
        case SessionRefused():
            return _McpRequestError(problem.message, code=_INVALID_REQUEST, status=200)
    return _McpRequestError(problem.message, code=INTERNAL_ERROR, status=200)


def _is_modern(request: "web.Request") -> bool:
    version = request.headers.get("MCP-Protocol-Version")
    if version is None or version in LEGACY_VERSIONS:
        return False
    if version == MODERN_VERSION:
        return True
    supported = {"supported": [*LEGACY_VERSIONS, MODERN_VERSION], "requested": version}
    raise _McpRequestError(
        "Unsupported protocol version", code=_UNSUPPORTED_VERSION, data=supported
    )


def _check_meta(request: "web.Request", message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `_meta` of a stateless request, after comparing it with the headers."""
    meta = message["params"].get("_meta")
    needed = [f"{META_PREFIX}protocolVersion", f"{META_PREFIX}clientCapabilities"]
    missing = [key for key in needed if not isinstance(meta, dict) or key not in meta]
    if not isinstance(meta, dict) or missing:
        raise _McpRequestError(f"`_meta` does not contain {missing}", code=INVALID_PARAMS)
    # Proxies route by the headers: they must not differ from the body.
    expected = {"MCP-Protocol-Version": meta[needed[0]], "Mcp-Method": message["method"]}
    if message["method"] == "tools/call" and isinstance(message["params"].get("name"), str):
        expected["Mcp-Name"] = encode_header_value(message["params"]["name"])
    for header, value in expected.items():
        if request.headers.get(header) != value:
            raise _McpRequestError(f"the header {header} is not {value!r}", code=_HEADER_MISMATCH)
    return meta


async def _read_json_body(request: "web.Request") -> dict[str, Any]:
    # Browsers send this type to other sites only after a preflight, which is not answered.
    if request.content_type != "application/json":
        raise _McpRequestError(
            "the body must be sent as application/json", code=_INVALID_REQUEST, status=415
        )
    try:
        value = from_json(await read_body(request), allow_inf_nan=False)
    except ValueError as error:
        raise _McpRequestError("the body is not JSON", code=_PARSE_ERROR) from error
    if not isinstance(value, dict):
        raise _McpRequestError("the body is not an object", code=_INVALID_REQUEST)
    return value


def _get_client_extra(client: Any) -> Mapping[str, Any]:
    """Return `_extra` of the client info, where eval-protocol clients name their episode."""
    extra = client.get("_extra") if isinstance(client, dict) else None
    return extra if isinstance(extra, dict) else {}


def _to_mcp_block(block: Any) -> dict[str, Any]:
    address = get_image_url(block)
    image = parse_data_url(address) if address else None
    if image is not None:
        return {"type": "image", "mimeType": image[0], "data": image[1]}
    if block.type == "text":
        return {"type": "text", "text": block.text}
    return {"type": "text", "text": to_json(block).decode()}


def _build_json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> "web.Response":
    return web.Response(
        body=to_json(value), status=status, headers=headers, content_type="application/json"
    )
