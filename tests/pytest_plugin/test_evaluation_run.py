"""Parts of a test on its way: where its samples are found, and what Ctrl-C does."""

import asyncio
import os
import signal
import threading
import time
from contextlib import suppress
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


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs signal masks")
def test_ctrl_c_that_another_thread_receives_wakes_the_loop() -> None:
    def press() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        release.wait(0.1)  # until the loop waits
        os.kill(os.getpid(), signal.SIGINT)
        release.wait(5)

    async def interrupted(stop: Stop) -> None:
        stopped = asyncio.Event()
        stop.listen(stopped.set)
        with _stop_on_ctrl_c(stop):
            thread.start()
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), 5)

    stop, release, thread = Stop(), threading.Event(), threading.Thread(target=press)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    started = time.monotonic()
    try:
        asyncio.run(interrupted(stop))
        took_s = time.monotonic() - started
    finally:
        release.set()
        thread.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    assert stop.at_once
    assert took_s < 4


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
