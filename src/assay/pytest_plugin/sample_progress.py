"""The progress of an evaluation while its samples run, in the terminal of pytest."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from assay.runner import Progress, ProgressCallback, format_progress
from assay.stats import clean_text

if TYPE_CHECKING:
    import pytest

_TERMINAL_INTERVAL_S = 0.25
_LOG_INTERVAL_S = 5.0
# The cursor is saved behind the name of the test, where pytest goes on writing.
_SAVE, _RESTORE_AND_ERASE = "\x1b7", "\x1b8\x1b[K"


@contextmanager
def watch_samples(config: "pytest.Config", name: str) -> Iterator[ProgressCallback | None]:
    """Yield the callback that shows the progress of a test; None where nothing is to be shown.

    In a terminal the progress is a line that changes and disappears; elsewhere a line is written
    every few seconds. With `-q`, and in workers of pytest-xdist, nothing is written.
    """
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or reporter.verbosity < 0 or hasattr(config, "workerinput"):
        yield None
        return
    display = _SampleProgress(config, reporter, name)
    try:
        yield display.show
    finally:
        display.erase()


class _SampleProgress:
    def __init__(self, config: "pytest.Config", reporter: Any, name: str) -> None:
        self._capture: Any = config.pluginmanager.get_plugin("capturemanager")
        self._reporter = reporter
        self._name = name
        self._is_terminal = bool(reporter.isatty)
        self._every_s = _TERMINAL_INTERVAL_S if self._is_terminal else _LOG_INTERVAL_S
        self._last = time.monotonic()
        self._is_drawn = False

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last < self._every_s:
            return
        self._last = now
        words = format_progress(progress)
        if self._is_terminal:
            # A longer line would wrap, and the cursor could not return to its start.
            room = self._reporter._tw.fullwidth - self._reporter._tw.width_of_current_line - 2
            if room > 0:
                start = _RESTORE_AND_ERASE if self._is_drawn else ""
                self._write(f"{start}{_SAVE} {clean_text(words, room)}")
                self._is_drawn = True
        else:
            with self._suspend_capture():
                self._reporter.ensure_newline()
                self._reporter.write_line(f"{clean_text(self._name, 60)}: {words}", flush=True)

    def erase(self) -> None:
        if self._is_drawn:
            self._write(_RESTORE_AND_ERASE)
            self._is_drawn = False

    def _write(self, text: str) -> None:
        # Past the reporter, which counts the columns of what it writes.
        with self._suspend_capture():
            self._reporter._tw.flush()
            self._reporter._tw._file.write(text)
            self._reporter._tw.flush()

    @contextmanager
    def _suspend_capture(self) -> Iterator[None]:
        if self._capture is None:
            yield
            return
        with self._capture.global_and_fixture_disabled():
            yield
