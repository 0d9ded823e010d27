"""Ctrl-C and SIGTERM: once to finish what is in flight, twice to stop now."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import NoReturn

from assay.evaluation import Stop

from .exit_status import INTERRUPTED
from .progress import Display

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopping_on_signals(stop: Stop, display: Display) -> Iterator[None]:
    """Inside of it the signals ask `stop` to end the run, rather than ending the process."""
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        # Where the loop knows no signals, Ctrl-C cancels the run: nothing recorded is lost.
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, _ask, stop, display)
    try:
        yield
    finally:
        for number in _SIGNALS:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)


def _ask(stop: Stop, display: Display) -> None:
    asked_before, at_once_before = stop.requested, stop.at_once
    if at_once_before:
        # Asked for the third time: something does not let go. What is committed is safe.
        os._exit(INTERRUPTED)
    stop.request()
    if asked_before:
        display.say("stopping now")
    else:
        display.say(
            f"stopping: samples in flight have {stop.grace_s:g} s to end; again to stop now"
        )


def leave_now() -> NoReturn:
    """End the process without waiting for threads: a scorer may still be busy in one."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(INTERRUPTED)


@asynccontextmanager
async def ticking(display: Display, *, every_s: float = 1.0) -> AsyncIterator[None]:
    """Inside of it the display is told that time goes on."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(every_s)
            display.tick()

    task = asyncio.create_task(tick())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
