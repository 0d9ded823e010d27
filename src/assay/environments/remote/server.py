"""The server of the native environment protocol. Other hosts than loopback require a token."""

import hmac
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TypeVar

from aiohttp import web
from pydantic import ValidationError

from assay.errors import AssayError, ConfigError, EnvironmentFault, WireError
from assay.providers import is_loopback as is_loopback  # also exported by this unit
from assay.types import JsonModel, Redactor, ToolSpec, describe_error

from .connections import KEEP_ALIVE_S, Connections, read_body
from .episodes import (
    AtCapacity,
    BadTask,
    EpisodeOver,
    MakeEnvironment,
    NoSuchSession,
    OutOfOrder,
    Session,
    SessionPool,
    SessionRefused,
)
from .mcp_server import build_mcp_routes
from .protocol import (
    MAX_BODY_BYTES,
    PROTOCOL,
    SESSION_HEADER,
    ErrorDetail,
    ErrorResponse,
    Health,
    OpenRequest,
    OpenResponse,
    ServerLimits,
    State,
    StepRequest,
    StepResponse,
    list_problems,
)

if TYPE_CHECKING:
    from aiohttp.typedefs import Middleware

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# All rollouts of a run may connect at once.
_BACKLOG = 1024
_MIN_IDLE_CONNECTIONS = 200
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

RequestModel = TypeVar("RequestModel", bound=JsonModel)


@dataclass(frozen=True)
class ServerSettings:
    """The address, limits and token of a server. Raises `ConfigError` for invalid values."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 selects any free port."""

    token: str | None = field(default=None, repr=False)
    """The bearer token of all requests. Required for every host but loopback."""

    capacity: int = 100
    idle_s: float = 600.0
    name: str = "environment"
    takes_task: bool = True
    header_s: float = 10.0
    """The time limit for the headers of the first request of a connection."""

    most_idle: int | None = None
    """The maximum number of connections without an active request; None is twice the capacity, at
    least 200. The oldest ones over the limit are closed."""

    def __post_init__(self) -> None:
        if not self.header_s > 0:
            raise ConfigError(
                f"`header_s` is {self.header_s}, not a positive number", hint="pass a time above 0"
            )
        if not 0 <= self.port <= 65535:
            raise ConfigError(
                f"port {self.port} is not between 0 and 65535", hint="pass 0 for any free port"
            )
        if self.token is not None and (len(self.token) < 16 or not self.token.isascii()):
            raise ConfigError(
                "the token is shorter than 16 characters, or not ASCII",
                hint="omit it to generate one",
            )
        if self.token is None and not is_loopback(self.host):
            raise ConfigError(
                f"host {self.host!r} is reachable from other machines, and no token is set",
                hint="set a token, or listen on 127.0.0.1",
            )


class EnvironmentServer:
    """Serves the environments of `make`, one per session. An async context manager.

    With `tools`, which all environments must share, the sessions are also served to MCP clients:
    their protocol lists the tools before an environment exists.
    """

    def __init__(
        self,
        make: MakeEnvironment,
        settings: ServerSettings | None = None,
        *,
        tools: Sequence[ToolSpec] | None = None,
    ) -> None:
        self.settings = settings or ServerSettings()
        self.sessions = SessionPool(
            make, capacity=self.settings.capacity, idle_s=self.settings.idle_s
        )
        self._tools = tools
        most_idle = self.settings.most_idle or max(
            2 * self.settings.capacity, _MIN_IDLE_CONNECTIONS
        )
        self._connections = Connections(header_s=self.settings.header_s, most_idle=most_idle)
        # Kept alive: errors are redacted as long as the redactor of the token exists.
        self._redactor = Redactor([self.settings.token or ""])
        self._stack = AsyncExitStack()
        self._port: int | None = None

    @property
    def url(self) -> str:
        """The URL for clients."""
        if self._port is None:
            raise ConfigError("the server is not running", hint="use it inside `async with`")
        host = self.settings.host
        return f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}"

    def _build_application(self) -> "web.Application":
        application = web.Application(
            client_max_size=MAX_BODY_BYTES,
            # The guard precedes the reading of the body: refused requests must not cost memory.
            middlewares=[
                web.middleware(_answer_errors),
                _build_token_guard(self.settings),
                self._connections.middleware(),
            ],
        )
        handlers = _Handlers(self.sessions, self.settings)
        application.router.add_get("/health", handlers.health)
        application.router.add_post("/sessions", handlers.open)
        application.router.add_post("/sessions/{id}/step", handlers.step)
        application.router.add_get("/sessions/{id}", handlers.state)
        application.router.add_delete("/sessions/{id}", handlers.close)
        if self._tools is not None:
            application.add_routes(build_mcp_routes(self.sessions, self._tools, self.settings.name))
        return application

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.sessions)
            runner = web.AppRunner(
                self._build_application(),
                access_log=None,
                shutdown_timeout=2.0,
                keepalive_timeout=KEEP_ALIVE_S,
                lingering_time=2.0,
            )
            stack.push_async_callback(runner.cleanup)
            await runner.setup()
            assert runner.server is not None
            await stack.enter_async_context(self._connections.close_idle(runner.server))
            host, port = self.settings.host, self.settings.port
            try:
                await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
            except OSError as error:
                raise ConfigError(
                    f"the server cannot listen: {error.strerror or error}",
                    where=f"{host}:{port}",
                    hint="pass port 0 for any free port",
                ) from error
            self._port = runner.addresses[0][1]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._port = None
        await self._stack.aclose()


def _build_token_guard(settings: ServerSettings) -> "Middleware":
    """Admit requests with the token or, without one, requests for a loopback host."""
    expected = None if settings.token is None else f"Bearer {settings.token}".encode()
    host = settings.host
    names = _LOOPBACK_NAMES | {f"[{host}]" if ":" in host else host}

    @web.middleware
    async def guard(request: web.Request, handler: "Handler") -> web.StreamResponse:
        if expected is not None:
            shown = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
            # Health checks have no token; the comparison takes constant time.
            if request.path == "/health" or hmac.compare_digest(shown, expected):
                return await handler(request)
            return _build_error_response(401, "denied", "the token is missing or wrong")
        # DNS rebinding: a web page can reach loopback under its own host name, which is refused.
        name = request.host.rpartition(":")[0] if request.host[-1:].isdigit() else request.host
        if (name or request.host) in names:
            return await handler(request)
        return _build_error_response(
            403, "denied", "this server accepts only the host names of this machine"
        )

    return guard


class _Handlers:
    """The routes of the protocol."""

    def __init__(self, sessions: SessionPool, settings: ServerSettings) -> None:
        self._sessions = sessions
        self._settings = settings
        self._limits = ServerLimits(
            capacity=sessions.capacity, idle_s=sessions.idle_s, largest_body=MAX_BODY_BYTES
        )

    async def health(self, request: "web.Request") -> "web.Response":
        health = Health(
            status="ok",
            protocol=PROTOCOL,
            sessions=len(self._sessions),
            capacity=self._sessions.capacity,
            environment=self._settings.name,
            takes_task=self._settings.takes_task,
        )
        return _build_wire_response(200, health)

    async def open(self, request: "web.Request") -> "web.Response":
        body = await _read_request_model(request, OpenRequest)
        session = await self._sessions.open(
            seed=body.seed, task=body.task, episode_id=body.episode_id
        )
        try:
            return _build_wire_response(201, OpenResponse.of(session, self._limits))
        except (ValidationError, WireError, EnvironmentFault) as error:
            # The caller never learns the id: an open session would block capacity until idle.
            await self._sessions.close(session.id)
            raise EnvironmentFault(f"the first observation cannot be sent: {error}") from error

    async def step(self, request: "web.Request") -> "web.Response":
        session = self._find_session(request)
        body = await _read_request_model(request, StepRequest)
        stored = await self._sessions.step(session.id, body.action, body.step_index)
        try:
            return _build_wire_response(200, StepResponse.of(stored))
        except (ValidationError, WireError, TypeError, ValueError) as error:
            raise EnvironmentFault(
                f"the result of the step cannot be sent: {error}", where=f"step {stored.step_index}"
            ) from error

    async def state(self, request: "web.Request") -> "web.Response":
        return _build_wire_response(200, State.of(self._find_session(request)))

    async def close(self, request: "web.Request") -> "web.Response":
        await self._sessions.close(self._find_session(request).id)
        return web.Response(status=204)

    def _find_session(self, request: "web.Request") -> Session:
        session = self._sessions.find(request.match_info["id"])
        shown = request.headers.get(SESSION_HEADER, "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(shown, session.token.encode()):
            raise _SessionRequestError(
                403, "denied", f"the header `{SESSION_HEADER}` is missing or wrong"
            )
        return session


@dataclass(eq=False)
class _SessionRequestError(Exception):
    """A refused request, raised by a handler and answered by the middleware."""

    status: int
    kind: str
    message: str


_HTTP_STATUSES: dict[type[SessionRefused], int] = {
    AtCapacity: 429,
    BadTask: 422,
    EpisodeOver: 409,
    NoSuchSession: 404,
    OutOfOrder: 409,
}


async def _answer_errors(request: "web.Request", handler: "Handler") -> "web.StreamResponse":
    """Middleware: convert every exception to an `ErrorResponse`."""
    try:
        return await handler(request)
    except _SessionRequestError as refused:
        return _build_error_response(refused.status, refused.kind, refused.message)
    except SessionRefused as error:
        response = _build_error_response(
            _HTTP_STATUSES.get(type(error), 400), error.kind, error.message, error.hint
        )
        if isinstance(error, AtCapacity):
            response.headers["Retry-After"] = str(math.ceil(error.retry_after_s))
        return response
    except AssayError as error:
        text = f"{error.where}: {error.message}" if error.where else error.message
        return _build_error_response(500, "environment", text, error.hint)
    except web.HTTPException as error:
        if error.status < 400:  # aiohttp raises redirects too
            raise
        return _build_error_response(error.status, "http", error.reason)
    except Exception as error:
        return _build_error_response(500, "server", describe_error(error))


async def _read_request_model(request: "web.Request", model: type[RequestModel]) -> RequestModel:
    # Browsers send this type to other sites only after a preflight, which is not answered.
    if request.content_type != "application/json":
        raise _SessionRequestError(415, "request", "the body must be sent as application/json")
    body = await read_body(request)
    try:
        return model.from_json(body)
    except ValueError as error:
        raise _SessionRequestError(400, "request", "; ".join(list_problems(error))) from error


def _build_wire_response(status: int, answer: JsonModel) -> "web.Response":
    body = answer.to_json().encode()
    return web.Response(status=status, body=body, content_type="application/json")


def _build_error_response(
    status: int, kind: str, message: str, hint: str | None = None
) -> "web.Response":
    return _build_wire_response(
        status, ErrorResponse(error=ErrorDetail(kind=kind, message=message, hint=hint))
    )
