"""Idle connections of a server: closed after a timeout, or when there are too many."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from aiohttp.typedefs import Middleware

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# Longer than common clients keep a connection: if the server closed it first, a request that is
# already on its way would be lost.
KEEP_ALIVE_S = 75.0

# Enough for the largest body on a slow line, short enough against stalled senders.
_BODY_TIMEOUT_S = 60.0
_MAX_SWEEP_INTERVAL_S = 0.5


class Connections:
    """The connections of one server, with their timeouts and limits.

    A connection without complete request headers is closed after `header_s`; a used one after
    `KEEP_ALIVE_S` without another request. If more than `most_idle` connections have no active
    request, unused ones are closed first, then those with an incomplete body, then the others, the
    oldest first.
    """

    def __init__(self, *, header_s: float, most_idle: int) -> None:
        self._header_s = header_s
        self._most_idle = most_idle
        self._busy: dict[int, int] = {}
        self._awaiting_body: dict[int, float] = {}
        self._idle_since: dict[int, float] = {}
        self._served: set[int] = set()

    def middleware(self) -> "Middleware":
        """Return middleware that reads each body, and tracks the connections with a request."""

        @web.middleware
        async def note(request: web.Request, handler: "Handler") -> web.StreamResponse:
            # The protocol object is the connection: it is shared by all requests on it.
            connection = id(request.protocol)
            # A request counts only with its whole body: slow senders must not occupy connections.
            self._awaiting_body[connection] = time.monotonic()
            try:
                await read_body(request)
            finally:
                self._awaiting_body.pop(connection, None)
            self._busy[connection] = self._busy.get(connection, 0) + 1
            try:
                return await handler(request)
            finally:
                self._busy[connection] = max(self._busy.get(connection, 0) - 1, 0)
                self._served.add(connection)
                self._idle_since[connection] = time.monotonic()

        return note

    @asynccontextmanager
    async def close_idle(self, server: "web.Server") -> AsyncIterator[None]:
        """Close idle connections while the block runs."""
        task = asyncio.create_task(self._watch(server))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _watch(self, server: "web.Server") -> None:
        while True:
            await asyncio.sleep(min(self._header_s / 2, _MAX_SWEEP_INTERVAL_S))
            self.sweep(server.connections, time.monotonic())

    def sweep(self, connections: "list[Any]", now: float) -> None:
        """Close connections that are idle for too long or over the limit."""
        # The state of closed connections is dropped: a new object may get the same id.
        alive = set(map(id, connections))
        self._busy = {key: count for key, count in self._busy.items() if key in alive}
        self._awaiting_body = {key: at for key, at in self._awaiting_body.items() if key in alive}
        self._idle_since = {key: at for key, at in self._idle_since.items() if key in alive}
        self._served &= alive
        idle = [each for each in connections if not self._busy.get(id(each))]
        for each in idle:
            self._idle_since.setdefault(id(each), now)
        # Sorted so that the first to close come last.
        idle.sort(key=lambda each: self._rank(id(each)))
        for index, each in enumerate(idle):
            if id(each) in self._awaiting_body:
                limit_s = math.inf  # `read_body` has its own timeout, and answers with 408
            else:
                limit_s = KEEP_ALIVE_S if id(each) in self._served else self._header_s
            late = now - self._idle_since[id(each)] >= limit_s
            if index >= self._most_idle or late:
                each.force_close()

    def _rank(self, connection: int) -> tuple[int, float]:
        if (since := self._awaiting_body.get(connection)) is not None:
            return 1, -since
        return 0 if connection in self._served else 2, -self._idle_since[connection]


async def read_body(request: "web.Request") -> bytes:
    """Read the body of a request. A timeout is answered with 408, an undecodable body with 400."""
    try:
        if request.content.is_eof():
            return await request.read()  # it has arrived
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    except web.RequestPayloadError:
        # Otherwise aiohttp reads the rest, and logs the same error with a traceback.
        request.content.feed_eof()
        text = "the body cannot be decoded; check its Content-Encoding"
        raise web.HTTPBadRequest(text=text) from None
