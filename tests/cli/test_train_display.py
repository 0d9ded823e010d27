"""How a training is shown while it goes on, and how it is stopped."""

import os
import signal
import sys
import threading
import warnings
from io import StringIO
from typing import Any

import pytest

from assay.cli.train_display import TrainDisplay, stop_after_step
from assay.runner import Stop
from assay.train.trained_weights import warn_if_unchanged


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_at_first_at_last_and_now_and_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with TrainDisplay(every_s=3600) as display:
        for done in (1, 2, 3):
            display.show(done, 3, "loss 1")

    assert capsys.readouterr().err.splitlines() == ["1/3 loss 1", "3/3 loss 1"]


def test_every_step_is_shown_where_time_has_gone_by(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainDisplay(every_s=0) as display:
        for done in (1, 2, 3):
            display.show(done, 3, "loss 1")

    assert len(capsys.readouterr().err.splitlines()) == 3


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainDisplay(quiet=True) as display:
        display.show(1, 1, "loss 1")
        display.print_line("stopping")

    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar_that_is_gone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")

    with TrainDisplay() as display:
        display.show(1, 2, "loss \x1b[2J1.5")

    shown = terminal.getvalue()
    assert "1/2  loss \ufffd[2J1.5" in shown
    assert "\x1b[2J" not in shown


def test_the_first_signal_asks_and_the_second_stops(capsys: pytest.CaptureFixture[str]) -> None:
    stop = Stop()
    before = signal.getsignal(signal.SIGINT)

    with TrainDisplay() as display, stop_after_step(stop, display):
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)

    assert signal.getsignal(signal.SIGINT) is before
    assert "stopping after this step" in capsys.readouterr().err


def test_a_handler_that_python_does_not_know_is_left_at_its_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install, restored = signal.signal, dict[int, object]()

    def install_over_foreign(number: int, handler: Any) -> Any:
        restored[number] = handler
        install(number, handler)
        return None  # what Python returns for a handler that was installed by C code

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(signal, "signal", install_over_foreign)
    try:
        with TrainDisplay() as display, stop_after_step(Stop(), display):
            pass
    finally:
        for number, handler in before.items():
            install(number, handler)

    assert restored == {signal.SIGINT: signal.SIG_DFL, signal.SIGTERM: signal.SIG_DFL}


def test_a_thread_trains_with_the_signals_of_the_program() -> None:
    entered: list[bool] = []

    def train() -> None:
        with TrainDisplay(quiet=True) as display, stop_after_step(Stop(), display):
            entered.append(True)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()

    assert entered == [True]


def test_a_warning_of_a_training_is_a_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with TrainDisplay(quiet=True):
            warn_if_unchanged(3, 0.001, 1e-9)

    assert capsys.readouterr().err == (
        "warning: step 3 changed 0.10 % of the weights that have a gradient: "
        "learning_rate=1e-09 is too small for their precision\n"
    )
