"""Progress as one line of text, and a display of it for scripts and notebooks."""

import sys
import time
from collections.abc import Callable
from html import escape
from typing import Any, TextIO

from .run_progress import Progress, ProgressCallback

_REDRAW_INTERVAL_S = 0.25
_LOG_INTERVAL_S = 5.0
_BAR_WIDTH = 20


def format_progress(progress: Progress) -> str:
    """Format the progress in one line, such as `12/40, 3.1/s, mean result 0.917, 0:09 left`."""
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
    return ", ".join(parts)


def format_duration(seconds: float) -> str:
    """Format seconds as `0:07`, `12:30` or `3:05:00`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_progress(stream: TextIO) -> ProgressCallback:
    """Return a callback for `watch=` that shows the progress of a run.

    A notebook shows a bar below its cell. Otherwise the progress goes to `stream`: in a terminal
    one line changes in place, elsewhere a line is written every few seconds. The last sample always
    gets its line.
    """
    publish = _find_notebook_display()
    is_live = publish is not None or stream.isatty()
    every_s = _REDRAW_INTERVAL_S if is_live else _LOG_INTERVAL_S
    last, width = time.monotonic() if not is_live else 0.0, 0

    def show(progress: Progress) -> None:
        nonlocal last, width
        finished = progress.already_done + progress.done + progress.failed
        is_last = progress.total is not None and finished >= progress.total
        now = time.monotonic()
        if now - last < every_s and not is_last:
            return
        last = now
        line = format_progress(progress)
        if publish is not None:
            publish(finished, progress.total, line)
            return
        if not is_live:
            stream.write(f"{line}\n")
            stream.flush()
            return
        if progress.total:
            filled = _BAR_WIDTH * min(finished, progress.total) // progress.total
            line = f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {line}"
        end = "\n" if is_last else ""
        stream.write(f"\r{line:<{width}}{end}")
        stream.flush()
        width = len(line)

    return show


def _find_notebook_display() -> Callable[[int, int | None, str], None] | None:
    """Return a function that draws a bar below the cell of a notebook; None outside of one."""
    # Loaded by every notebook, and by nothing else: a terminal with IPython has no kernel.
    if "ipykernel" not in sys.modules:
        return None
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.display import display

    if not InteractiveShell.initialized():
        return None  # a process that a notebook started, such as a worker
    handle: Any = None

    def publish(finished: int, total: int | None, line: str) -> None:
        nonlocal handle
        # Without a maximum the bar only shows that something happens.
        end = "" if total is None else f' value="{finished}" max="{max(total, 1)}"'
        data = {"text/plain": line, "text/html": f"<progress{end}></progress> {escape(line)}"}
        if handle is None:
            handle = display(data, raw=True, display_id=True)
        else:
            handle.update(data, raw=True)

    return publish
