"""Progress in words, and its display for scripts and notebooks."""

import sys
import time
from types import SimpleNamespace

import pytest

from assay.runner import Progress, format_duration, format_progress, show_progress


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


def test_a_log_gets_a_line_every_few_seconds_and_one_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    show = show_progress(sys.stderr)

    show(Progress(total=4, done=1, started=100.0))
    assert capsys.readouterr().err == ""
    now = 105.0
    show(Progress(total=4, done=2, started=100.0))
    show(Progress(total=4, done=3, started=100.0))
    assert capsys.readouterr().err == "2/4, 24.0/min, 0:05 left\n"
    show(Progress(total=4, done=4, started=100.0))
    assert capsys.readouterr().err == "4/4, 48.0/min, 0:00 left\n"


def test_a_line_changes_in_place_in_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    show = show_progress(sys.stderr)

    show(so_far(total=4, done=2, failed=1))
    show(so_far(total=4, done=3, failed=1))

    shown = capsys.readouterr().err.split("\r")
    assert shown[1].startswith("[###############.....] 2/4, ")
    assert shown[2].startswith("[####################] 3/4, ")
    assert shown[2].endswith("\n")
    assert "\x1b" not in "".join(shown)


@pytest.mark.parametrize("has_shell", [True, False])
def test_a_notebook_gets_a_bar_unless_the_process_has_no_shell(
    has_shell: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # tests/flows/test_notebook.py runs a real one.
    shown: list[dict[str, str]] = []

    def display(data: dict[str, str], **_: object) -> SimpleNamespace:
        shown.append(data)
        return SimpleNamespace(update=display)

    shell = SimpleNamespace(initialized=lambda: has_shell)
    for name, module in (
        ("ipykernel", SimpleNamespace()),
        ("IPython", SimpleNamespace()),
        ("IPython.core", SimpleNamespace()),
        ("IPython.core.interactiveshell", SimpleNamespace(InteractiveShell=shell)),
        ("IPython.display", SimpleNamespace(display=display)),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    show = show_progress(sys.stderr)

    show(Progress(total=4, done=3, failed=1))
    show(Progress(total=None, done=5))

    written = capsys.readouterr().err
    assert (written == "") == has_shell
    assert [data["text/html"].partition(">")[0] for data in shown] == (
        ['<progress value="4" max="4"'] if has_shell else []
    )
