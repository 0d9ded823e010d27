"""Sessions with MCP servers of both eras: the handshake, and the stateless one of 2026-07-28."""

import asyncio
import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakKeyDictionary

from assay import __version__
from assay.errors import EnvironmentFault
from assay.types import ToolSpec

from .http_client import EnvironmentClient, InvalidResponse, retry_while_busy
from .json_rpc import JsonRpc, RpcError, RpcResult

Era = Literal["modern", "legacy"]

MODERN_VERSION = "2026-07-28"
# Not 2025-11-25: it lets a server end its stream early and expect to be polled.
LEGACY_VERSION = "2025-06-18"
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
META_PREFIX = "io.modelcontextprotocol/"
# Announced by servers whose `reset_session` opens a session and that support `close_session`.
CONTROL_CAPABILITY = "assay/control"
# Names the episode on the data plane, where a stateless server has no session of its own.
EPISODE_HEADER = "x-env-session"
# A server that repeats its cursor would list tools for ever.
_MAX_TOOL_PAGES = 100
_MCP_CLOSE_S = 5.0
_PLAIN_HEADER = re.compile(r"(?! )[\x20-\x7e]*(?<! )")
_WRAPPED_HEADER = re.compile(r"=\?base64\?.*\?=")


@dataclass
class ServerFacts:
    """Facts about a server that all sessions of a client share."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    url: str | None = None
    era: Era | None = None
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    has_control: bool | None = None


# Weak: the facts live as long as the client that they were learnt with.
_SERVERS: WeakKeyDictionary[EnvironmentClient, ServerFacts] = WeakKeyDictionary()


def get_server(client: EnvironmentClient) -> ServerFacts:
    """Return the facts about the server of a client."""
    return _SERVERS.setdefault(client, ServerFacts())


class McpSession:
    """The requests of one episode to an MCP server."""

    def __init__(self, rpc: JsonRpc, era: Era, episode: str, extra: Mapping[str, Any]) -> None:
        self.era = era
        self.capabilities: Mapping[str, Any] = {}
        self._rpc = rpc
        self._episode = episode
        # Servers made for eval-protocol read the episode from `_extra`.
        self._client_info = {
            "name": "assay",
            "version": __version__,
            "_extra": {"session_id": episode, **extra},
        }
        self._version = MODERN_VERSION if era == "modern" else LEGACY_VERSION
        self._transport_id: str | None = None
        self._mirrored: dict[str, dict[tuple[str, ...], str]] = {}
        """By tool: the arguments that its schema marks with `x-mcp-header`, and their headers."""

    @property
    def url(self) -> str:
        return self._rpc.url

    @property
    def keeps_episodes(self) -> bool:
        """Whether the server announces a control plane that opens and closes sessions."""
        experimental = self.capabilities.get("experimental")
        return isinstance(experimental, dict) and CONTROL_CAPABILITY in experimental

    async def begin(self) -> None:
        """Start the session. Raises `RpcError` if the server does not support this era."""
        if self.era == "modern":
            found = (await self.request("server/discover", {})).value
            versions = found.get("supportedVersions")
            if not isinstance(versions, list) or MODERN_VERSION not in versions:
                raise RpcError(
                    f"the server supports the versions {versions}", code=None, status=200
                )
            self.capabilities = _to_mapping(found.get("capabilities"))
            return
        hello = {
            "protocolVersion": LEGACY_VERSION,
            "capabilities": {},
            "clientInfo": self._client_info,
        }
        result = await self.request("initialize", hello)
        version = result.value.get("protocolVersion")
        if version not in LEGACY_VERSIONS:
            raise RpcError(f"the server uses version {version!r}", code=None, status=200)
        self._version = version
        self._transport_id = result.headers.get("Mcp-Session-Id")
        self.capabilities = _to_mapping(result.value.get("capabilities"))
        await self._rpc.notify("notifications/initialized", self._build_headers("", {}))

    async def request(self, method: str, params: Mapping[str, Any]) -> RpcResult:
        """Send a request in the form of the era; queue while the server is full."""
        if self.era == "modern":
            meta = {
                f"{META_PREFIX}protocolVersion": self._version,
                f"{META_PREFIX}clientInfo": self._client_info,
                f"{META_PREFIX}clientCapabilities": {},
            }
            params = {**params, "_meta": meta}
        headers = self._build_headers(method, params)
        return await retry_while_busy(
            self._rpc.client, lambda: self._rpc.call(method, params, headers)
        )

    async def list_tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools of the server from all pages."""
        tools: dict[str, ToolSpec] = {}
        cursor: str | None = None
        for _ in range(_MAX_TOOL_PAGES):
            params = {} if cursor is None else {"cursor": cursor}
            page = (await self.request("tools/list", params)).value
            entries = page.get("tools")
            if not isinstance(entries, list):
                raise InvalidResponse(
                    "the answer of `tools/list` has no list of tools", where=self._rpc.client.where
                )
            for entry in map(_to_mapping, entries):
                name, schema = entry.get("name"), entry.get("inputSchema")
                if not isinstance(name, str) or not name or not isinstance(schema, dict):
                    raise self._build_tool_error("a tool has no name or no `inputSchema`")
                if name in tools:
                    raise self._build_tool_error(f"two tools are named {name!r}")
                self._mirrored[name] = dict(_find_header_parameters(schema, ()))
                words = entry.get("description")
                words = words if isinstance(words, str) else ""
                tools[name] = ToolSpec(name=name, description=words, parameters=schema)
            cursor = page.get("nextCursor")
            if cursor is None:
                return tuple(tools.values())
        raise self._build_tool_error(f"the list of tools has more than {_MAX_TOOL_PAGES} pages")

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        result = await self.request("tools/call", {"name": name, "arguments": arguments})
        kind = result.value.get("resultType", "complete")
        if kind != "complete":
            raise EnvironmentFault(
                f"the tool {name!r} returned {kind!r} instead of a result",
                where=self._rpc.client.where,
                hint="a tool of an environment must not ask the client for input",
            )
        return result.value

    async def close(self) -> None:
        """End the session of the handshake era. A server may decline."""
        if self._transport_id is None:
            return
        headers = self._build_headers("", {})
        self._transport_id = None
        answer = await self._rpc.client.ask(
            "DELETE", self._rpc.url, headers=headers, timeout_s=_MCP_CLOSE_S
        )
        # 405 and 501 mean that the server does not support the request, which MCP allows.
        if answer.status >= 500 and answer.status != 501:
            raise EnvironmentFault(
                f"the server did not close the session: HTTP {answer.status}", where=answer.where
            )

    def _build_headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        headers = {EPISODE_HEADER: self._episode}
        if self._transport_id is not None:
            headers["Mcp-Session-Id"] = self._transport_id
        if method != "initialize":
            headers["MCP-Protocol-Version"] = self._version
        if self.era != "modern":
            return headers
        headers["Mcp-Method"] = method
        if method == "tools/call":
            headers["Mcp-Name"] = encode_header_value(params["name"])
            for path, header in self._mirrored.get(params["name"], {}).items():
                value: Any = params["arguments"]
                for key in path:
                    value = value.get(key) if isinstance(value, dict) else None
                # JSON spelling: `str` would give `True`.
                if isinstance(value, bool):
                    value = "true" if value else "false"
                if isinstance(value, str | int):
                    headers[f"Mcp-Param-{header}"] = encode_header_value(str(value))
        return headers

    def _build_tool_error(self, problem: str) -> InvalidResponse:
        return InvalidResponse(
            problem, where=self._rpc.client.where, hint="correct the server's tools"
        )


async def open_mcp_session(
    client: EnvironmentClient, *, episode: str, extra: Mapping[str, Any], era: Era | None = None
) -> McpSession:
    """Open a session. The first one negotiates URL and era for all others."""
    server = get_server(client)
    # Under the lock: parallel rollouts must not all negotiate at the start.
    async with server.lock:
        if server.url is None or server.era is None or era not in (None, server.era):
            session = await _negotiate_session(client, episode, extra, era)
            server.url, server.era = session.url, session.era
            server.capabilities = session.capabilities
            return session
        session = McpSession(JsonRpc(client, server.url), server.era, episode, extra)
    if session.era == "modern":
        session.capabilities = server.capabilities
    else:
        try:
            await session.begin()
        except RpcError as refusal:
            raise EnvironmentFault(
                f"the server refused to open a session: {refusal.message}", where=client.where
            ) from None
    return session


async def _negotiate_session(
    client: EnvironmentClient, episode: str, extra: Mapping[str, Any], era: Era | None
) -> McpSession:
    """Try all URLs and eras, the modern era first."""
    tried: list[str] = []
    eras: tuple[Era, ...] = ("modern", "legacy") if era is None else (era,)
    for url in list_mcp_urls(client):
        for each in eras:
            session = McpSession(JsonRpc(client, url), each, episode, extra)
            try:
                await session.begin()
            except RpcError as refusal:
                tried.append(f"{each} at {urlsplit(url).path or '/'}: {refusal.message}")
            else:
                return session
    raise EnvironmentFault(
        f"the server supports no known version of MCP ({'; '.join(tried)})",
        where=client.where,
        hint="pass the address of its MCP endpoint, which often ends in /mcp",
    )


def list_mcp_urls(client: EnvironmentClient) -> tuple[str, ...]:
    """Return the possible URLs of the MCP endpoint: `/mcp` below the URL, or the URL."""
    parts = urlsplit(client.url)
    if parts.path.rstrip("/").endswith("/mcp"):
        return (client.url,)
    below = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/mcp"))
    return (below, client.url)


def encode_header_value(text: str) -> str:
    """Encode text for an MCP header: in base64 unless it is plain ASCII."""
    if _PLAIN_HEADER.fullmatch(text) and not _WRAPPED_HEADER.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def _find_header_parameters(
    schema: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the properties that a schema marks with `x-mcp-header`, by their path."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for key, inner in properties.items() if isinstance(properties, dict) else ():
        header = inner.get("x-mcp-header") if isinstance(inner, dict) else None
        if isinstance(header, str) and re.fullmatch(r"[A-Za-z0-9_-]+", header):
            yield (*path, key), header
        yield from _find_header_parameters(inner, (*path, key))


def _to_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
