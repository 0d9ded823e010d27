"""An event loop in a separate thread, for async agents.

An agent that blocks, or that ignores cancellation, stalls only its own loop.
"""

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Coroutine

from assay.providers import LoopMailbox
from assay.types import describe_error

from .agent import AgentFault

# Tasks that ignore cancellation for this long are abandoned to the daemon thread.
_CANCEL_TIMEOUT_S = 5.0


class AgentLoop:
    """One event loop for all calls of an agent, so that its HTTP clients stay usable."""

    def __init__(self) -> None:
        self._inbox: LoopMailbox | None = None
        self._outbox: LoopMailbox | None = None

    async def run(self, value: Awaitable[object]) -> tuple[object, float]:
        """Await `value` in the loop; return its result and the seconds it took once started."""
        if self._inbox is None:
            self._inbox = LoopMailbox(_start_loop())
        loop = asyncio.get_running_loop()
        if self._outbox is None or self._outbox.loop is not loop:
            self._outbox = LoopMailbox(loop)
        call = _LoopCall(value, self._inbox, self._outbox)
        self._inbox.post_from_loop(call.start)
        try:
            return await call.future
        except asyncio.CancelledError:
            if call.future.cancelled():
                self._inbox.post(call.cancel)
            raise

    def close(self) -> None:
        """Stop the loop and its thread. A busy thread ends with the process."""
        if self._inbox is not None:
            loop, self._inbox = self._inbox.loop, None
            asyncio.run_coroutine_threadsafe(_stop_loop(loop), loop)


class _LoopCall:
    """A call in the loop of an agent, and the future of its result in the caller's loop."""

    __slots__ = (
        "_context",
        "_error",
        "_inbox",
        "_outbox",
        "_result",
        "_started",
        "_task",
        "_value",
        "future",
    )

    def __init__(self, value: Awaitable[object], inbox: LoopMailbox, outbox: LoopMailbox) -> None:
        self._value = value
        self._context = contextvars.copy_context()
        self._inbox = inbox
        self._outbox = outbox
        self._task: asyncio.Task[None] | None = None
        self._started = False
        self._result: tuple[object, float] | None = None
        self._error: BaseException | None = None
        self.future: asyncio.Future[tuple[object, float]] = outbox.loop.create_future()

    def start(self) -> None:
        self._task = self._inbox.loop.create_task(self._execute(), context=self._context)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            # A task that is cancelled before its first step never awaits the agent's coroutine,
            # and Python warns of such coroutines.
            if not self._started and isinstance(self._value, Coroutine):
                self._value.close()

    async def _execute(self) -> None:
        self._started = True
        started = time.perf_counter()
        try:
            self._result = await self._value, time.perf_counter() - started
        except Exception as error:
            self._error = error
        except BaseException as error:
            # SystemExit would end the loop. A cancellation inside the agent must not look like
            # the caller's, which cancels the future first.
            self._error = AgentFault(describe_error(error))
            self._error.__cause__ = error
        self._outbox.post_from_loop(self._resolve)

    def _resolve(self) -> None:
        if self.future.done():
            return
        if self._error is not None:
            self.future.set_exception(self._error)
        elif self._result is not None:
            self.future.set_result(self._result)


def _start_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()

    def work() -> None:
        loop.run_forever()
        loop.close()

    threading.Thread(target=work, name="assay-agent-loop", daemon=True).start()
    return loop


async def _stop_loop(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, left = await asyncio.wait(left, timeout=_CANCEL_TIMEOUT_S)
    # With tasks left, stopping would destroy pending tasks and print warnings: leave it running.
    if not left:
        loop.stop()
