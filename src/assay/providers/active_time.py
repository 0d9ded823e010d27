"""A stopwatch that pauses while a request is queued for a slot.

How long a request is queued depends on assay's own concurrency limit, not on the model or the
agent. Queue time therefore counts neither as latency nor towards time limits.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from threading import get_ident
from typing import Self

_current_timer: ContextVar["ActiveTimer | None"] = ContextVar("active_timer", default=None)


class ActiveTimer:
    """The active time of the code inside `with ActiveTimer()` and of the tasks started there.

    It pauses while one of their requests is queued; overlapping waits count once. Waits inside a
    nested timer count for both. It may be entered again for the next part of the same work.
    """

    waited_s = 0.0
    _waits = 0
    _stopped_at = 0.0
    _timeouts: tuple[asyncio.Timeout, ...] = ()
    _names: tuple[str, ...] = ()
    _paused_timeouts: tuple[tuple[asyncio.Timeout, float], ...] = ()

    def __init__(self) -> None:
        self.began_at = time.perf_counter()
        self._outer = _current_timer.get()
        self._thread = get_ident()

    def __enter__(self) -> Self:
        self._token = _current_timer.set(self)
        return self

    def __exit__(self, *_: object) -> None:
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
        """Raise `TimeoutError` inside once `spent_s` exceeds `seconds`.

        asyncio timeouts fire only at await points. Ask the yielded timeout whether it expired.
        `name` is the setting that the limit comes from.
        """
        async with asyncio.timeout(seconds - self.spent_s) as timeout:
            self._timeouts, self._names = (*self._timeouts, timeout), (*self._names, name)
            try:
                yield timeout
            finally:
                index = self._timeouts.index(timeout)
                self._timeouts = self._timeouts[:index] + self._timeouts[index + 1 :]
                self._names = self._names[:index] + self._names[index + 1 :]

    def list_expired_limits(self) -> list[str]:
        """Names of the expired limits of this timer and of those around it."""
        names: list[str] = []
        timer: ActiveTimer | None = self
        while timer is not None:
            pairs = zip(timer._names, timer._timeouts, strict=True)
            names += [name for name, timeout in pairs if timeout.expired()]
            timer = timer._outer
        return names

    def _pause(self) -> None:
        self._waits += 1
        if self._waits > 1:
            return
        self._stopped_at = time.perf_counter()
        # asyncio has no pausable timeout: deadlines are removed here, and set anew in `_resume`.
        for timeout in self._timeouts:
            due = timeout.when()
            if due is not None and not timeout.expired():
                timeout.reschedule(None)
                self._paused_timeouts = (*self._paused_timeouts, (timeout, due))

    def _resume(self) -> None:
        self._waits -= 1
        if self._waits:
            return
        waited_s = time.perf_counter() - self._stopped_at
        self.waited_s += waited_s
        for timeout, due in self._paused_timeouts:
            if timeout in self._timeouts:  # else its block has ended meanwhile
                timeout.reschedule(due + waited_s)
        self._paused_timeouts = ()


@contextmanager
def pause_while_queued() -> Iterator[None]:
    """Pause the timers around the caller."""
    # A thread may inherit the context together with its work. The timeouts of another thread's
    # event loop cannot be rescheduled from there.
    thread, timer = get_ident(), _current_timer.get()
    paused: list[ActiveTimer] = []
    while timer is not None:
        if timer._thread == thread:
            timer._pause()
            paused.append(timer)
        timer = timer._outer
    try:
        yield
    finally:
        for timer in paused:
            timer._resume()
