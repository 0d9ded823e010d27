"""A caller's own time: without what it waits for its turn to send a request.

How long that is, assay decides by how many requests it lets out at once. It says nothing about the
model or the agent, and so belongs neither to their latency nor to their limits.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from threading import get_ident
from types import TracebackType
from typing import Self

_current_timer: ContextVar["ActiveTimer | None"] = ContextVar("own_time", default=None)


class ActiveTimer:
    """The time of what is done inside `with OwnTime()`, and of the tasks that are started there.

    It stands still while one of their requests waits for its turn: several that wait at once
    count once. Waits inside an own time within this one count for both. It may be entered again
    for the next part of the same work.
    """

    waited_s = 0.0
    _waits = 0
    _stopped_at = 0.0
    _timers: tuple[asyncio.Timeout, ...] = ()
    _names: tuple[str, ...] = ()
    _paused_timers: tuple[tuple[asyncio.Timeout, float], ...] = ()

    def __init__(self) -> None:
        self.began_at = time.perf_counter()
        self._outer = _current_timer.get()
        self._thread = get_ident()

    def __enter__(self) -> Self:
        self._token = _current_timer.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _current_timer.reset(self._token)

    @property
    def spent_s(self) -> float:
        """Seconds since this was made, without `waited_s`."""
        now = self._stopped_at if self._waits else time.perf_counter()
        return now - self.began_at - self.waited_s

    @asynccontextmanager
    async def limit_time(
        self, seconds: float, *, name: str = "time limit"
    ) -> AsyncIterator[asyncio.Timeout]:
        """Raise `TimeoutError` inside once `spent_s` is over `seconds`; the timer tells if it did.

        As with all timers of asyncio, that is when the code inside next waits for something.
        `name` is the setting that holds the limit.
        """
        async with asyncio.timeout(seconds - self.spent_s) as timer:
            self._timers, self._names = (*self._timers, timer), (*self._names, name)
            try:
                yield timer
            finally:
                place = self._timers.index(timer)
                self._timers = self._timers[:place] + self._timers[place + 1 :]
                self._names = self._names[:place] + self._names[place + 1 :]

    def list_expired_limits(self) -> list[str]:
        """Names of the limits that have cancelled this work, its own and those around it."""
        names: list[str] = []
        own: ActiveTimer | None = self
        while own is not None:
            pairs = zip(own._names, own._timers, strict=True)
            names += [name for name, timer in pairs if timer.expired()]
            own = own._outer
        return names

    def _pause(self) -> None:
        self._waits += 1
        if self._waits > 1:
            return
        self._stopped_at = time.perf_counter()
        for timer in self._timers:
            due = timer.when()
            if due is not None and not timer.expired():
                timer.reschedule(None)
                self._paused_timers = (*self._paused_timers, (timer, due))

    def _resume(self) -> None:
        self._waits -= 1
        if self._waits:
            return
        waited_s = time.perf_counter() - self._stopped_at
        self.waited_s += waited_s
        for timer, due in self._paused_timers:
            if timer in self._timers:  # else what it limited has ended meanwhile
                timer.reschedule(due + waited_s)
        self._paused_timers = ()


@contextmanager
def pause_while_queued() -> Iterator[None]:
    """Stop the own time of the caller, and of everything that it is a part of."""
    stopped = list(_iter_thread_timers())
    for own in stopped:
        own._pause()
    try:
        yield
    finally:
        for own in stopped:
            own._resume()


def _iter_thread_timers() -> Iterator[ActiveTimer]:
    # A thread may be given the context together with its work. The timers of another thread's
    # event loop cannot be set from there.
    thread = get_ident()
    own = _current_timer.get()
    while own is not None:
        if own._thread == thread:
            yield own
        own = own._outer
