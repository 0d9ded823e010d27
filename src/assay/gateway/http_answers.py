"""Answers of the gateway over HTTP: bodies, event streams and errors in the agent's API."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from math import ceil
from typing import Any

from aiohttp import web
from pydantic_core import to_json

from assay.formats import KEEP_ALIVE

from .dialects import Dialect
from .recorded_call import RecordedCall

# Proxies cut connections that are idle for some minutes.
KEEP_ALIVE_S = 15.0
NO_RETRY = {"x-should-retry": "false"}
"""Asks the clients of OpenAI and Anthropic not to retry an error."""


class CallRefused(Exception):
    """A call without an answer, as the agent is to see it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.is_free = True
        """Whether nothing is paid for it. False: the model may have worked on the answer."""

        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(ceil(retry_after_s))

    def build_body(self, dialect: Dialect) -> dict[str, Any]:
        """Return the body in the agent's API."""
        return dialect.write_error(self.status, self.message, self.code)


async def respond_error(
    request: web.Request, refused: CallRefused, dialect: Dialect
) -> web.StreamResponse:
    """Respond with an error: as a response of its own, or at the end of a stream that has begun."""
    started: EventResponse | None = request.get(STREAM_KEY)
    if started is None:
        return respond_json(refused.build_body(dialect), refused.status, refused.headers)
    await started.write(dialect.write_error_event(refused.build_body(dialect)))
    return started.abort()


def respond_json(
    body: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Build a response with a JSON body."""
    data = body if isinstance(body, bytes) else to_json(body)
    return web.Response(body=data, status=status, headers=headers, content_type="application/json")


class EventResponse:
    """An event stream to the agent, which may have closed its connection."""

    def __init__(self, request: web.Request, headers: Mapping[str, str] | None = None) -> None:
        self._request = request
        fixed = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        self.response = web.StreamResponse(headers={**(headers or {}), **fixed})
        self.is_started = False
        self._gone = False
        self._held = b""

    async def start(self, *, at_once: bool = False) -> None:
        """Send the headers: at once, or together with the first bytes."""
        self.is_started = True
        self._request[STREAM_KEY] = self
        # One packet less for each call. aiohttp has no public name for it.
        self.response._send_headers_immediately = at_once
        try:
            await self.response.prepare(self._request)
        except ConnectionError:
            self._gone = True

    async def write(self, data: bytes, *, is_last: bool = False) -> None:
        """Send bytes, after the headers; the last ones together with the end, unless others follow.

        An agent that has left is ignored: its call is recorded to the end.
        """
        if not self.is_started:
            await self.start()
        data, self._held = self._held + data, b""
        if is_last:
            self._held = data
        elif not self._gone:
            try:
                await self.response.write(data)
            except ConnectionError:
                self._gone = True

    async def end(self) -> web.StreamResponse:
        """End the stream."""
        if not self._gone:
            try:
                await self.response.write_eof(self._held)
            except ConnectionError:
                self._gone = True
        return self.response

    def abort(self) -> web.StreamResponse:
        """Close the connection without the end of the body, so that it cannot look complete."""
        if self._request.transport is not None:
            self._request.transport.close()
        return self.response


STREAM_KEY = web.RequestKey("stream", EventResponse)


@asynccontextmanager
async def keep_alive(response: EventResponse) -> AsyncIterator[None]:
    """Send comments while the block runs, so that proxies keep the connection.

    The first one sends the status: a later error can only be an event.
    """

    async def send_comments() -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_S)
            await response.write(KEEP_ALIVE)

    task = asyncio.create_task(send_comments())
    try:
        yield
    finally:
        task.cancel()


async def stream_answer(
    request: web.Request,
    call: RecordedCall,
    body: Mapping[str, Any],
    given: dict[str, Any] | Awaitable[dict[str, Any]],
) -> web.StreamResponse:
    """Send a whole answer, or one that is awaited, as the event stream that the agent asked for."""
    response = EventResponse(request)
    if isinstance(given, dict):
        answer = given
    else:
        async with keep_alive(response):
            answer = await given
    call.note_first_byte()
    await response.write(b"".join(call.dialect.write_events(answer, body)), is_last=True)
    return await response.end()
