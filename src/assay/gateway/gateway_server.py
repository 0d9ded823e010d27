"""The server of the gateway: one address for each sample, in front of one model."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from socket import gethostname
from typing import Self

from aiohttp import web

from assay.environments import Connections
from assay.errors import ConfigError
from assay.providers import ModelClient
from assay.types import reduce_gc_frequency

from .call_handler import COUNT_TOKENS_PATH, CallHandler, CallObserver, build_sealed_refusal
from .dialects import ANTHROPIC, DIALECTS, OPENAI_CHAT, Dialect
from .gateway_session import GatewaySession
from .http_answers import STREAM_KEY, CallRefused, respond_error, respond_json
from .replay import ReplaySession
from .spending import GatewayLimits
from .upstream import Upstream

# All samples of a run may connect at once.
_BACKLOG = 1024
_MAX_IDLE_CONNECTIONS = 2000
_WILDCARDS = ("0.0.0.0", "::")
_ACCESS_MESSAGE = "the address or the key is not one of this gateway"
_SESSION_KEY = web.RequestKey("session", GatewaySession)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class GatewaySettings:
    """Address and limits of the server."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 selects any free port."""

    max_body_bytes: int = 64 * 1024 * 1024
    """Larger requests are refused."""

    header_s: float = 20.0
    """The time limit for the headers of the first request of a connection."""


class Gateway:
    """A proxy that records the calls of agents; an async context manager that serves them.

    Each sample has a session of its own, with an address and a key.
    """

    def __init__(
        self,
        upstream: ModelClient,
        settings: GatewaySettings | None = None,
        *,
        limits: GatewayLimits | None = None,
        observe: CallObserver | None = None,
    ) -> None:
        self._upstream = Upstream(upstream)
        self._settings = settings or GatewaySettings()
        self._limits = limits or GatewayLimits()
        self._handler = CallHandler(self._upstream, observe)
        self._sessions: dict[str, GatewaySession] = {}
        self._secrets: list[str] = []
        self._stack = AsyncExitStack()
        self._runner: web.AppRunner | None = None
        self.url = ""
        """The address without the part of a session, once the server runs."""

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            # Cancelled as well: nothing calls `__aexit__` then.
            await self._stack.aclose()
            raise
        return self

    async def _start(self) -> None:
        self._secrets = self._upstream.secrets
        self._stack.enter_context(reduce_gc_frequency())
        self._stack.push_async_callback(self._handler.close)
        connections = Connections(header_s=self._settings.header_s, most_idle=_MAX_IDLE_CONNECTIONS)
        app = web.Application(
            client_max_size=self._settings.max_body_bytes,
            # Access is checked before the body is read.
            middlewares=[self._guard, connections.middleware()],
        )
        self._add_routes(app)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        self._stack.push_async_callback(self._runner.cleanup)
        await self._runner.setup()
        settings = self._settings
        site = web.TCPSite(self._runner, settings.host, settings.port, backlog=_BACKLOG)
        start = asyncio.ensure_future(site.start())
        try:
            await asyncio.shield(start)
        except asyncio.CancelledError:
            # An interrupted start would leave its socket open. It waits for nothing outside.
            while not start.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([start])
            raise
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else "ports end at 65535"
            raise ConfigError(
                f"the gateway cannot listen on {settings.host}:{settings.port}: {reason}",
                hint="choose another port, or 0 for any free one",
            ) from None
        assert self._runner.server is not None
        await self._stack.enter_async_context(connections.close_idle(self._runner.server))
        # Other machines cannot connect to a wildcard address.
        name = gethostname() if settings.host in _WILDCARDS else settings.host
        host = f"[{name}]" if ":" in name else name
        self.url = f"http://{host}:{self._runner.addresses[0][1]}"

    async def __aexit__(self, *_: object) -> None:
        try:
            for session in list(self._sessions.values()):
                await session.seal()
        finally:
            await self._stack.aclose()

    @property
    def is_running(self) -> bool:
        """Whether the server accepts connections."""
        return self._runner is not None and bool(self._runner.sites)

    def open_session(
        self,
        name: str | None = None,
        *,
        limits: GatewayLimits | None = None,
        key: str | None = None,
        seed: int | None = None,
        replay: ReplaySession | None = None,
    ) -> GatewaySession:
        """Return a new session, whose address and key an agent is given.

        Without a name and a key, both are random. `seed` is the sampling seed of calls that have
        none. With `replay`, recorded calls answer.
        """
        session_id = name or secrets.token_urlsafe(9)
        if session_id in self._sessions or "/" in session_id:
            raise ConfigError(f"{session_id!r} cannot be the name of another session")
        session = GatewaySession(
            session_id,
            self.url,
            limits=limits or self._limits,
            key=key,
            seed=seed,
            hidden=self._secrets,
        )
        session.replay = replay
        self._sessions[session_id] = session
        return session

    def forget(self, session: GatewaySession) -> None:
        """Remove a sealed session: its address is then unknown."""
        self._sessions.pop(session.id, None)

    def _add_routes(self, app: web.Application) -> None:
        base = "/s/{session}"
        for dialect in DIALECTS:
            app.router.add_post(f"{base}/v1{dialect.path}", partial(self._serve, dialect))
        app.router.add_post(f"{base}/v1{COUNT_TOKENS_PATH}", self._count_tokens)
        app.router.add_get(f"{base}/v1/models", self._list_models)
        app.router.add_get(f"{base}/v1/models/{{model:.+}}", self._list_models)
        for path in ("", "/", "/v1", "/v1/"):
            app.router.add_get(base + path, self._greet)
        # Every other address: the guard refuses strangers before the answer 404.
        app.router.add_route("*", "/{path:.*}", self._refuse_path)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let requests with the key of their session pass, and write errors in their API."""
        try:
            try:
                request[_SESSION_KEY] = self._authenticate(request)
                return await handler(request)
            except CallRefused as error:
                refused = error
            except web.HTTPRequestEntityTooLarge:
                most = self._settings.max_body_bytes
                refused = CallRefused(413, f"the request has more than {most:,} bytes")
            except web.HTTPBadRequest as error:
                refused = CallRefused(400, error.text or error.reason)
            except web.HTTPRequestTimeout:
                refused = CallRefused(408, "the request did not arrive in time")
            return await respond_error(request, refused, _find_dialect(request))
        finally:
            # An open connection keeps its last request, which must not keep a whole session.
            for key in (_SESSION_KEY, STREAM_KEY):
                request.pop(key, None)

    def _authenticate(self, request: web.Request) -> GatewaySession:
        session = self._sessions.get(_find_session_id(request))
        key = _read_session_key(request.headers)
        if session is None or key is None or not session.accepts(key):
            # One message for both: it does not reveal which sessions exist.
            is_greeting = request.method == "HEAD" and session is not None and key is None
            if not is_greeting or session is None:
                raise CallRefused(401, _ACCESS_MESSAGE, code="invalid_api_key")
        if session.is_sealed:
            raise build_sealed_refusal()
        return session

    async def _serve(self, dialect: Dialect, request: web.Request) -> web.StreamResponse:
        return await self._handler.serve(request, request[_SESSION_KEY], dialect)

    async def _count_tokens(self, request: web.Request) -> web.Response:
        return await self._handler.count_tokens(request, request[_SESSION_KEY])

    async def _list_models(self, request: web.Request) -> web.Response:
        models = self._handler.list_models(request.headers)
        # A name from the path is accepted like that of any request: the same model answers.
        named = request.match_info.get("model")
        return respond_json(models if named is None else {**models["data"][0], "id": named})

    async def _greet(self, request: web.Request) -> web.Response:
        # Claude Code checks its base URL with HEAD, before it has sent its key.
        return respond_json({"gateway": "assay"})

    async def _refuse_path(self, request: web.Request) -> web.Response:
        paths = ", ".join(f"/v1{dialect.path}" for dialect in DIALECTS)
        raise CallRefused(404, f"{request.path} is not an address of the gateway; it has {paths}")


def _find_session_id(request: web.Request) -> str:
    parts = request.path.split("/")
    return parts[2] if len(parts) > 2 and parts[1] == "s" else ""


def _find_dialect(request: web.Request) -> Dialect:
    if "anthropic-version" in request.headers or request.path.endswith(COUNT_TOKENS_PATH):
        return ANTHROPIC
    found = (dialect for dialect in DIALECTS if request.path.endswith(f"/v1{dialect.path}"))
    return next(found, OPENAI_CHAT)


def _read_session_key(headers: Mapping[str, str]) -> str | None:
    for name in ("x-api-key", "api-key"):
        if name in headers:
            return headers[name]
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None
