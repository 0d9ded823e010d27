"""Progress as one line of text, and a display of it for scripts and notebooks."""

import sys
import time
from typing import TextIO

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
    """Return a callback for `watch=` that writes the progress of a run to `stream`.

    In a terminal and in a notebook one line changes in place; elsewhere a line is written every few
    seconds. The last sample always gets its line.
    """
    # A notebook is no terminal, but a carriage return goes back to the start of its line too.
    is_live = stream.isatty() or "ipykernel" in sys.modules
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
        if not is_live:
            stream.write(f"{line}\n")
            stream.flush()
            return
        if progress.total:
            filled = _BAR_WIDTH * min(finished, progress.total) // progress.total
            line = f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {line}"
        # Spaces instead of an escape sequence, which notebooks would show.
        end = "\n" if is_last else ""
        stream.write(f"\r{line:<{width}}{end}")
        stream.flush()
        width = len(line)

    return show
