"""Progress in words, and where it is shown."""

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
    format_duration,
    format_progress,
)
from assay.runner import Progress


def so_far(**fields: float) -> Progress:
    """A run that was started ten seconds ago."""
    values: dict[str, object] = {"started": time.monotonic() - 10, **fields}
    return Progress(**values)  # type: ignore[arg-type]  # numbers of either kind


def test_a_run_is_told_in_one_line() -> None:
    progress = so_far(total=100, already_done=10)
    for reward, cost in ((1.0, 0.5), (0.0, 0.25), (None, 0.25)):
        progress.add(reward, cost)
    progress.failed = 2

    words = format_progress(progress)

    told = "13/100, 30.0/min, mean result 0.500, 2 failed, 1 not judged, $1.0000, "
    assert words.startswith(told)
    assert words.endswith(" left")
    assert len(words) <= 80


def test_a_line_that_would_be_too_long_is_cut_and_says_so() -> None:
    huge = 10**9

    words = format_progress(
        so_far(total=huge, done=huge, failed=huge, not_judged=huge, cost_usd=huge, cost_unknown=1)
    )

    assert len(words) == 80
    assert words.endswith("…")


def test_what_is_not_known_is_not_told() -> None:
    assert format_progress(so_far()) == "0 done"
    assert format_progress(so_far(done=50)) == "50 done, 5.0/s"


@pytest.mark.parametrize(
    ("cost", "words"), [(None, "cost unknown"), (0.25, "at least $0.2500"), (0.0, "cost unknown")]
)
def test_an_unknown_cost_is_never_counted_as_nothing(cost: float | None, words: str) -> None:
    progress = so_far()
    progress.add(1.0, cost)
    progress.add(1.0, None)

    assert words in format_progress(progress)


def test_what_costs_nothing_is_not_told() -> None:
    progress = so_far()
    progress.add(1.0, 0.0)

    assert "$" not in format_progress(progress)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0:00"), (7.4, "0:07"), (750, "12:30"), (11100, "3:05:00")]
)
def test_durations_are_told_as_on_a_clock(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


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
    assert isinstance(choose_display(quiet=False), LiveDisplay)

    with choose_display(quiet=True) as quiet:
        quiet.watch(so_far())
        quiet.tick()
        quiet.print_line("x")

    assert isinstance(quiet, Display)
    assert capsys.readouterr().err == ""
