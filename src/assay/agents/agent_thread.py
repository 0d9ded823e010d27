"""Where async agents run: a loop in a thread of its own.

An agent that blocks, or that refuses to be cancelled, keeps nobody waiting there but itself.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable

from assay.types import describe_error

from .certified_agent import AgentFault

_CANCEL_TIMEOUT_S = 5.0


class AgentLoop:
    """One loop for all calls of an agent, so that its clients can be used again."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, value: Awaitable[object]) -> tuple[object, float]:
        """What an awaitable comes to, and the seconds it took once it was begun."""
        self._loop = self._loop or _start_loop_thread()
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(_await_timed(value), self._loop)
        )

    def close(self) -> None:
        """Let the thread end. One that is still busy dies with the process."""
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
            raise  # nobody waits for it any more
        # An exit would end the loop, and a cancellation of its own look like one of ours.
        raise AgentFault(describe_error(error)) from error


def _start_loop_thread() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()

    def work() -> None:
        loop.run_forever()
        loop.close()

    threading.Thread(target=work, name="assay-agent-loop", daemon=True).start()
    return loop


async def _stop_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Stop a loop when what runs in it lets itself be cancelled."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, left = await asyncio.wait(left, timeout=_CANCEL_TIMEOUT_S)
    if not left:
        loop.stop()
