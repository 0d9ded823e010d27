"""Environments of one server by its URL: a fresh one for each rollout."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, get_args

import aiohttp

from assay.errors import ConfigError

from ..environment import Environment
from .detection import detect_server_kind
from .http_client import EnvironmentClient, ServerKind, build_redactor, normalize_server_url
from .mcp import McpEnvironment
from .native import NativeEnvironment
from .openenv import OpenEnvEnvironment


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
        # No connection limit: the number of rollouts is limited elsewhere. No cookies, proxies or
        # netrc: neither the server nor the home folder may change a request.
        http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
