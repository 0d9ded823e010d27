"""Live updates as server-sent events: one for each change, until no more are expected.

A stream ends by itself after some minutes; browsers then reconnect with the id of the last event,
and are sent another one only if something has changed since.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from assay.errors import AssayError

from .page import ViewContext, find_context

_POLL_S = 0.5
# How soon a stream ends after the server is stopped.
_STOP_POLL_S = 0.1
_PING_S = 15.0
_LONGEST_S = 600.0
_MAX_STREAMS = 32
# The interval grows with the time that a look takes, so that a slow store is not kept busy.
_REST_FACTOR = 10
_RETRY_MS = 2000


@dataclass(frozen=True)
class Change:
    """The state of something that is watched."""

    revision: str
    """Changes whenever the state does; the id of the event."""

    data: dict[str, Any]
    is_last: bool
    """Whether no further change is expected."""


ReadChange = Callable[[str], Change | None]
"""Returns the state if its revision differs from the given one, else None."""


def stream_changes(request: Request, read: ReadChange) -> StreamingResponse:
    """Send a `change` event for each change, then an `end` event after the last one."""
    context = find_context(request)
    seen = request.headers.get("last-event-id", "")[:200]
    return _CountedStream(
        _send_events(context, read, seen),
        request.app.state.streams,
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


class _CountedStream(StreamingResponse):
    """A stream that is counted while it is sent, and refused if too many are open."""

    def __init__(self, events: AsyncIterator[str], streams: dict[str, int], **others: Any) -> None:
        super().__init__(events, **others)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Counted here, not by the pages, which run in several threads, nor by the events, which
        # may never start: a browser may have gone before the first one. The event loop runs the
        # comparison and the count without a break.
        if self._streams["open"] >= _MAX_STREAMS:
            raise HTTPException(503, "too many pages are open; close some")
        self._streams["open"] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams["open"] -= 1


async def _send_events(context: ViewContext, read: ReadChange, seen: str) -> AsyncIterator[str]:
    started = pinged = time.monotonic()
    yield f"retry: {_RETRY_MS}\n\n"
    while not context.stopping.is_set() and time.monotonic() - started < _LONGEST_S:
        looked = time.monotonic()
        try:
            change = await run_in_threadpool(read, seen)
        except AssayError:
            # A store that is locked or gone. The browser connects again.
            return
        took = time.monotonic() - looked
        if change is not None:
            seen = change.revision
            yield _format_event("change", seen, change.data)
            if change.is_last:
                yield _format_event("end", seen, change.data)
                return
        elif time.monotonic() - pinged > _PING_S:
            pinged = time.monotonic()
            yield ": still here\n\n"
        rest = time.monotonic() + max(_POLL_S, _REST_FACTOR * took)
        while time.monotonic() < rest and not context.stopping.is_set():
            await asyncio.sleep(_STOP_POLL_S)


def _format_event(name: str, revision: str, data: dict[str, Any]) -> str:
    return f"id: {revision}\nevent: {name}\ndata: {json.dumps(data)}\n\n"
