"""Progress of a training on stderr: a line that changes in a terminal, plain lines elsewhere."""

import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from assay.runner import Stop
from assay.train import WeightsUnchanged

from .terminal import sanitize_to_line

if TYPE_CHECKING:
    from rich.console import RenderableType

_STEP_INTERVAL_S = 5.0
_STEP_BAR_WIDTH = 40


class TrainDisplay:
    """Shows finished steps while its context is entered."""

    def __init__(self, *, quiet: bool = False, every_s: float = _STEP_INTERVAL_S) -> None:
        self._quiet = quiet
        self._live = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._every_s = every_s
        self._last: float | None = None
        self._shown: tuple[int, int, str] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(_print_warnings_as_lines())
        if self._live:
            console = Console(stderr=True, highlight=False)
            live = Live(
                console=console,
                get_renderable=self._render,
                refresh_per_second=4,
                transient=True,
            )
            self._stack.enter_context(live)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def show(self, done: int, of: int, words: str) -> None:
        """Show a finished step."""
        self._shown = done, of, sanitize_to_line(words)
        now = time.monotonic()
        if self._quiet or self._live:
            return
        if self._last is None or now - self._last >= self._every_s or done == of:
            self._last = now
            self.print_line(f"{done}/{of}  {words}")

    def print_line(self, text: str) -> None:
        """Print a line that stays."""
        if not self._quiet:
            print(sanitize_to_line(text), file=sys.stderr, flush=True)

    def _render(self) -> "RenderableType":
        if self._shown is None:
            return Text("reading samples and weights")
        done, of, words = self._shown
        grid = Table.grid()
        grid.add_row(ProgressBar(total=of, completed=done, width=_STEP_BAR_WIDTH))
        grid.add_row(Text(f"{done}/{of}  {words}", no_wrap=True, overflow="ellipsis"))
        return grid


@contextmanager
def _print_warnings_as_lines() -> Iterator[None]:
    # The source line of a training's warning is ours and does not help the user.
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *source: Any, **more: Any
        ) -> None:
            if issubclass(category, WeightsUnchanged):
                print(sanitize_to_line(f"warning: {message}"), file=sys.stderr, flush=True)
            else:
                usual(message, category, *source, **more)

        warnings.showwarning = show
        yield


@contextmanager
def stop_after_step(stop: Stop, display: TrainDisplay) -> Iterator[None]:
    """Stop after the current step on Ctrl-C or SIGTERM, and at once on the second."""

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
            signal.signal(each, handler)
