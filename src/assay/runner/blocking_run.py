"""Coroutines run to their end by synchronous code, also inside a running event loop."""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from types import FrameType
from typing import Any, Generic, TypeVar

from .run_progress import Stop

Result = TypeVar("Result")


def run_blocking(
    start: Callable[[], Coroutine[Any, Any, Result]], *, thread_name: str, stop: Stop | None = None
) -> Result:
    """Run the coroutine that `start` returns, and return its result.

    Inside a running event loop it gets a thread and an event loop of its own, and the caller's loop
    waits. Ctrl-C cancels it, waits for its end and raises `KeyboardInterrupt`; a signal handler of
    the user's own that requests the `stop` is left to do that.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(start())
    work = _ThreadedWork(start)
    with ThreadPoolExecutor(1, thread_name_prefix=thread_name) as threads:
        try:
            with _interrupt_on_ctrl_c(stop):
                return threads.submit(copy_context().run, asyncio.run, work.run()).result()
        except KeyboardInterrupt:
            # Raised here, in the main thread; the other one would not notice.
            work.cancel()
            raise


class _ThreadedWork(Generic[Result]):
    """A coroutine in the event loop of another thread."""

    def __init__(self, start: Callable[[], Coroutine[Any, Any, Result]]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._task: asyncio.Task[Result] | None = None

    async def run(self) -> Result:
        with self._lock:
            if self._is_cancelled:
                raise asyncio.CancelledError
            self._task = asyncio.ensure_future(self._start())
        return await self._task

    def cancel(self) -> None:
        """Cancel the work, from any thread, whether or not it has begun."""
        with self._lock:
            self._is_cancelled = True
            if self._task is not None:
                # A closed loop has nothing left to cancel.
                with suppress(RuntimeError):
                    self._task.get_loop().call_soon_threadsafe(self._task.cancel)


@contextmanager
def _interrupt_on_ctrl_c(stop: Stop | None) -> Iterator[None]:
    """Raise `KeyboardInterrupt` on Ctrl-C, whichever handler is installed.

    That of an event loop only schedules work in the loop, which waits for this call: Ctrl-C would
    have no effect before the end.
    """
    is_main = threading.current_thread() is threading.main_thread()
    usual = signal.getsignal(signal.SIGINT) if is_main else None
    if usual is signal.default_int_handler or not callable(usual):
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        usual(number, frame)
        if stop is None or not stop.requested:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, usual)
