"""Progress of a run on stderr: a line that changes in a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from assay.runner import Progress, format_duration, format_progress

from .output import cut, has_cursor, print_message, sanitize_lines

_PROGRESS_INTERVAL_S = 5.0
_PROGRESS_BAR_WIDTH = 40
_PROGRESS_LINE_WIDTH = 80


class Display:
    """Shows the progress of a run while its context is entered. This one shows nothing."""

    _progress: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    def watch(self, progress: Progress) -> None:
        """Receive the progress after a recorded sample."""
        self._progress = progress

    def tick(self) -> None:
        """Called about once a second, whether or not anything happened."""

    def print_line(self, text: str) -> None:
        """Print a line that stays."""


def choose_display(*, quiet: bool) -> Display:
    """Choose the display for stderr: live in a terminal, plain lines otherwise."""
    if quiet:
        return Display()
    if has_cursor(sys.stderr):
        return LiveDisplay()
    return PlainDisplay()


class PlainDisplay(Display):
    """A line every few seconds, for logs."""

    def __init__(self, *, every_s: float = _PROGRESS_INTERVAL_S) -> None:
        self._every_s = every_s
        self._started = self._last = time.monotonic()

    def tick(self) -> None:
        now = time.monotonic()
        if now - self._last < self._every_s:
            return
        self._last = now
        if self._progress is None:
            self.print_line(f"no sample is finished after {format_duration(now - self._started)}")
        else:
            self.print_line(cut(format_progress(self._progress), _PROGRESS_LINE_WIDTH))

    def print_line(self, text: str) -> None:
        print_message(text)


class LiveDisplay(Display):
    """A bar and a line that change in place and disappear at the end."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._started = time.monotonic()
        self._live = build_live_display(self._console, self._render)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._live.stop()

    def print_line(self, text: str) -> None:
        # The name of a run may contain square brackets, which rich would read as markup.
        self._console.print(sanitize_lines(text), soft_wrap=True, markup=False)

    def _render(self) -> RenderableType:
        progress = self._progress
        if progress is None:
            return Text(f"starting  {format_duration(time.monotonic() - self._started)}")
        finished = progress.already_done + progress.done + progress.failed
        words = cut(format_progress(progress), _PROGRESS_LINE_WIDTH)
        return draw_progress(finished, progress.total, words)


def build_live_display(console: Console, render: Callable[[], RenderableType]) -> Live:
    """Build the part of a terminal that `render` draws again four times a second."""
    return Live(console=console, get_renderable=render, refresh_per_second=4, transient=True)


def draw_progress(done: int, total: int | None, words: str) -> RenderableType:
    """Draw a bar, if the total is known, and a line below it."""
    line = Text(words, no_wrap=True, overflow="ellipsis")
    if total is None:
        return line
    grid = Table.grid()
    grid.add_row(ProgressBar(total=total, completed=done, width=_PROGRESS_BAR_WIDTH))
    grid.add_row(line)
    return grid
