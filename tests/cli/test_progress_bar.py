"""Where progress is shown."""

import sys
import time
from io import StringIO

import pytest
from rich.console import Console

from assay.cli.progress_bar import (
    Display,
    LiveDisplay,
    PlainDisplay,
    choose_display,
)
from assay.runner import Progress


def so_far(**fields: float) -> Progress:
    """A run that was started ten seconds ago."""
    values: dict[str, object] = {"started": time.monotonic() - 10, **fields}
    return Progress(**values)  # type: ignore[arg-type]  # numbers of either kind


def test_a_line_that_would_be_too_long_is_cut_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    huge = 10**9
    display = PlainDisplay(every_s=0)

    display.watch(
        so_far(total=huge, done=huge, failed=huge, not_judged=huge, cost_usd=huge, cost_unknown=1)
    )
    display.tick()

    words = capsys.readouterr().err.rstrip("\n")
    assert len(words) == 80
    assert words.endswith("…")


def test_plain_lines_come_every_few_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    display = PlainDisplay(every_s=5)

    now = 104.0
    display.tick()
    assert capsys.readouterr().err == ""

    now = 105.0
    display.tick()
    assert capsys.readouterr().err == "no sample is finished after 0:05\n"

    display.watch(Progress(total=4, done=2, started=100.0))
    display.tick()
    assert capsys.readouterr().err == ""

    now = 110.0
    display.tick()
    assert capsys.readouterr().err == "2/4, 12.0/min, 0:10 left\n"


def test_a_terminal_shows_a_bar_that_is_gone_in_the_end() -> None:
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)

    with LiveDisplay(console) as display:
        display.print_line("run [bold]x")
        display.watch(so_far(total=10, done=5))
        display.tick()
        display._live.refresh()

    assert "run [bold]x" in screen.getvalue()
    assert f"{'━' * 20}{' ' * 20}\n5/10, 30.0/min" in screen.getvalue()
    # The cursor goes up and the line is erased.
    assert screen.getvalue().endswith("\x1b[1A\x1b[2K")


def test_without_a_total_there_is_no_bar() -> None:
    screen = StringIO()

    with LiveDisplay(Console(file=screen, force_terminal=True, width=80)) as display:
        display._live.refresh()
        display.watch(so_far(done=5))
        display._live.refresh()

    assert "starting  0:00" in screen.getvalue()
    assert "5 done" in screen.getvalue()
    assert "━" not in screen.getvalue()


def test_the_display_fits_where_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(choose_display(quiet=False), PlainDisplay)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(choose_display(quiet=False), PlainDisplay)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(choose_display(quiet=False), LiveDisplay)

    with choose_display(quiet=True) as quiet:
        quiet.watch(so_far())
        quiet.tick()
        quiet.print_line("x")

    assert isinstance(quiet, Display)
    assert capsys.readouterr().err == ""
