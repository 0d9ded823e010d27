"""Daemon threads that are joined at exit: they never block the exit of the process."""

import asyncio
import atexit
import time
from collections.abc import Callable, Sequence
from threading import Event, Lock, Thread
from typing import Any, TypeVar

# Long enough for a batch to notice the shutdown, short enough not to look like a hang.
_JOIN_TIMEOUT_S = 5.0
_Value = TypeVar("_Value")


class ExitGroup:
    """Threads that are asked to stop, and joined, before the interpreter exits."""

    def __init__(self) -> None:
        self._shutdown_event = Event()
        self._threads: set[Thread] = set()
        self._lock = Lock()
        # A thread inside torch while the interpreter is torn down would abort the process.
        atexit.register(self.shutdown)

    @property
    def is_shutting_down(self) -> bool:
        return self._shutdown_event.is_set()

    def start(self, work: Callable[[], None]) -> None:
        """Run `work` in a daemon thread of this group."""

        def run() -> None:
            try:
                work()
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = Thread(target=run, name="assay-local-model", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def shutdown(self) -> None:
        """Ask every thread to stop, and join them with a timeout."""
        self._shutdown_event.set()
        until = time.monotonic() + _JOIN_TIMEOUT_S
        with self._lock:
            waiting = list(self._threads)
        for thread in waiting:
            thread.join(max(until - time.monotonic(), 0.0))


EXIT_GROUP = ExitGroup()


async def run_in_thread(work: Callable[[], _Value]) -> _Value:
    """Run `work` in a daemon thread and return its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Value] = loop.create_future()

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # raised in the awaiting task
            deliver(loop, [(future, error)])
        else:
            deliver(loop, [(future, value)])

    EXIT_GROUP.start(run)
    return await future


def deliver(
    loop: asyncio.AbstractEventLoop, ends: Sequence[tuple[asyncio.Future[Any], Any]]
) -> None:
    """Resolve futures of a loop from another thread; do nothing if the loop is closed."""

    def resolve() -> None:
        for future, value in ends:
            if future.done():
                continue
            if isinstance(value, BaseException):
                future.set_exception(value)
            else:
                future.set_result(value)

    try:
        loop.call_soon_threadsafe(resolve)
    except RuntimeError:
        return
