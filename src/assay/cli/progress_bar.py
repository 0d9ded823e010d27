"""Progress of a run on stderr: a line that changes in a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from assay.runner import Progress

from .terminal import cut

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_PROGRESS_INTERVAL_S = 5.0
_PROGRESS_BAR_WIDTH = 40
_PROGRESS_LINE_WIDTH = 80


class Display(Protocol):
    """Shows the progress of a run while its context is entered."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def watch(self, progress: Progress) -> None:
        """Receive the progress after a recorded sample."""

    def tick(self) -> None:
        """Called about once a second, whether or not anything happened."""

    def print_line(self, text: str) -> None:
        """Print a line that stays."""


def choose_display(*, quiet: bool) -> "Display":
    """Choose the display for stderr: live in a terminal, plain lines otherwise."""
    if quiet:
        return SilentDisplay()
    if sys.stderr is not None and sys.stderr.isatty():
        return LiveDisplay()
    return PlainDisplay()


def format_progress(progress: Progress) -> str:
    """Format the progress in one line of at most 80 columns."""
    done = progress.already_done + progress.done
    parts = [f"{done}/{progress.total}" if progress.total is not None else f"{done} done"]
    if progress.rate is not None:
        rate = progress.rate
        parts.append(f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min")
    if progress.mean is not None:
        parts.append(f"mean result {progress.mean:.3f}")
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    if progress.not_judged:
        parts.append(f"{progress.not_judged} not judged")
    # With calls of unknown cost the sum is only a lower bound.
    if progress.cost_usd:
        parts.append(f"{'at least ' if progress.cost_unknown else ''}${progress.cost_usd:.4f}")
    elif progress.cost_unknown:
        parts.append("cost unknown")
    if progress.seconds_left is not None:
        parts.append(f"{format_duration(progress.seconds_left)} left")
    return cut(", ".join(parts), _PROGRESS_LINE_WIDTH)


def format_duration(seconds: float) -> str:
    """Format seconds as `0:07`, `12:30` or `3:05:00`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class SilentDisplay:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def watch(self, progress: Progress) -> None:
        return None

    def tick(self) -> None:
        return None

    def print_line(self, text: str) -> None:
        return None


class PlainDisplay(SilentDisplay):
    """A line every few seconds, for logs."""

    def __init__(self, *, every_s: float = _PROGRESS_INTERVAL_S) -> None:
        self._every_s = every_s
        self._progress: Progress | None = None
        self._started = self._last = time.monotonic()

    def watch(self, progress: Progress) -> None:
        self._progress = progress

    def tick(self) -> None:
        now = time.monotonic()
        if now - self._last < self._every_s:
            return
        self._last = now
        if self._progress is None:
            self.print_line(f"no sample is finished after {format_duration(now - self._started)}")
        else:
            self.print_line(format_progress(self._progress))

    def print_line(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class LiveDisplay(SilentDisplay):
    """A bar and a line that change in place and disappear at the end."""

    def __init__(self, console: "Console | None" = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._progress: Progress | None = None
        self._started = time.monotonic()
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=4,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def watch(self, progress: Progress) -> None:
        self._progress = progress

    def print_line(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)

    def _render(self) -> "RenderableType":
        progress = self._progress
        if progress is None:
            return Text(f"starting  {format_duration(time.monotonic() - self._started)}")
        words = Text(format_progress(progress), no_wrap=True, overflow="ellipsis")
        if progress.total is None:
            return words
        finished = progress.already_done + progress.done + progress.failed
        grid = Table.grid()
        grid.add_row(
            ProgressBar(total=progress.total, completed=finished, width=_PROGRESS_BAR_WIDTH)
        )
        grid.add_row(words)
        return grid
