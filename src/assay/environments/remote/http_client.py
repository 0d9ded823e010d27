"""The HTTP client of one environment server: URL, token, a session shared by all episodes.

Also the queue of episodes while the server has no free session. URLs come from the user only.
Answers of servers are untrusted data: limited in size, never followed to another URL, and quoted
without the token.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import unquote_plus, urlsplit, urlunsplit

import aiohttp
from pydantic_core import from_json, to_json

from assay.errors import ConfigError, EnvironmentFault
from assay.providers import Redactor, parse_retry_after

AttemptResult = TypeVar("AttemptResult")

_DEFAULT_RETRY_S = 1.0
# `Retry-After: 0` from a full server would be followed by requests without a pause.
_LEAST_RETRY_S = 0.1


class CapacityQueue:
    """A first-in, first-out queue, shared by all episodes at one server."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._chance = chance

    async def wait(self, retry_after_s: float) -> None:
        """Wait until another session of this process ends, at most `retry_after_s` plus jitter.

        Jitter of up to 50 % keeps callers with the same delay from retrying at the same time.
        """
        call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(call)
        try:
            async with asyncio.timeout(retry_after_s * (1 + self._chance() / 2)):
                await call
        except TimeoutError:
            # Not an error: the caller retries, since sessions of other processes may have ended.
            self._leave(call)
        except asyncio.CancelledError:
            self._leave(call)
            raise

    def release(self) -> None:
        """Wake the first episode in the queue, after a session has ended."""
        while self._waiting:
            call = self._waiting.popleft()
            if not call.done():
                call.set_result(None)
                return

    def _leave(self, call: "asyncio.Future[None]") -> None:
        if call in self._waiting:
            self._waiting.remove(call)
        elif not call.cancelled():
            # Woken and cancelled at the same time: pass the free session on.
            self.release()


class ServerBusy(Exception):
    """The server is at capacity. Nothing was executed, so that the request can be retried."""

    def __init__(self, retry_after_s: float | None) -> None:
        super().__init__("the server has no session free")
        wait_s = _DEFAULT_RETRY_S if retry_after_s is None else retry_after_s
        self.retry_after_s = max(wait_s, _LEAST_RETRY_S)

    @classmethod
    def check(cls, answer: "ServerResponse") -> None:
        """Raise `ServerBusy` for status 429, and for 503 with `Retry-After`."""
        wait_s = answer.retry_after_s
        if answer.status == 429 or (answer.status == 503 and wait_s is not None):
            raise cls(wait_s)


async def retry_while_busy(
    client: "EnvironmentClient",
    attempt: Callable[[], Awaitable[AttemptResult]],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> AttemptResult:
    """Retry `attempt` while it raises `ServerBusy`, for at most `client.queue_s`."""
    started = clock()
    while True:
        try:
            return await attempt()
        except ServerBusy as busy:
            left = client.queue_s - (clock() - started)
            if left <= 0:
                raise EnvironmentFault(
                    f"the server had no free session for {client.queue_s:g} s",
                    where=client.where,
                    hint="run fewer samples at once, or serve more sessions",
                ) from None
            wait_s = min(busy.retry_after_s, left)
        await client.queue.wait(wait_s)


if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

ServerKind = Literal["own", "mcp", "openenv"]
"""The protocols of environment servers."""

MAX_SERVER_RESPONSE_BYTES = 4 * 1024 * 1024
# More than is shown: redaction must see whole tokens.
_EXCERPT_BYTES = 64 * 1024
_MAX_INLINE_BODY_BYTES = 1024 * 1024
STEP_TIMEOUT_HINT = (
    "the environment hangs or needs more time: raise `step_timeout_s` of @evaluation_test, or "
    "`timeout_s` of RemoteEnvironments"
)
TOKEN_HINT = "pass the token: `env_token` of @evaluation_test, `token` of RemoteEnvironments"
_SCHEMES = ("http", "https", "ws", "wss")


class ConnectionFailed(EnvironmentFault):
    """The connection failed or broke before the answer."""


class TimedOut(EnvironmentFault):
    """The server did not answer in time."""


class InvalidResponse(EnvironmentFault):
    """The answer of the server cannot be parsed."""


@dataclass(frozen=True)
class ServerResponse:
    """The answer of a server with any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    where: str
    redactor: Redactor = field(repr=False)

    def json(self) -> Any:
        """Parse the body as JSON. Raises `InvalidResponse`."""
        try:
            return from_json(self.body, allow_inf_nan=False)
        except ValueError:
            pass
        raise InvalidResponse(
            f"the answer (HTTP {self.status}) is not JSON: {self.excerpt}", where=self.where
        )

    @property
    def retry_after_s(self) -> float | None:
        """The delay of the `Retry-After` header, or None."""
        return parse_retry_after(
            self.headers.get("Retry-After"), milliseconds=None, now=time.time()
        )

    @property
    def summary(self) -> str:
        """The status and the beginning of the body."""
        return f"HTTP {self.status}: {self.excerpt}"

    @property
    def excerpt(self) -> str:
        """The beginning of the body as one printable line, redacted."""
        return (
            self.format_text(self.body[:_EXCERPT_BYTES].decode("utf-8", "replace")) or "(nothing)"
        )

    def format_text(self, text: str, *, most: int = 300) -> str:
        """Return text of the server as one printable line, redacted and shortened."""
        # Redact before cutting: half a token would not be recognised.
        text = self.redactor.clean(text)
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return f"{text[:most]}…" if len(text) > most else text


@dataclass(frozen=True)
class EnvironmentClient:
    """The connection of all episodes of one `RemoteEnvironments` to their server."""

    url: str = field(repr=False)
    http: "ClientSession" = field(repr=False)
    token: str | None = field(default=None, repr=False)
    timeout_s: float = 30.0
    queue_s: float = 3600.0
    """The maximum time that an episode waits for a free session."""

    queue: CapacityQueue = field(default_factory=CapacityQueue, repr=False)

    @cached_property
    def where(self) -> str:
        """The URL for messages, without user, password and query."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    @cached_property
    def redactor(self) -> Redactor:
        """Removes the token and the query values of the URL from text."""
        return build_redactor(self.url, self.token)

    def describe_session(self, kind: ServerKind, session_id: str | None) -> dict[str, Any]:
        """Return the description of a session for its rollout."""
        named = {} if session_id is None else {"session_id": session_id}
        return {"kind": kind, "base_url": self.where, **named}

    def at(self, path: str) -> str:
        """Return the URL of `path` below the server URL, with its query."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))

    def headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the headers of a request: those of all requests, and `more`."""
        own = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        # Identity: avoids the cost of decompression, and zip bombs.
        return {"Accept-Encoding": "identity", **own, **(more or {})}

    async def ask(
        self,
        method: str,
        url: str,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> ServerResponse:
        """Send one request, with `body` as JSON or raw bytes, and read the whole answer.

        Raises `ConnectionFailed`, `TimedOut` or `InvalidResponse`; the
        caller checks the status.
        """
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        data: bytes | BytesIO | None = None
        if body is not None:
            data = body if isinstance(body, bytes) else to_json(body)
            # aiohttp warns about large bodies unless it can send them in pieces.
            data = data if len(data) <= _MAX_INLINE_BODY_BYTES else BytesIO(data)
        kind = {} if data is None else {"Content-Type": "application/json"}
        try:
            async with self.http.request(
                method,
                url,
                data=data,
                headers=self.headers({**kind, **(headers or {})}),
                timeout=aiohttp.ClientTimeout(total=wait_s),
                # A redirect could send the token to another host.
                allow_redirects=False,
            ) as response:
                content = b"".join([piece async for piece in self.iterate_chunks(response)])
                if 300 <= response.status < 400:
                    raise self.build_redirect_error(response.status)
                return ServerResponse(
                    response.status, response.headers, content, self.where, self.redactor
                )
        except TimeoutError:
            fault: EnvironmentFault = TimedOut(
                f"the server did not answer within {wait_s:g} s",
                where=self.where,
                hint=STEP_TIMEOUT_HINT,
            )
        except (aiohttp.ClientError, OSError, EOFError) as error:
            fault = self.build_connection_error(error)
        # Outside the handlers: the original exceptions may quote the URL with its query.
        raise fault

    def build_connection_error(self, error: Exception) -> ConnectionFailed:
        """Return the fault for a failed connection."""
        reason = getattr(error, "os_error", None) or error
        cause = getattr(reason, "strerror", None) or type(error).__name__
        return ConnectionFailed(
            f"the connection failed: {cause}",
            where=self.where,
            hint="check that the environment server is running, and see its log",
        )

    async def iterate_chunks(self, response: "ClientResponse") -> AsyncIterator[bytes]:
        """Yield the body of an answer. Raises `InvalidResponse` if it is over the limit."""
        size = 0
        while piece := await response.content.readany():
            size += len(piece)
            if size > MAX_SERVER_RESPONSE_BYTES:
                response.close()
                raise InvalidResponse(
                    f"the answer is longer than {MAX_SERVER_RESPONSE_BYTES} bytes",
                    where=self.where,
                )
            yield piece

    def build_redirect_error(self, status: int) -> InvalidResponse:
        return InvalidResponse(
            f"the server redirects to another address (HTTP {status})",
            where=self.where,
            hint="redirects are not followed: pass the final address",
        )


class RedirectRefused(Exception):
    """A redirect that aiohttp was about to follow."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


def open_http_session() -> "ClientSession":
    """Open the HTTP session of all episodes at one server."""

    async def refuse_redirect(
        session: "ClientSession", context: object, redirect: aiohttp.TraceRequestRedirectParams
    ) -> None:
        redirect.response.close()
        raise RedirectRefused(redirect.response.status)

    # Only so can aiohttp be kept from following the redirect of a WebSocket.
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(refuse_redirect)
    # No connection limit: the number of rollouts is limited elsewhere. No cookies, proxies or
    # netrc: neither the server nor the home folder may change a request.
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        trace_configs=[trace],
    )


def build_redactor(url: str, token: str | None) -> Redactor:
    """Return a redactor for the token of a server and the query values of its URL."""
    query = urlsplit(url).query
    written = [pair.partition("=")[2] for pair in query.split("&")]
    # As written and decoded: a server may echo either form.
    return Redactor([token or "", query, *written, *map(unquote_plus, written)])


def normalize_server_url(url: str) -> str:
    """Return the URL of a server in normal form. Raises `ConfigError` for an invalid one."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    # urlsplit accepts these; HTTP libraries disagree on their meaning.
    plain = url.isprintable() and " " not in url and "\\" not in url
    if not known or not plain:
        raise ConfigError(
            "the address of an environment server must be an http, https, ws or wss URL",
            hint="write it like http://127.0.0.1:8000",
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "the address of an environment server contains a user or a password",
            where=parts.hostname,
            hint="pass the secret as `token`",
        )
    return urlunsplit(parts._replace(path=parts.path.rstrip("/"), fragment=""))
