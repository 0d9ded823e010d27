"""Progress while samples run: a line that changes in a terminal, plain lines elsewhere."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from assay.pytest_plugin import sample_progress
from assay.pytest_plugin.sample_progress import watch_samples
from assay.runner import Progress

NAME = "test_capitals"


class FakeReporter:
    """pytest's reporter as far as the progress uses it."""

    def __init__(self, *, isatty: bool, verbosity: int = 0, columns: int = 80) -> None:
        self.isatty = isatty
        self.verbosity = verbosity
        self.written = io.StringIO()
        self._tw = SimpleNamespace(
            fullwidth=columns,
            width_of_current_line=30,
            _file=self.written,
            flush=lambda: None,
        )

    def ensure_newline(self) -> None:
        pass

    def write_line(self, line: str, flush: bool = False) -> None:
        self.written.write(f"{line}\n")


class FakeCapture:
    @contextmanager
    def global_and_fixture_disabled(self) -> Iterator[None]:
        yield


def config(reporter: FakeReporter, **fields: Any) -> Any:
    plugins = {"terminalreporter": reporter, "capturemanager": FakeCapture()}
    manager = SimpleNamespace(get_plugin=plugins.get)
    return SimpleNamespace(pluginmanager=manager, **fields)


@pytest.fixture(autouse=True)
def at_every_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_progress, "_TERMINAL_INTERVAL_S", 0.0)
    monkeypatch.setattr(sample_progress, "_LOG_INTERVAL_S", 0.0)


def progress(done: int) -> Progress:
    return Progress(total=10, done=done)


def test_a_terminal_shows_a_line_that_changes_and_disappears() -> None:
    reporter = FakeReporter(isatty=True)

    with watch_samples(config(reporter), NAME) as watch:
        assert watch is not None
        watch(progress(3))
        watch(progress(4))

    text = reporter.written.getvalue()
    assert "3/10" in text
    assert "4/10" in text
    assert "\n" not in text
    assert text.endswith("\x1b8\x1b[K")


def test_a_narrow_terminal_is_not_wrapped() -> None:
    reporter = FakeReporter(isatty=True, columns=40)

    with watch_samples(config(reporter), NAME) as watch:
        assert watch is not None
        watch(progress(3))

    shown = re.sub(r"\x1b(?:[78]|\[K)", "", reporter.written.getvalue())
    assert 0 < len(shown) < 10


def test_a_pipe_gets_whole_lines_with_the_name_of_the_test() -> None:
    reporter = FakeReporter(isatty=False)

    with watch_samples(config(reporter), NAME) as watch:
        assert watch is not None
        watch(progress(3))

    (line,) = reporter.written.getvalue().splitlines()
    assert line.startswith(f"{NAME}: 3/10")


def test_quiet_sessions_and_workers_show_nothing() -> None:
    quiet = FakeReporter(isatty=True, verbosity=-1)
    worker = FakeReporter(isatty=True)

    with watch_samples(config(quiet), NAME) as watch:
        assert watch is None
    with watch_samples(config(worker, workerinput={}), NAME) as watch:
        assert watch is None
