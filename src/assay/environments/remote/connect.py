"""Environments of one server by its URL: its protocol, and a fresh environment for each rollout."""

from collections.abc import Mapping
from typing import Any, Self, get_args
from urllib.parse import urlsplit

from assay.errors import ConfigError, EnvironmentFault

from ..environment import Environment
from .http_client import (
    TOKEN_HINT,
    ConnectionFailed,
    EnvironmentClient,
    ServerBusy,
    ServerKind,
    build_redactor,
    normalize_server_url,
    open_http_session,
)
from .json_rpc import JsonRpc, RpcError, TokenRejected
from .mcp import McpEnvironment
from .mcp_session import MODERN_VERSION, list_mcp_urls
from .native import NativeEnvironment
from .openenv import OpenEnvEnvironment, build_route_url

_NATIVE_PREFIX = "assay-env"


class RemoteEnvironments:
    """The environments of one server. An async context manager.

    Entering it detects the protocol of the server, unless `kind` is given. All environments share
    one HTTP session, and queue for at most `queue_s` if the server has no free session.
    """

    def __init__(
        self,
        url: str,
        *,
        kind: ServerKind | None = None,
        token: str | None = None,
        timeout_s: float = 30.0,
        queue_s: float = 3600.0,
    ) -> None:
        if kind is not None and kind not in get_args(ServerKind):
            raise ConfigError(
                f"unknown kind of environment server {kind!r}",
                hint=f"choose one of {', '.join(map(repr, get_args(ServerKind)))}",
            )
        for name, seconds in (("timeout_s", timeout_s), ("queue_s", queue_s)):
            if not seconds > 0:
                raise ConfigError(
                    f"`{name}` is {seconds}, not a positive number", hint="pass a time above 0"
                )
        # Checked early: the HTTP library would fail only at the first request.
        if token is not None and not (token and token.isascii() and token.isprintable()):
            raise ConfigError(
                "`token` is empty or contains characters that are invalid in an HTTP header",
                hint="check for a trailing line break",
            )
        self._url = normalize_server_url(url)
        self._token = token
        # Kept alive: errors of all parts are redacted as long as the redactor exists.
        self._redactor = build_redactor(self._url, token)
        self._timeout_s = timeout_s
        self._queue_s = queue_s
        self._kind = kind
        self._client: EnvironmentClient | None = None

    @property
    def kind(self) -> ServerKind | None:
        """The protocol of the server; None until it is given or detected."""
        return self._kind

    async def __aenter__(self) -> Self:
        http = open_http_session()
        self._client = EnvironmentClient(
            self._url, http, self._token, self._timeout_s, self._queue_s
        )
        try:
            if self._kind is None:
                self._kind = await detect_server_kind(self._client)
        except BaseException:
            await http.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.http.close()

    def make(self, task: Mapping[str, Any] | None = None) -> Environment:
        """Make a fresh environment for one rollout. `task` is sent to servers that support it."""
        if self._client is None:
            raise ConfigError(
                "`make` was called outside of `async with RemoteEnvironments(...)`",
                where="RemoteEnvironments.make",
            )
        match self._kind:
            case "own":
                return NativeEnvironment(self._client, task)
            case "mcp":
                return McpEnvironment(self._client, task)
            case _:
                return OpenEnvEnvironment(self._client, task)


async def detect_server_kind(client: EnvironmentClient) -> ServerKind:
    """Detect the protocol of a server by its URL, or else by its answers.

    Raises `EnvironmentFault` if the server does not answer, and `ConfigError` with all attempts if
    it supports none of the protocols.
    """
    parts = urlsplit(client.url)
    if parts.scheme in ("ws", "wss"):
        return "openenv"
    tried: list[str] = []
    # Servers of other kinds may offer /mcp too: a URL that names it is explicit.
    if not parts.path.endswith("/mcp"):
        health = await _fetch_json(client, build_route_url(client.url, "health"), tried)
        if isinstance(health, dict) and str(health.get("protocol", "")).startswith(_NATIVE_PREFIX):
            return "own"
        schema = await _fetch_json(client, build_route_url(client.url, "schema"), tried)
        has_action = isinstance(schema, dict) and isinstance(schema.get("action"), dict)
        if health is not None and has_action:
            return "openenv"
    for url in list_mcp_urls(client):
        if await _supports_json_rpc(client, url, tried):
            return "mcp"
    raise ConfigError(
        f"the server supports none of the known protocols ({'; '.join(tried)})",
        where=client.where,
        hint="correct the address, or pass the kind of the server: own, mcp or openenv",
    )


async def _fetch_json(client: EnvironmentClient, url: str, tried: list[str]) -> Any:
    """Return the JSON at a URL, or None."""
    name = f"GET {urlsplit(url).path}"
    try:
        answer = await client.ask("GET", url)
        if answer.status == 200:
            value = answer.json()
            tried.append(f"{name}: unrecognised JSON")
            return value
        if answer.status in (401, 403):
            raise TokenRejected(
                f"{name}: HTTP {answer.status}", where=client.where, hint=TOKEN_HINT
            )
        tried.append(f"{name}: HTTP {answer.status}")
    except (TokenRejected, ConnectionFailed):
        # Other routes of the same server would fail in the same way.
        raise
    except EnvironmentFault as fault:
        tried.append(f"{name}: {fault.message}")
    return None


async def _supports_json_rpc(client: EnvironmentClient, url: str, tried: list[str]) -> bool:
    """Return whether a URL answers JSON-RPC, if only with an error as legacy servers do."""
    headers = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": "server/discover"}
    name = f"POST {urlsplit(url).path or '/'}"
    try:
        await JsonRpc(client, url).call("server/discover", {"_meta": {}}, headers)
    except ServerBusy:
        # Only an endpoint of the right kind has sessions to run out of.
        return True
    except (TokenRejected, ConnectionFailed):
        raise
    except (RpcError, EnvironmentFault) as problem:
        if isinstance(problem, RpcError) and problem.code is not None:
            return True
        tried.append(f"{name}: {problem.message}")
        return False
    return True
