"""A server for assay's own environment protocol. On loopback unless a token guards it."""

import hmac
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from ipaddress import ip_address
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from aiohttp import web
from pydantic import ValidationError

from assay.errors import AssayError, ConfigError, EnvironmentFault, WireError
from assay.types import JsonModel, Redactor, ToolSpec, describe_error

from . import mcp_server as mcp_face
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
    from aiohttp import web
    from aiohttp.typedefs import Middleware

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_BACKLOG = 1024
_MIN_IDLE_CONNECTIONS = 200
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

RequestModel = TypeVar("RequestModel", bound=JsonModel)


@dataclass(frozen=True)
class ServerSettings:
    """Where a server listens and how much it takes. Wrong values are refused here."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any free one."""

    token: str | None = field(default=None, repr=False)
    """What callers must show as a bearer token. Needed for every host but loopback."""

    capacity: int = 100
    idle_s: float = 600.0
    name: str = "environment"
    takes_task: bool = True
    header_s: float = 10.0
    """How long a connection may take to bring the head of its first request."""

    most_idle: int | None = None
    """Connections without a request under way; the oldest ones beyond are closed. None: twice the
    capacity, at least 200."""

    def __post_init__(self) -> None:
        if not self.header_s > 0:
            raise ConfigError(f"`header_s` is {self.header_s}", hint="give a time above 0")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"there is no port {self.port}", hint="0 takes any free one")
        if self.token is not None and (len(self.token) < 16 or not self.token.isascii()):
            raise ConfigError(
                "the token is shorter than 16 characters, or not ASCII",
                hint="leave it out to have one made",
            )
        if self.token is None and not is_loopback(self.host):
            raise ConfigError(
                f"listening on {self.host!r} lets other machines in, and there is no token",
                hint="give a token, or listen on 127.0.0.1",
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class EnvironmentServer:
    """Serves the environments that `make` makes, one for each session. An async context manager.

    With `tools`, which every environment must have in common, the same sessions are served to MCP
    clients too: their protocol lists the tools before there is an environment.
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
        self._stack = AsyncExitStack()
        self._port: int | None = None

    @property
    def url(self) -> str:
        """The address to give to clients."""
        if self._port is None:
            raise ConfigError("the server is not running", hint="use it inside `async with`")
        host = self.settings.host
        return f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}"

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
            await self._listen(runner)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._port = None
        await self._stack.aclose()

    def _build_application(self) -> "web.Application":
        application = web.Application(
            client_max_size=MAX_BODY_BYTES,
            # The guard comes before the body is read: nothing is awaited of those it refuses.
            middlewares=[
                web.middleware(_answer_errors),
                _TokenGuard(self.settings).middleware(),
                self._connections.middleware(),
            ],
        )
        application.add_routes(_Handlers(self.sessions, self.settings).routes())
        if self._tools is not None:
            application.add_routes(
                mcp_face.build_mcp_routes(self.sessions, self._tools, self.settings.name)
            )
        return application

    async def _listen(self, runner: "web.AppRunner") -> None:
        host, port = self.settings.host, self.settings.port
        try:
            await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
        except OSError as error:
            raise ConfigError(
                f"cannot listen: {error.strerror or error}",
                where=f"{host}:{port}",
                hint="port 0 takes any free one",
            ) from error
        self._port = runner.addresses[0][1]


class _TokenGuard:
    """Lets in whoever shows the token; without one, whoever means this machine."""

    def __init__(self, settings: ServerSettings) -> None:
        self._redactor = Redactor([settings.token or ""])
        self._expected = None if settings.token is None else f"Bearer {settings.token}".encode()
        host = settings.host
        self._names = _LOOPBACK_NAMES | {f"[{host}]" if ":" in host else host}

    def middleware(self) -> "Middleware":
        @web.middleware
        async def guard(request: web.Request, handler: "Handler") -> web.StreamResponse:
            return self._find_refusal(request) or await handler(request)

        return guard

    def _find_refusal(self, request: "web.Request") -> "web.Response | None":
        if self._expected is not None:
            shown = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
            if request.path != "/health" and not hmac.compare_digest(shown, self._expected):
                return _build_error_response(401, "denied", "the token is missing or wrong")
            return None
        # A page in a browser can reach loopback under a name of its own: its name gives it away.
        name = request.host.rpartition(":")[0] if request.host[-1:].isdigit() else request.host
        if (name or request.host) in self._names:
            return None
        return _build_error_response(
            403, "denied", "this server answers to the names of this machine only"
        )


class _Handlers:
    """The routes of the protocol."""

    def __init__(self, sessions: SessionPool, settings: ServerSettings) -> None:
        self._sessions = sessions
        self._settings = settings
        self._limits = ServerLimits(
            capacity=sessions.capacity, idle_s=sessions.idle_s, largest_body=MAX_BODY_BYTES
        )

    def routes(self) -> "list[web.RouteDef]":
        return [
            web.get("/health", self.health),
            web.post("/sessions", self.open),
            web.post("/sessions/{id}/step", self.step),
            web.get("/sessions/{id}", self.state),
            web.delete("/sessions/{id}", self.close),
        ]

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
        asked = await _read_request_model(request, OpenRequest)
        session = await self._sessions.open(
            seed=asked.seed, task=asked.task, episode_id=asked.episode_id
        )
        try:
            return _build_wire_response(201, OpenResponse.of(session, self._limits))
        except (ValidationError, WireError) as error:
            await self._sessions.close(session.id)
            raise EnvironmentFault(f"what it shows first cannot be sent: {error}") from error

    async def step(self, request: "web.Request") -> "web.Response":
        session = self._find_session(request)
        asked = await _read_request_model(request, StepRequest)
        stored = await self._sessions.step(session.id, asked.action, asked.step_index)
        try:
            return _build_wire_response(200, StepResponse.of(stored))
        except (ValidationError, WireError, TypeError, ValueError) as error:
            raise EnvironmentFault(
                f"what it answers cannot be sent: {error}", where=f"step {stored.step_index}"
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


class _SessionRequestError(Exception):
    """Carries a refusal from where a request is read to where it is answered."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


_HTTP_STATUSES: dict[type[SessionRefused], int] = {
    AtCapacity: 429,
    BadTask: 422,
    EpisodeOver: 409,
    NoSuchSession: 404,
    OutOfOrder: 409,
}


async def _answer_errors(request: "web.Request", handler: "Handler") -> "web.StreamResponse":
    """Middleware: everything that is raised becomes an answer in the protocol's own words."""
    try:
        return await handler(request)
    except _SessionRequestError as refused:
        return _build_error_response(refused.status, refused.kind, str(refused))
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
        if error.status < 400:
            raise
        return _build_error_response(error.status, "http", error.reason)
    except Exception as error:
        return _build_error_response(500, "server", describe_error(error))


async def _read_request_model(request: "web.Request", model: type[RequestModel]) -> RequestModel:
    # A browser asks before it sends JSON to another site, and is not allowed to.
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
