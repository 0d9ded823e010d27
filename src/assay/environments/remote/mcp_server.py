"""Sessions served to MCP clients: tools at /mcp, seed, rewards and end at /control/*.

A tool call is one step. MCP has no way to bring an environment an answer without a tool call, so
episodes that end by the agent's words are not ended from here.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from assay import __version__
from assay.errors import AssayError
from assay.formats import image_address, media_from_data_url
from assay.types import Message, ToolSpec

from ..environment import RewardSum
from .connections import read_body
from .control_plane import SESSION_HEADER
from .episodes import (
    AtCapacity,
    EpisodeOver,
    NoSuchSession,
    SessionRefused,
    Sessions,
)
from .json_rpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from .mcp_episodes import Episode, Episodes
from .mcp_session import (
    CONTROL_CAPABILITY,
    EPISODE_HEADER,
    LEGACY_VERSION,
    LEGACY_VERSIONS,
    META,
    MODERN_VERSION,
    header_value,
)

if TYPE_CHECKING:
    from aiohttp import web

    Handler = Callable[[web.Request], Awaitable[web.Response]]

_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600
_NO_PLACE = -32000
_HEADER_MISMATCH = -32020
_UNSUPPORTED_VERSION = -32022


def routes(sessions: Sessions, tools: Sequence[ToolSpec], name: str) -> "list[web.RouteDef]":
    """The routes that let MCP clients of both eras act in the sessions."""
    from aiohttp import web

    episodes = Episodes(sessions)
    data, control = _DataPlane(episodes, tools, name), _ControlPlane(episodes)
    return [
        *(web.post(path, data.post) for path in ("/mcp", "/mcp/")),
        *(web.delete(path, data.delete) for path in ("/mcp", "/mcp/")),
        web.get("/control/initial_state", control.answering(control.initial_state)),
        web.get("/control/reward", control.answering(control.reward)),
        web.get("/control/status", control.answering(control.status)),
        web.get("/control/info", control.answering(control.info)),
        web.post("/control/reset_session", control.answering(control.reset)),
        web.post("/control/close_session", control.answering(control.close)),
    ]


class _Refused(Exception):
    """A request that is not answered with a result."""

    def __init__(
        self, message: str, *, code: int, status: int = 200, data: Any = None, wait_s: float = 0.0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.data = data
        self.wait_s = wait_s


class _DataPlane:
    """The MCP endpoint."""

    def __init__(self, episodes: Episodes, tools: Sequence[ToolSpec], name: str) -> None:
        self._episodes = episodes
        self._name = name
        self._tools = [
            {"name": tool.name, "description": tool.description, "inputSchema": tool.parameters}
            for tool in tools
        ]

    async def post(self, request: "web.Request") -> "web.Response":
        number: Any = None
        headers: dict[str, str] = {}
        try:
            asked = await _asked(request)
            number = asked.get("id")
            if number is None:
                return _empty(202)
            if _is_modern(request):
                result = await self._modern(request, asked)
            else:
                result, headers = await self._legacy(request, asked)
        except (_Refused, AssayError) as problem:
            refused = _as_refused(problem)
            error = {"code": refused.code, "message": str(refused), "data": refused.data}
            if refused.wait_s:
                headers["Retry-After"] = str(math.ceil(refused.wait_s))
            return _json({"jsonrpc": "2.0", "id": number, "error": error}, refused.status, headers)
        return _json({"jsonrpc": "2.0", "id": number, "result": result}, 200, headers)

    async def delete(self, request: "web.Request") -> "web.Response":
        """The end of a session of the handshake era, and of its episode."""
        ended = await self._episodes.hang_up(request.headers.get(SESSION_HEADER, ""))
        return _empty(200 if ended else 404)

    async def _modern(self, request: "web.Request", asked: dict[str, Any]) -> dict[str, Any]:
        params = asked["params"]
        meta = _checked_meta(request, asked)
        result: dict[str, Any]
        match asked["method"]:
            case "server/discover":
                result = {
                    "supportedVersions": [*LEGACY_VERSIONS, MODERN_VERSION],
                    "capabilities": _CAPABILITIES,
                    "_meta": {f"{META}serverInfo": self._server_info()},
                }
            case "tools/list":
                result = {"tools": self._tools}
            case "tools/call":
                client = meta.get(f"{META}clientInfo")
                named = request.headers.get(EPISODE_HEADER) or _extra(client).get("session_id")
                if not isinstance(named, str):
                    raise _Refused(
                        f"name the episode in the header `{EPISODE_HEADER}`",
                        code=INVALID_PARAMS,
                        status=400,
                    )
                return {
                    **await self._called(self._episodes.named(named, _extra(client)), params),
                    "resultType": "complete",
                }
            case method:
                raise _Refused(f"no method {method!r}", code=METHOD_NOT_FOUND, status=404)
        return {**result, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

    async def _legacy(
        self, request: "web.Request", asked: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        params = asked["params"]
        if asked["method"] == "initialize":
            version = params.get("protocolVersion")
            spoken = version if version in LEGACY_VERSIONS else LEGACY_VERSION
            greeting = {
                "protocolVersion": spoken,
                "capabilities": _CAPABILITIES,
                "serverInfo": self._server_info(),
            }
            line = self._episodes.pick_up(_extra(params.get("clientInfo")))
            return greeting, {"Mcp-Session-Id": line}
        episode = self._on_line(request)
        match asked["method"]:
            case "ping":
                return {}, {}
            case "tools/list":
                return {"tools": self._tools}, {}
            case "tools/call":
                return await self._called(episode, params), {}
            case method:
                raise _Refused(f"no method {method!r}", code=METHOD_NOT_FOUND)

    def _on_line(self, request: "web.Request") -> Episode:
        line = request.headers.get(SESSION_HEADER)
        if line is None:
            raise _Refused("the session id is missing", code=_INVALID_REQUEST, status=400)
        episode = self._episodes.on_line(line)
        if episode is None:
            raise _Refused("there is no such session", code=_INVALID_REQUEST, status=404)
        return episode

    async def _called(self, episode: Episode, params: Mapping[str, Any]) -> dict[str, Any]:
        """One tool call. The agent's mistakes are results; a fault of the environment is none."""
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not name or not isinstance(arguments, dict):
            raise _Refused("a call needs a name and arguments", code=INVALID_PARAMS, status=400)
        try:
            replies = await episode.step(name, arguments)
        except EpisodeOver:
            words = {"type": "text", "text": "The episode is over."}
            return {"content": [words], "isError": True}
        return {"content": _content(replies), "isError": False}

    def _server_info(self) -> dict[str, str]:
        return {"name": self._name, "version": __version__}


class _ControlPlane:
    """The readings beside the tools, for the episode that a header names."""

    def __init__(self, episodes: Episodes) -> None:
        self._episodes = episodes

    def answering(
        self, read: "Callable[[str, web.Request], Awaitable[dict[str, Any]]]"
    ) -> "Handler":
        """A handler that answers what `read` gives or why it gives nothing."""

        async def handle(request: "web.Request") -> "web.Response":
            name = request.headers.get(SESSION_HEADER)
            if not name:
                return _json({"error": f"Missing {SESSION_HEADER} header"}, 400)
            try:
                return _json(await read(name, request))
            except _Refused as refused:
                return _json({"error": str(refused)}, refused.status)
            except AtCapacity as full:
                wait = {"Retry-After": str(math.ceil(full.retry_after_s))}
                return _json({"error": full.message}, 429, wait)
            except NoSuchSession as gone:
                return _json({"error": gone.message}, 404)
            except SessionRefused as refusal:
                return _json({"error": refusal.message}, 409)
            except AssayError as fault:
                return _json({"error": fault.message}, 500)

        return handle

    async def initial_state(self, name: str, request: "web.Request") -> dict[str, Any]:
        session = await self._episodes.named(name).session()
        return {"observation": "\n".join(message.text for message in session.opening)}

    async def reset(self, name: str, request: "web.Request") -> dict[str, Any]:
        body = await _body(request)
        seed, task = body.get("seed"), body.get("task")
        if seed is not None and type(seed) is not int:
            raise _Refused(f"`seed` is {seed!r}", code=INVALID_PARAMS, status=400)
        if task is not None and not isinstance(task, dict):
            raise _Refused("`task` is not an object", code=INVALID_PARAMS, status=400)
        await self._episodes.reset(name, seed, task)
        return {"message": "Session reset successfully"}

    async def close(self, name: str, request: "web.Request") -> dict[str, Any]:
        await self._episodes.close(name)
        return {"message": "Session closed"}

    async def reward(self, name: str, request: "web.Request") -> dict[str, Any]:
        steps = [step for step in self._episodes.known(name).steps() if step.acted]
        # None where the environment gives no reward, or took no step: not 0.0.
        return {"reward": steps[-1].reward if steps else None, "step_count": len(steps)}

    async def status(self, name: str, request: "web.Request") -> dict[str, Any]:
        steps = self._episodes.known(name).steps()
        rewards = RewardSum()
        for index, step in enumerate(steps):
            rewards.add(index, step)
        return {
            "terminated": bool(steps) and steps[-1].terminated,
            "truncated": bool(steps) and steps[-1].truncated,
            "step_count": sum(step.acted for step in steps),
            "total_reward": rewards.total,
        }

    async def info(self, name: str, request: "web.Request") -> dict[str, Any]:
        steps = self._episodes.known(name).steps()
        return dict(steps[-1].info) if steps else {}


_CAPABILITIES: dict[str, Any] = {"tools": {}, "experimental": {CONTROL_CAPABILITY: {}}}


def _as_refused(problem: _Refused | AssayError) -> _Refused:
    """What broke or was refused, as JSON-RPC and HTTP tell it."""
    match problem:
        case _Refused():
            return problem
        case AtCapacity():
            wait_s = problem.retry_after_s
            return _Refused(problem.message, code=_NO_PLACE, status=429, wait_s=wait_s)
        case NoSuchSession():
            return _Refused(problem.message, code=_INVALID_REQUEST, status=404)
        case SessionRefused():
            return _Refused(problem.message, code=_INVALID_REQUEST)
    return _Refused(problem.message, code=INTERNAL_ERROR)


def _is_modern(request: "web.Request") -> bool:
    version = request.headers.get("MCP-Protocol-Version")
    if version is None or version in LEGACY_VERSIONS:
        return False
    if version == MODERN_VERSION:
        return True
    supported = {"supported": [*LEGACY_VERSIONS, MODERN_VERSION], "requested": version}
    raise _Refused(
        "Unsupported protocol version", code=_UNSUPPORTED_VERSION, status=400, data=supported
    )


def _checked_meta(request: "web.Request", asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a stateless request says of itself, twice: its body and its headers must agree."""
    meta = asked["params"].get("_meta")
    needed = [f"{META}protocolVersion", f"{META}clientCapabilities"]
    missing = [key for key in needed if not isinstance(meta, dict) or key not in meta]
    if not isinstance(meta, dict) or missing:
        raise _Refused(f"`_meta` lacks {missing}", code=INVALID_PARAMS, status=400)
    said = {"MCP-Protocol-Version": meta[needed[0]], "Mcp-Method": asked["method"]}
    if asked["method"] == "tools/call" and isinstance(asked["params"].get("name"), str):
        said["Mcp-Name"] = header_value(asked["params"]["name"])
    for header, value in said.items():
        if request.headers.get(header) != value:
            raise _Refused(
                f"the header {header} is not {value!r}", code=_HEADER_MISMATCH, status=400
            )
    return meta


async def _asked(request: "web.Request") -> dict[str, Any]:
    """The JSON-RPC request of a body."""
    asked = await _body(request)
    params = asked.setdefault("params", {})
    whole = asked.get("jsonrpc") == "2.0" and isinstance(params, dict)
    if not whole or not isinstance(asked.get("method"), str):
        raise _Refused("not a JSON-RPC request", code=_INVALID_REQUEST, status=400)
    return asked


async def _body(request: "web.Request") -> dict[str, Any]:
    # A browser asks before it sends JSON to another site, and is not allowed to.
    if request.content_type != "application/json":
        raise _Refused(
            "the body must be sent as application/json", code=_INVALID_REQUEST, status=415
        )
    try:
        value = from_json(await read_body(request), allow_inf_nan=False)
    except ValueError as error:
        raise _Refused("the body is not JSON", code=_PARSE_ERROR, status=400) from error
    if not isinstance(value, dict):
        raise _Refused("the body is not an object", code=_INVALID_REQUEST, status=400)
    return value


def _extra(client: Any) -> Mapping[str, Any]:
    """Where clients made for eval-protocol name their episode."""
    extra = client.get("_extra") if isinstance(client, dict) else None
    return extra if isinstance(extra, dict) else {}


def _content(replies: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as blocks of MCP."""
    blocks: list[dict[str, Any]] = []
    for reply in replies:
        if isinstance(reply.content, tuple):
            blocks += [_block(block) for block in reply.content]
        elif reply.content is not None:
            blocks.append({"type": "text", "text": reply.content})
    return blocks


def _block(block: Any) -> dict[str, Any]:
    address = image_address(block)
    image = media_from_data_url(address) if address else None
    if image is not None:
        return {"type": "image", "mimeType": image[0], "data": image[1]}
    if block.type == "text":
        return {"type": "text", "text": block.text}
    return {"type": "text", "text": to_json(block).decode()}


def _json(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> "web.Response":
    from aiohttp import web

    return web.Response(
        body=to_json(value), status=status, headers=headers, content_type="application/json"
    )


def _empty(status: int) -> "web.Response":
    from aiohttp import web

    return web.Response(status=status)
