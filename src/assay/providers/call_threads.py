"""Daemon threads for user code that may block, called from an event loop.

Calls and results are handed over in batches: one wake-up of the loop serves every call that ended
meanwhile, which costs a fraction of a wake-up per call.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from inspect import iscoroutine
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")

# Calls that wait for longer than this are blocked behind slow ones: every call gets a thread.
_STALL_S = 0.002
# Calls that a thread ends within `_STALL_S` when the function is fast.
_FAST_CALLS = 4
# Abandoned calls (timed out, still running) that are replaced by a new thread. Python cannot stop
# a thread, so without a limit a function that hangs would start one thread for every sample.
_MAX_ABANDONED_THREADS = 256


class LoopMailbox:
    """Runs callbacks of other threads in an event loop, many for one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._callbacks: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self._is_collecting = False

    def post_from_loop(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop soon, with all that the running loop posts in this turn."""
        self._callbacks.append(callback)
        if not self._is_collecting:
            self._is_collecting = True
            asyncio.get_running_loop().call_soon(self._send_collected)

    def _send_collected(self) -> None:
        self._is_collecting = False
        self._schedule()

    def post(self, callback: Callable[[], None]) -> bool:
        """Run `callback` in the loop soon. Returns False if the loop is closed."""
        self._callbacks.append(callback)
        return self._schedule()

    def _schedule(self) -> bool:
        if self._is_scheduled:
            return True
        self._is_scheduled = True
        try:
            self.loop.call_soon_threadsafe(self._run_callbacks)
        except RuntimeError:
            return False
        return True

    def _run_callbacks(self) -> None:
        # Reset first: a callback posted from here on schedules another wake-up.
        self._is_scheduled = False
        callbacks = self._callbacks
        while callbacks:
            callbacks.popleft()()


class CallThreads:
    """A pool of daemon threads that serves one event loop.

    It starts with one thread and grows to `most` while calls are blocked. Unlike the threads of an
    executor, they never delay the exit of the process.
    """

    def __init__(self, most: int, *, role: str) -> None:
        self._most = most
        self._role = role
        self._calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._mailbox: LoopMailbox | None = None
        self._unsent: list[_Call[Any]] = []
        self._started = 0
        self._lost = 0
        self._lock = threading.Lock()
        self._waiting = 0
        self._ended = 0
        self._is_watching = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process starts threads of its own.
        return (partial(CallThreads, role=self._role), (self._most,))

    async def run(self, work: Callable[[], _Value]) -> _Value:
        """Run `work` in a thread. When cancelled, the thread is abandoned and replaced."""
        if self._mailbox is None:
            self._mailbox = LoopMailbox(asyncio.get_running_loop())
        loop = self._mailbox.loop
        call: _Call[_Value] = _Call(work, loop.create_future(), self._mailbox)
        self._waiting += 1
        if not self._started:
            self._start_thread()
        elif self._waiting > self._started and not self._is_watching:
            self._is_watching = True
            loop.call_later(_STALL_S, self._grow, self._ended)
        # Calls of one turn of the loop are handed over together: a thread that wakes up for each of
        # them would compete with the loop for the GIL.
        if not self._unsent:
            loop.call_soon(self._send_calls)
        self._unsent.append(call)
        try:
            return await call.future
        except asyncio.CancelledError:
            if call.future.done() and not call.future.cancelled() and not call.future.exception():
                _discard(call.future.result())
            with self._lock:
                if call.started and not call.ended and self._lost < _MAX_ABANDONED_THREADS:
                    # Allow a replacement: calls that never return would block all others.
                    call.lost = True
                    self._lost += 1
                    self._started -= 1
            raise
        finally:
            self._waiting -= 1
            self._ended += 1

    def _send_calls(self) -> None:
        unsent, self._unsent = self._unsent, []
        for call in unsent:
            self._calls.put(call)

    def _grow(self, ended_before: int) -> None:
        """Start threads for the calls that are blocked behind slow ones."""
        self._is_watching = False
        blocked = self._waiting - self._started
        if blocked <= 0 or self._started >= self._most:
            return
        if self._ended - ended_before >= _FAST_CALLS * self._started:
            # The threads keep up: more of them would only compete for the GIL.
            blocked = 0
        for _ in range(min(blocked, self._most - self._started)):
            self._start_thread()
        if self._waiting > self._started and self._mailbox is not None:
            self._is_watching = True
            self._mailbox.loop.call_later(_STALL_S, self._grow, self._ended)

    def _start_thread(self) -> None:
        self._started += 1
        threading.Thread(target=self._serve, name=f"assay-{self._role}", daemon=True).start()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run(self._role)
            with self._lock:
                # Together: a thread that is not counted any more would never be told to end.
                call.ended = True
                if call.lost:
                    self._lost -= 1
                    return

    def close(self) -> None:
        """Stop the threads after the calls that are queued. The pool can be used again."""
        self._send_calls()
        for _ in range(self._started):
            self._calls.put(None)
        self._started, self._mailbox = 0, None


class _Call(Generic[_Value]):
    """A queued call and the future of its result."""

    __slots__ = ("_error", "_mailbox", "_value", "_work", "ended", "future", "lost", "started")

    def __init__(
        self, work: Callable[[], _Value], future: asyncio.Future[_Value], mailbox: LoopMailbox
    ) -> None:
        self._work = work
        self._mailbox = mailbox
        self._value: Any = None
        self._error: BaseException | None = None
        self.future = future
        self.started = self.ended = self.lost = False

    def run(self, role: str) -> None:
        self.started = True
        if self.future.cancelled():
            return
        try:
            self._value = self._work()
        except StopIteration as caught:
            # asyncio refuses StopIteration as the exception of a future: the caller would hang.
            self._error = RuntimeError(f"the {role} raised StopIteration")
            self._error.__cause__ = caught
        except BaseException as caught:
            self._error = caught
        if not self._mailbox.post(self._resolve):
            _discard(self._value)  # the loop was closed before the call returned

    def _resolve(self) -> None:
        if self.future.done():
            _discard(self._value)
        elif self._error is None:
            self.future.set_result(self._value)
        else:
            self.future.set_exception(self._error)


def _discard(value: object) -> None:
    # A coroutine that is neither awaited nor closed is reported as a RuntimeWarning.
    if iscoroutine(value):
        value.close()
