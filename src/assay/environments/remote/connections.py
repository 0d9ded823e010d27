"""Connections to a server that bring no request: closed after a while, and first when many wait."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Middleware

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

KEEP_ALIVE_S = 75.0
"""Longer than clients keep a connection, so that they are the ones who close it."""

_BODY_TIMEOUT_S = 60.0
_MAX_SWEEP_INTERVAL_S = 0.5


class Connections:
    """Watches the connections of one server.

    One that has not brought a whole head of a request within `header_s` is closed; one that has,
    after `KEEP_ALIVE_S` without another request. Where more than `most_idle` have no request under
    way, those that never brought anything are closed first, then those whose body is still
    awaited, then the others, the oldest first.
    """

    def __init__(self, *, header_s: float, most_idle: int) -> None:
        self._header_s = header_s
        self._most_idle = most_idle
        self._busy: dict[int, int] = {}
        self._awaiting_body: dict[int, float] = {}
        self._idle_since: dict[int, float] = {}
        self._served: set[int] = set()

    def middleware(self) -> "Middleware":
        """Reads the body of each request, and notes which connections have one under way."""

        @web.middleware
        async def note(request: web.Request, handler: "Handler") -> web.StreamResponse:
            connection = id(request.protocol)
            # Half a body is no request yet: it must not hold a connection that others wait for.
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
        """Close what has been idle for too long, and what is too much."""
        self._forget(set(map(id, connections)))
        idle = [each for each in connections if not self._busy.get(id(each))]
        for each in idle:
            self._idle_since.setdefault(id(each), now)
        # The first to be closed come last.
        idle.sort(key=lambda each: self._rank(id(each)))
        for place, each in enumerate(idle):
            late = now - self._idle_since[id(each)] >= self._find_limit_s(id(each))
            if place >= self._most_idle or late:
                each.force_close()

    def _rank(self, connection: int) -> tuple[int, float]:
        if (since := self._awaiting_body.get(connection)) is not None:
            return 1, -since
        return 0 if connection in self._served else 2, -self._idle_since[connection]

    def _find_limit_s(self, connection: int) -> float:
        if connection in self._awaiting_body:
            return math.inf  # `read_body` has a limit of its own, and answers
        return KEEP_ALIVE_S if connection in self._served else self._header_s

    def _forget(self, there: set[int]) -> None:
        """Let go of connections that are gone: another one may get the same id."""
        self._busy = {key: count for key, count in self._busy.items() if key in there}
        self._awaiting_body = {key: at for key, at in self._awaiting_body.items() if key in there}
        self._idle_since = {key: at for key, at in self._idle_since.items() if key in there}
        self._served &= there


async def read_body(request: "web.Request") -> bytes:
    """The body of a request. One that does not come in time is answered with 408."""
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
