"""Threads that never keep the process from ending, and that end in good order when it does."""

import asyncio
import atexit
import time
from collections.abc import Callable, Sequence
from threading import Event, Lock, Thread
from typing import Any, TypeVar

_JOIN_TIMEOUT_S = 5.0
_Value = TypeVar("_Value")


class ExitGroup:
    """Lets threads end before the interpreter does: one inside torch would abort the process."""

    def __init__(self) -> None:
        self._asked = Event()
        self._threads: set[Thread] = set()
        self._lock = Lock()
        atexit.register(self.say)

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def start(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread that ends with the process, whatever it is doing."""

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

    def say(self) -> None:
        """Ask every thread to end, and wait for them a little."""
        self._asked.set()
        until = time.monotonic() + _JOIN_TIMEOUT_S
        with self._lock:
            waiting = list(self._threads)
        for thread in waiting:
            thread.join(max(until - time.monotonic(), 0.0))


EXIT_GROUP = ExitGroup()


async def run_in_thread(work: Callable[[], _Value]) -> _Value:
    """What `work` returns, done in a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Value] = loop.create_future()

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # carried to whoever waits, not handled here
            deliver(loop, [(future, error)])
        else:
            deliver(loop, [(future, value)])

    EXIT_GROUP.start(run)
    return await future


def deliver(
    loop: asyncio.AbstractEventLoop, ends: Sequence[tuple[asyncio.Future[Any], Any]]
) -> None:
    """Resolve futures of a loop from another thread. A loop that is closed wants nothing."""

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
