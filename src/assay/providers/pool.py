"""A pool of keep-alive connections, shared by all clients of one event loop.

HTTP/1.1, one request at a time per connection. No redirects, no proxies (see `proxy_session.py`)
and no cookies: neither a server nor the home folder may change a request.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from aiohappyeyeballs import start_connection
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

_CONNECT_TIMEOUT_S = 30.0
# Older idle connections are closed: a proxy or firewall on the way may have dropped them.
_IDLE_TIMEOUT_S = 30.0
_DNS_CACHE_S = 60.0
_HAPPY_EYEBALLS_DELAY_S = 0.25
_MAX_HEAD_BYTES = 256 * 1024
# `Pool.close` waits at most this many iterations of the event loop for sockets to close.
_MAX_CLOSE_TICKS = 100

BodyLimit = Callable[[int], int]
"""The maximum number of body bytes to read, by HTTP status."""


class ConnectionBroken(Exception):
    """The connection was lost, or the data was not HTTP, before the answer was complete."""


class ConnectTimeout(ConnectionBroken):
    """Connecting took too long."""


class Origin(NamedTuple):
    """The host and port of a server."""

    host: str
    port: int
    tls: bool


class RawResponse(NamedTuple):
    """A response as received."""

    status: int
    headers: dict[bytes, bytes]
    """By lower-case name; the last value of a repeated header."""

    body: bytes
    cut: bool
    """Whether the body was truncated."""


class Pool:
    """The connections of one event loop. Callers limit their number."""

    def __init__(self, loop: "AbstractEventLoop") -> None:
        self._loop = loop
        self._idle: dict[Origin, deque[Connection]] = {}
        self._open: set[Connection] = set()
        self._lookups: dict[Origin, tuple[float, asyncio.Task[list[Any]]]] = {}
        self._turn = 0
        self._trust: ssl.SSLContext | None = None

    async def exchange(
        self, origin: Origin, request: bytes, *, timeout_s: float, longest: BodyLimit
    ) -> RawResponse:
        """Send one request and wait for its answer.

        Raises `TimeoutError`, `OSError`, `ConnectTimeout` or `ConnectionBroken`. An error status is
        an answer, even if its body is incomplete.
        """
        deadline = self._loop.time() + timeout_s
        connection = self._take_idle(origin) or await self._connect(origin, deadline)
        waiter = connection.ask(request, deadline, longest)
        try:
            return await waiter
        except asyncio.CancelledError:
            connection.give_up(waiter)
            raise

    async def close(self) -> None:
        """Close all connections; pending requests fail."""
        self._idle.clear()
        for _, lookup in self._lookups.values():
            lookup.cancel()
        for connection in list(self._open):
            connection.abort()
        for _ in range(_MAX_CLOSE_TICKS):
            if not self._open:
                return
            # The event loop closes a socket in one of its next iterations.
            await asyncio.sleep(0)

    def rest(self, connection: "Connection") -> None:
        """Keep a connection for the next request to the same origin."""
        idle = self._idle.setdefault(connection.origin, deque())
        idle.append(connection)
        while idle[0].rests_since < connection.rests_since - _IDLE_TIMEOUT_S:
            idle.popleft().abort()

    def forget(self, connection: "Connection") -> None:
        self._open.discard(connection)

    def _take_idle(self, origin: Origin) -> "Connection | None":
        # The most recently used first: it is the least likely to be closed by the server.
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.usable and connection.rests_since > self._loop.time() - _IDLE_TIMEOUT_S:
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: Origin, deadline: float) -> "Connection":
        limit = self._loop.time() + _CONNECT_TIMEOUT_S
        try:
            async with asyncio.timeout_at(min(deadline, limit)):
                sock = await start_connection(
                    await self._addresses(origin),
                    happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY_S,
                    loop=self._loop,
                )
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self, origin, self._loop),
                    sock=sock,
                    ssl=self.get_ssl_context() if origin.tls else None,
                    server_hostname=origin.host if origin.tls else None,
                )
        except TimeoutError:
            if deadline <= limit:
                raise
            raise ConnectTimeout(f"connecting timed out after {_CONNECT_TIMEOUT_S:g} s") from None
        self._open.add(connection)
        return connection

    def get_ssl_context(self) -> ssl.SSLContext:
        """Return the TLS context, with the authorities of the system or `SSL_CERT_FILE`."""
        if self._trust is None:
            self._trust = ssl.create_default_context()
            self._trust.set_alpn_protocols(["http/1.1"])
        return self._trust

    async def _addresses(self, origin: Origin) -> list[Any]:
        # Cached for a minute: hundreds of connections would otherwise flood the resolver.
        with suppress(OSError):
            return socket.getaddrinfo(
                origin.host, origin.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        started, lookup = self._lookups.get(origin, (0.0, None))
        failed = lookup is not None and lookup.done() and (lookup.cancelled() or lookup.exception())
        if lookup is None or failed or started < self._loop.time() - _DNS_CACHE_S:
            lookup = self._loop.create_task(
                self._loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
            )
            self._lookups[origin] = (self._loop.time(), lookup)
        # Shielded: a cancelled caller must not cancel the lookup of the others.
        found = await asyncio.shield(lookup)
        # Rotated, to spread connections over all addresses of a host.
        self._turn += 1
        first = self._turn % len(found)
        return [*found[first:], *found[:first]]


class Connection(asyncio.Protocol):
    """One connection: sends a request and assembles its answer."""

    def __init__(self, pool: Pool, origin: Origin, loop: "AbstractEventLoop") -> None:
        self.origin = origin
        self.usable = False
        self.rests_since = 0.0
        self._pool = pool
        self._loop = loop
        self._transport: asyncio.Transport
        self._waiter: Future[RawResponse] | None = None
        self._timer: asyncio.TimerHandle
        self._not_http = (HttpParserError, HttpParserUpgrade)
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        # Unambiguous deviations of real servers from RFC 9112.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self._reset()

    def _reset(self) -> None:
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._size = 0
        self._received = 0
        self._complete = False
        self._excess = False

    def ask(self, request: bytes, deadline: float, longest: BodyLimit) -> "Future[RawResponse]":
        """Send a request; return a future of its answer, which fails at `deadline`."""
        self._longest = longest
        self._waiter = waiter = self._loop.create_future()
        self._timer = self._loop.call_at(deadline, self._fail, TimeoutError())
        self._transport.write(request)
        return waiter

    def give_up(self, waiter: "Future[RawResponse]") -> None:
        """Abort the connection, unless it already serves the next request."""
        if self._waiter is waiter:
            self._fail(ConnectionBroken("cancelled"))

    def abort(self) -> None:
        self.usable = False
        self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # other loops have their own class
        self.usable = True

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._parser is None:
            self.abort()  # data without a request
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except self._not_http:
            if not self._complete:
                self._fail(ConnectionBroken("not HTTP"))
                return
            self._excess = True  # after a complete answer, which is valid
        if self._complete:
            self._finish_response()
        elif self._status and self._size > self._longest(self._status):
            self._excess = True
            self._finish_response()
        elif self._received - self._size > _MAX_HEAD_BYTES + 8 * self._size:
            # Endless headers or trailers of a chunked body, which the parser would buffer.
            self._fail(ConnectionBroken("headers too large"))

    def eof_received(self) -> None:
        # A body without a length ends with its connection.
        unbounded = self._headers.keys().isdisjoint((b"content-length", b"transfer-encoding"))
        if self._waiter is not None and self._status and unbounded:
            self._excess = True
            self._finish_response()

    def connection_lost(self, error: Exception | None) -> None:
        self.usable = False
        self._pool.forget(self)
        self._fail(error or ConnectionBroken("closed by the server"))
        self._parser = None  # breaks the reference cycle

    # Called by the parser, inside `data_received`.

    def on_message_begin(self) -> None:
        self._excess = self._complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._status:
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:
            self._headers.clear()  # an interim response, such as 103: the answer follows
        elif not self._complete:
            self._status = status

    def on_body(self, data: bytes) -> None:
        if not self._complete and self._size <= self._longest(self._status):
            self._pieces.append(data)
        self._size += len(data)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self._status and not self._complete:
            self._complete = True
            self._excess = not self._parser.should_keep_alive()

    # How a request ends.

    def _finish_response(self) -> None:
        most = self._longest(self._status)
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        cut = len(body) > most
        answer = RawResponse(self._status, self._headers, body[:most] if cut else body, cut)
        reusable = self._complete and not self._excess and not cut
        self._end(answer, reusable=reusable)

    def _fail(self, error: Exception) -> None:
        if self._status not in (0, 200):
            # The status is enough: a 401 with a truncated body is still a denial.
            self._end(RawResponse(self._status, self._headers, b"", cut=True), reusable=False)
        else:
            self._end(error, reusable=False)

    def _end(self, outcome: RawResponse | Exception, *, reusable: bool) -> None:
        waiter, self._waiter = self._waiter, None
        self._reset()
        if waiter is not None:
            self._timer.cancel()
            if waiter.done():
                pass  # cancelled
            elif isinstance(outcome, RawResponse):
                waiter.set_result(outcome)
            else:
                waiter.set_exception(outcome)
        if reusable:
            self.rests_since = self._loop.time()
            self._pool.rest(self)
        else:
            self.abort()
