"""Parts of a test on its way: where its samples are found, and what Ctrl-C does."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest

from assay.pytest_plugin.evaluation_run import _locate_samples, _stop_on_ctrl_c
from assay.runner import Stop


def test_a_path_is_looked_for_here_and_then_beside_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evals").mkdir()
    test_file = tmp_path / "evals" / "test_a.py"
    (tmp_path / "evals" / "beside.jsonl").touch()
    (tmp_path / "here.jsonl").touch()

    assert _locate_samples("beside.jsonl", test_file) == tmp_path / "evals" / "beside.jsonl"
    assert _locate_samples("here.jsonl", test_file) == "here.jsonl"
    assert _locate_samples("org/name-on-the-hub", test_file) == "org/name-on-the-hub"
    assert _locate_samples([{"question": "?"}], test_file) == [{"question": "?"}]


def test_ctrl_c_stops_the_run_at_once_and_the_usual_handler_comes_back() -> None:
    async def interrupted() -> Stop:
        stop = Stop()
        with _stop_on_ctrl_c(stop):
            os.kill(os.getpid(), signal.SIGINT)
            while not stop.requested:
                await asyncio.sleep(0)
        return stop

    before = signal.getsignal(signal.SIGINT)
    stop = asyncio.run(interrupted())

    assert stop.at_once
    assert signal.getsignal(signal.SIGINT) is before


def test_the_next_ctrl_c_interrupts_a_function_that_blocks_the_loop() -> None:
    stop = Stop()

    async def block() -> None:
        with _stop_on_ctrl_c(stop):
            signal.raise_signal(signal.SIGINT)
            assert not stop.requested  # the loop has not turned
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("the second Ctrl-C was not raised")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(block())

    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    entered = []

    async def enter() -> None:
        with _stop_on_ctrl_c(Stop()):
            entered.append(True)

    thread = threading.Thread(target=lambda: asyncio.run(enter()))
    thread.start()
    thread.join()

    assert entered == [True]
