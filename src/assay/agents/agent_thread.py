"""An event loop in a separate thread, for async agents.

An agent that blocks, or that ignores cancellation, stalls only its own loop.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable

from assay.types import describe_error

from .certified_agent import AgentFault

# Tasks that ignore cancellation for this long are abandoned to the daemon thread.
_CANCEL_TIMEOUT_S = 5.0


class AgentLoop:
    """One event loop for all calls of an agent, so that its HTTP clients stay usable."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, value: Awaitable[object]) -> tuple[object, float]:
        """Await `value` in the loop; return its result and the seconds it took once started."""
        if self._loop is None:
            self._loop = loop = asyncio.new_event_loop()

            def work() -> None:
                loop.run_forever()
                loop.close()

            threading.Thread(target=work, name="assay-agent-loop", daemon=True).start()
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(_await_timed(value), self._loop)
        )

    def close(self) -> None:
        """Stop the loop and its thread. A busy thread ends with the process."""
        if self._loop is not None:
            loop, self._loop = self._loop, None
            asyncio.run_coroutine_threadsafe(_stop_loop(loop), loop)


async def _await_timed(value: Awaitable[object]) -> tuple[object, float]:
    started = time.perf_counter()
    try:
        return await value, time.perf_counter() - started
    except Exception:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # the caller has cancelled this call
        # SystemExit would end the loop. A cancellation inside the agent must not look like the
        # caller's.
        raise AgentFault(describe_error(error)) from error


async def _stop_loop(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, left = await asyncio.wait(left, timeout=_CANCEL_TIMEOUT_S)
    # With tasks left, stopping would destroy pending tasks and print warnings: leave it running.
    if not left:
        loop.stop()
