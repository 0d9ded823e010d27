"""Ctrl-C and SIGTERM: once to finish samples in flight, twice to stop now, thrice to exit."""

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, TypeVar

from assay.runner import Stop

from .exit_status import EXIT_INTERRUPTED
from .output import print_message
from .progress_bar import Display
from .resume import format_resume_hint

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# An event loop that has not handled the second signal by then is blocked by user code.
_LOOP_TIMEOUT_S = 1.0
# A command that has not ended by then waits for something unavailable, such as a store.
_EXIT_TIMEOUT_S = 5.0

_left_open: "list[_SignalListener]" = []

Result = TypeVar("Result")
ResumeCommand = Callable[[], str | None]
"""Returns the command that resumes the interrupted run; None before a run is started."""


@contextmanager
def stop_on_signals(
    stop: Stop, display: Display, resume_command: ResumeCommand | None = None
) -> Iterator[None]:
    """Turn signals into requests to `stop` inside the context, instead of ending the process.

    After a request the handlers stay installed: the command is about to end and to print how to
    resume. `restore_handlers` removes them where the process lives on. Outside the main thread
    handlers cannot be installed, and Ctrl-C cancels the run.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    listener = _SignalListener(stop, display, resume_command)
    try:
        yield
    finally:
        listener.end_run()


def restore_handlers() -> None:
    """Restore the signal handlers that were there before the commands of this process."""
    while _left_open:
        _left_open.pop().close()


class _SignalListener:
    """Handles signals in a thread of its own, even while the main thread is blocked.

    A Python handler runs only when the main thread returns to the interpreter, and one of the
    event loop only when the loop turns. Both may be blocked by a user's dataset or scorer.
    """

    def __init__(self, stop: Stop, display: Display, resume_command: ResumeCommand | None) -> None:
        self._stop = stop
        self._display = display
        self._resume_command = resume_command
        self._loop = asyncio.get_running_loop()
        self._signals = 0
        self._has_ended = False
        self._timers: list[threading.Timer] = []
        self._exit_lock = threading.Lock()
        self._receiver, self._sender = socket.socketpair()
        # Required by `set_wakeup_fd`: a full pipe must not block the signal handler.
        self._sender.setblocking(False)
        self._before: dict[signal.Signals, Any] = {
            number: signal.signal(number, _ignore_signal) for number in _SIGNALS
        }
        self._fd_before = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="assay-signals", daemon=True)
        self._thread.start()
        self._is_open = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset_in_child)

    def end_run(self) -> None:
        """Cancel the forced exits. Restore the handlers unless a signal was received."""
        self._has_ended = True
        for timer in self._timers:
            timer.cancel()
        if self._signals:
            _left_open.append(self)
        else:
            self.close()

    def close(self) -> None:
        """Restore the previous signal handlers."""
        self._is_open = False
        # A closed event loop has closed its own as well.
        signal.set_wakeup_fd(-1 if self._loop.is_closed() else self._fd_before)
        for number, handler in self._before.items():
            if number == signal.SIGINT and self._loop.is_closed() and _is_of_asyncio(handler):
                # `asyncio.run` put it in the place of Python's own, and cannot restore that now.
                handler = signal.default_int_handler
            signal.signal(number, handler or signal.SIG_DFL)  # None: not set from Python
        # Ends the listener: no signal has the number 0.
        self._sender.send(b"\0")
        self._thread.join()
        self._sender.close()
        self._receiver.close()

    def _reset_in_child(self) -> None:
        # A forked child gets the Ctrl-C of its terminal as well: through our socket it would
        # count twice.
        if self._is_open:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    # The methods below run in the listener's thread.

    def _listen(self) -> None:
        while number := self._receiver.recv(1)[0]:
            if number not in _SIGNALS:
                continue
            self._signals += 1
            if self._signals > 2 or (self._signals == 2 and self._has_ended):
                # Something blocks the exit. Committed results are safe.
                self._exit_with_hint()
            elif self._signals == 2:
                self._display.print_line("stopping now")
                self._schedule_exit(self._request_stop())
            else:
                self._request_stop()
                self._display.print_line(
                    f"stopping: samples in flight have {self._stop.grace_s:g} s to end; "
                    "press Ctrl-C again to stop now"
                )

    def _request_stop(self) -> threading.Event:
        """Request the stop in the event loop; the returned event is set when it was handled."""
        handled = threading.Event()

        def request() -> None:
            self._stop.request()
            handled.set()

        # A closed loop has nothing left to stop.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(request)
        return handled

    def _schedule_exit(self, handled: threading.Event) -> None:
        def exit_if(condition: Callable[[], bool]) -> None:
            if condition() and not self._has_ended:
                self._exit_with_hint()

        self._timers = [
            threading.Timer(_LOOP_TIMEOUT_S, exit_if, [lambda: not handled.is_set()]),
            threading.Timer(_EXIT_TIMEOUT_S, exit_if, [lambda: True]),
        ]
        for timer in self._timers:
            timer.daemon = True
            timer.start()

    def _exit_with_hint(self) -> NoReturn:
        # Never released: a second caller blocks here while the first one ends the process.
        self._exit_lock.acquire()
        # Printing may block, for example on a display that is being drawn; the exit must not.
        last = threading.Timer(_LOOP_TIMEOUT_S, os._exit, [EXIT_INTERRUPTED])
        last.daemon = True
        last.start()
        with suppress(Exception):
            self._display.__exit__(None, None, None)
        command = None if self._resume_command is None else self._resume_command()
        kept = "recorded results are kept" if command is None else format_resume_hint(command)
        with suppress(OSError, ValueError):
            print_message(f"interrupted; {kept}")
        exit_interrupted()


def _is_of_asyncio(handler: object) -> bool:
    """Whether `asyncio.run` installed a handler of Ctrl-C."""
    method = getattr(handler, "func", None)
    return isinstance(getattr(method, "__self__", None), asyncio.Runner)


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Do nothing: a signal reaches the wakeup socket only if it has a Python handler."""


def exit_interrupted() -> NoReturn:
    """End the process without waiting for threads: a scorer may still block in one."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    # Normal exit would join non-daemon threads.
    os._exit(EXIT_INTERRUPTED)


def run_until_stopped(
    work: Callable[[], Awaitable[Result]],
    stop: Stop,
    display: Display,
    resume_command: ResumeCommand | None = None,
) -> Result:
    """Run `work` in an event loop, where signals request the stop and the display ticks."""

    async def run() -> Result:
        with stop_on_signals(stop, display, resume_command):
            async with tick_periodically(display):
                return await work()

    return asyncio.run(run())


@asynccontextmanager
async def tick_periodically(display: Display, *, every_s: float = 1.0) -> AsyncIterator[None]:
    """Call the display's `tick` periodically inside the context."""

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
