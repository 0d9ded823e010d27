"""Blocking calls of async code, which can be made and interrupted in a running event loop."""

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")

_SIGNAL_CHECK_S = 0.2


def run_blocking(work: Coroutine[Any, Any, ResultT], *, thread_name: str) -> ResultT:
    """Run `work` in an event loop of its own, and return its result.

    Inside a running event loop, as in a notebook, that is in a thread, and the caller's loop waits.
    Ctrl-C cancels the work.
    """
    if not _is_in_loop():
        return asyncio.run(work)
    tasks: list[asyncio.Task[Any]] = []
    interrupted = threading.Event()
    result: Future[ResultT] = Future()

    async def run_as_task() -> ResultT:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        # The interrupt may have come before there was a task to cancel.
        if interrupted.is_set():
            task.cancel()
        return await work

    def run_in_thread(context: Context) -> None:
        try:
            result.set_result(context.run(asyncio.run, run_as_task()))
        except BaseException as error:
            result.set_exception(error)

    # Not an executor: it loses a thread whose start is interrupted.
    thread = threading.Thread(target=run_in_thread, args=[copy_context()], name=thread_name)
    with raise_on_ctrl_c():
        try:
            thread.start()
            # In short waits: a signal that another thread receives, or that arrives just before
            # the wait, does not end it.
            while not result.done():
                wait([result], timeout=_SIGNAL_CHECK_S)
            return result.result()
        except KeyboardInterrupt:
            # Raised here, in the main thread; the work would not notice.
            interrupted.set()
            for task in tasks:
                with suppress(RuntimeError):  # the work has just ended, and its loop is closed
                    task.get_loop().call_soon_threadsafe(task.cancel)
            raise
        finally:
            if thread.ident is not None:
                wait([result])
                thread.join()


def _is_in_loop() -> bool:
    # Not in the caller: its errors would be shown as raised while handling this one.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def raise_on_ctrl_c() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on Ctrl-C while the block keeps a running event loop waiting.

    There asyncio and Jupyter only cancel the loop's current task, which is the one that waits: the
    first Ctrl-C would be lost. Handlers of others are left alone.
    """
    handler = signal.getsignal(signal.SIGINT)
    module = getattr(getattr(handler, "func", handler), "__module__", None) or ""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or (module != "asyncio.runners" and module.partition(".")[0] != "ipykernel"):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
