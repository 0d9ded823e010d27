"""Progress of a training on stderr: a line that changes in a terminal, plain lines elsewhere."""

import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.text import Text

from assay.runner import Stop
from assay.train import MetricSinkFailed, WeightsUnchanged

from .output import has_cursor, print_message, sanitize_to_line
from .progress_bar import Display, build_live_display, draw_progress

_STEP_INTERVAL_S = 5.0


class TrainDisplay(Display):
    """Shows finished steps while its context is entered."""

    def __init__(self, *, quiet: bool = False, every_s: float = _STEP_INTERVAL_S) -> None:
        self._quiet = quiet
        self._live = not quiet and has_cursor(sys.stderr)
        self._every_s = every_s
        self._last: float | None = None
        self._shown: tuple[int, int, str] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(_print_warnings_as_lines())
        if self._live:
            console = Console(stderr=True, highlight=False)
            self._stack.enter_context(build_live_display(console, self._render))
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def show(self, done: int, of: int, words: str, *, is_end: bool = True) -> None:
        """Show a finished step; the last one in any case, if it is the end of the training."""
        self._shown = done, of, sanitize_to_line(words)
        now = time.monotonic()
        if self._quiet or self._live:
            return
        if self._last is None or now - self._last >= self._every_s or (is_end and done == of):
            self._last = now
            self.print_line(f"{done}/{of}  {words}")

    def print_line(self, text: str) -> None:
        if not self._quiet:
            print_message(sanitize_to_line(text))

    def _render(self) -> RenderableType:
        if self._shown is None:
            return Text("reading samples and weights")
        done, of, words = self._shown
        return draw_progress(done, of, f"{done}/{of}  {words}")


@contextmanager
def _print_warnings_as_lines() -> Iterator[None]:
    # The source line of a training's warning is ours and does not help the user.
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *source: Any, **more: Any
        ) -> None:
            if issubclass(category, WeightsUnchanged | MetricSinkFailed):
                print_message(sanitize_to_line(f"warning: {message}"))
            else:
                usual(message, category, *source, **more)

        warnings.showwarning = show
        yield


@contextmanager
def stop_after_step(stop: Stop, display: TrainDisplay) -> Iterator[None]:
    """Stop after the current step on Ctrl-C or SIGTERM, and at once on the second.

    Outside the main thread handlers cannot be installed, and signals keep their usual effect.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def request_stop(number: int, frame: FrameType | None) -> None:
        # The second signal abandons the step; the last checkpoint is kept.
        if stop.requested:
            raise KeyboardInterrupt
        stop.request()
        display.print_line("stopping after this step; press Ctrl-C again to stop now")

    before = {each: signal.signal(each, request_stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler or signal.SIG_DFL)  # None: not set from Python
