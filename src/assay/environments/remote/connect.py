"""Environments behind an address: one server, a fresh environment for each rollout."""

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

    Entering it finds out which protocol the server speaks, unless `kind` says so. All
    environments that it makes share one HTTP session, and wait for each other when the server has
    no session free, for at most `queue_s`.
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
                f"{kind!r} is no kind of environment server",
                hint=f"the kinds are {', '.join(map(repr, get_args(ServerKind)))}",
            )
        for name, seconds in (("timeout_s", timeout_s), ("queue_s", queue_s)):
            if not seconds > 0:
                raise ConfigError(f"`{name}` is {seconds}", hint="give a time above 0")
        if token is not None and not (token and token.isascii() and token.isprintable()):
            raise ConfigError(
                "`token` is empty or holds characters that no HTTP header takes",
                hint="check for a line end at its end",
            )
        self._url = normalize_server_url(url)
        self._token = token
        # Held, so that no failure of any part shows the token while this is in use.
        self._redactor = build_redactor(self._url, token)
        self._timeout_s = timeout_s
        self._queue_s = queue_s
        self._kind = kind
        self._link: EnvironmentClient | None = None

    @property
    def kind(self) -> ServerKind | None:
        """The protocol; None until it is given or found out."""
        return self._kind

    async def __aenter__(self) -> Self:
        # No limit of its own, no cookies, no proxy or password files: what a server or a home
        # folder holds must not change a request.
        http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        self._link = EnvironmentClient(self._url, http, self._token, self._timeout_s, self._queue_s)
        try:
            if self._kind is None:
                self._kind = await detect_server_kind(self._link)
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
        link, self._link = self._link, None
        if link is not None:
            await link.http.close()

    def make(self, task: Mapping[str, Any] | None = None) -> Environment:
        """A fresh environment for one rollout. `task` is told to servers that take one."""
        if self._link is None:
            raise ConfigError(
                "environments are made inside `async with RemoteEnvironments(...)`",
                where="RemoteEnvironments.make",
            )
        match self._kind:
            case "own":
                return NativeEnvironment(self._link, task)
            case "mcp":
                return McpEnvironment(self._link, task)
            case _:
                return OpenEnvEnvironment(self._link, task)
