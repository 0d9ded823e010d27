"""Ctrl-C and SIGTERM: once to finish what is in flight, twice to stop now, three times to leave."""

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from assay.runner import Stop

from .exit_status import EXIT_INTERRUPTED
from .progress_bar import Display
from .terminal import sanitize_lines

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOP_TIMEOUT_S = 1.0
"""An event loop that has not heard of the second signal by then is stuck in somebody's code."""

_EXIT_TIMEOUT_S = 5.0
"""And whoever has not ended by then waits for something that does not come, such as a store."""

ResumeCommand = Callable[[], str | None]
"""The command that goes on with what is interrupted; None while there is nothing to go on with."""


@contextmanager
def stop_on_signals(
    stop: Stop, display: Display, go_on: ResumeCommand | None = None
) -> Iterator[None]:
    """Inside of it the signals ask `stop` to end the run, rather than ending the process.

    Once asked they stay so: the command that was interrupted is about to end, and to say how to go
    on. Where signals cannot be set, outside the main thread, Ctrl-C cancels the run.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    hearing = _SignalListener(stop, display, go_on)
    try:
        yield
    finally:
        hearing.end_run()


class _SignalListener:
    """Hears signals in a thread of its own, whatever the main thread and its event loop do.

    A handler in Python would wait until the main thread comes back to Python, and one of the event
    loop until the loop turns. Both may be far in somebody's dataset or scorer.
    """

    def __init__(self, stop: Stop, display: Display, go_on: ResumeCommand | None) -> None:
        self._stop = stop
        self._display = display
        self._go_on = go_on
        self._loop = asyncio.get_running_loop()
        self._asked = 0
        self._has_ended = False
        self._timers: list[threading.Timer] = []
        self._leaving = threading.Lock()
        self._receiver, self._sender = socket.socketpair()
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
        """The run let go: nobody need be hurried. Forget the signals unless they were used."""
        self._has_ended = True
        for timer in self._timers:
            timer.cancel()
        if not self._asked:
            self.close()

    def close(self) -> None:
        """Let signals do what they did before."""
        self._is_open = False
        signal.set_wakeup_fd(self._fd_before)
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: not set from Python
        self._sender.send(b"\0")
        self._thread.join()
        self._sender.close()
        self._receiver.close()

    def _reset_in_child(self) -> None:
        # A child hears the Ctrl-C of its terminal as well: through us it would count twice.
        if self._is_open:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    # What follows runs in the thread.

    def _listen(self) -> None:
        while number := self._receiver.recv(1)[0]:
            if number in _SIGNALS:
                self._handle_signal()

    def _handle_signal(self) -> None:
        self._asked += 1
        if self._asked > 2 or (self._asked == 2 and self._has_ended):
            # Something does not let go. What is committed is safe.
            self._exit_with_hint()
        elif self._asked == 2:
            self._display.say("stopping now")
            self._schedule_exit(self._request_stop())
        else:
            self._request_stop()
            self._display.say(
                f"stopping: samples in flight have {self._stop.grace_s:g} s to end; "
                "again to stop now"
            )

    def _request_stop(self) -> threading.Event:
        """Ask in the event loop. What is returned is set once it has heard."""
        heard = threading.Event()

        def request() -> None:
            self._stop.request()
            heard.set()

        # A loop that is closed has nothing left to stop.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(request)
        return heard

    def _schedule_exit(self, heard: threading.Event) -> None:
        def leave_if(still: Callable[[], bool]) -> None:
            if still() and not self._has_ended:
                self._exit_with_hint()

        self._timers = [
            threading.Timer(_LOOP_TIMEOUT_S, leave_if, [lambda: not heard.is_set()]),
            threading.Timer(_EXIT_TIMEOUT_S, leave_if, [lambda: True]),
        ]
        for timer in self._timers:
            timer.daemon = True
            timer.start()

    def _exit_with_hint(self) -> NoReturn:
        self._leaving.acquire()  # and never let go: whoever comes second has nothing left to do
        # Whatever hinders the words, such as a display that is being drawn, hinders no end.
        last = threading.Timer(_LOOP_TIMEOUT_S, os._exit, [EXIT_INTERRUPTED])
        last.daemon = True
        last.start()
        with suppress(Exception):
            self._display.__exit__(None, None, None)
        command = None if self._go_on is None else self._go_on()
        told = "interrupted; everything recorded is kept"
        if command is not None:
            told = f"{told}. Go on with:\n  {command}"
        with suppress(OSError, ValueError):
            print(sanitize_lines(told), file=sys.stderr)
        exit_interrupted()


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Python tells the thread of every signal that has a handler; this one has nothing to add."""


def exit_interrupted() -> NoReturn:
    """End the process without waiting for threads: a scorer may still be busy in one."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(EXIT_INTERRUPTED)


@asynccontextmanager
async def tick_periodically(display: Display, *, every_s: float = 1.0) -> AsyncIterator[None]:
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
