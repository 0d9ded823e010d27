"""Signals ask a run to stop. That a whole run then ends well is shown in `tests/flows/`."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from assay.cli import main
from assay.cli import signals as module
from assay.cli.progress_bar import Display
from assay.cli.signals import (
    exit_interrupted,
    run_until_stopped,
    stop_on_signals,
    tick_periodically,
)
from assay.runner import Stop


class Heard(Display):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.ticks = asyncio.Event()
        self.was_left = threading.Event()

    def __exit__(self, *_: object) -> None:
        self.was_left.set()

    def print_line(self, text: str) -> None:
        self.said.append(text)

    def tick(self) -> None:
        self.ticks.set()


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


async def sent(*numbers: signal.Signals) -> tuple[Stop, Heard]:
    stop, heard = Stop(grace_s=7), Heard()
    with stop_on_signals(stop, heard):
        for count, number in enumerate(numbers, start=1):
            os.kill(os.getpid(), number)
            while len(heard.said) < min(count, 2) or not stop.requested:
                await asyncio.sleep(0.001)
        while len(numbers) > 1 and not stop.at_once:
            await asyncio.sleep(0.001)
    return stop, heard


class Left:
    """How the process would have ended."""

    def __init__(self) -> None:
        self.status: int | None = None
        self._happened = threading.Event()

    def __call__(self, status: int) -> None:
        self.status = status
        self._happened.set()

    def wait(self) -> None:
        """Without letting the event loop do anything."""
        assert self._happened.wait(30)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Left:
    left = Left()
    monkeypatch.setattr(os, "_exit", left)
    return left


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_leaves_samples_in_flight_their_time(number: signal.Signals) -> None:
    stop, heard = asyncio.run(sent(number))

    assert (stop.requested, stop.at_once) == (True, False)
    assert heard.said == [
        "stopping: samples in flight have 7 s to end; press Ctrl-C again to stop now"
    ]


def test_the_second_signal_stops_now() -> None:
    stop, heard = asyncio.run(sent(signal.SIGINT, signal.SIGTERM))

    assert stop.at_once
    assert heard.said[1:] == ["stopping now"]


def test_the_third_signal_leaves_the_display_says_how_to_go_on_and_ends_the_process(
    left: Left, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = Heard()

    async def asked() -> None:
        with stop_on_signals(Stop(), heard, lambda: "assay eval e.py --resume r-1"):
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)
            left.wait()

    asyncio.run(asked())

    assert left.status == 130
    assert heard.was_left.is_set()
    assert "Resume with:\n  assay eval e.py --resume r-1\n" in capsys.readouterr().err


def test_the_second_signal_ends_a_process_whose_event_loop_is_stuck(
    left: Left, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOP_TIMEOUT_S", 0.01)

    async def stuck() -> None:
        with stop_on_signals(Stop(), Heard(), lambda: None):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            left.wait()

    asyncio.run(stuck())

    assert left.status == 130
    assert capsys.readouterr().err == "interrupted; recorded results are kept\n"


def test_the_second_signal_ends_a_process_that_waits_for_what_does_not_come(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_EXIT_TIMEOUT_S", 0.01)

    async def waiting() -> None:
        with stop_on_signals(Stop(), Heard()):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            while left.status is None:
                await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(waiting(), 180))

    assert left.status == 130


def test_a_run_that_ends_after_the_second_signal_is_not_hurried(left: Left) -> None:
    others = set(threading.enumerate())

    stop, _ = asyncio.run(sent(signal.SIGINT, signal.SIGINT))
    # One that is about to start cannot be joined yet.
    while any(isinstance(each, threading.Timer) for each in set(threading.enumerate()) - others):
        time.sleep(0.01)

    assert stop.at_once
    assert left.status is None


def test_signals_are_still_heard_while_the_end_is_told(left: Left) -> None:
    asyncio.run(sent(signal.SIGINT))

    os.kill(os.getpid(), signal.SIGINT)
    left.wait()

    assert left.status == 130


def test_a_process_that_lives_on_after_an_interrupted_command_has_its_handlers_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def interrupt(words: object) -> int:
        for _ in range(2):
            asyncio.run(sent(signal.SIGINT))
        return 130

    monkeypatch.setattr("assay.cli._dispatch_command", interrupt)

    assert main(["eval"]) == 130

    assert {number: signal.getsignal(number) for number in before} == before
    assert signal.set_wakeup_fd(-1) == -1
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    during: list[object] = []

    async def elsewhere() -> None:
        with stop_on_signals(Stop(), Heard()):
            during.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    thread.join()

    assert during == [before]


FORKED = """
import asyncio, os, signal, sys, time
from assay.cli.signals import stop_on_signals
from assay.cli.progress_bar import Display
from assay.runner import Stop

async def forked():
    stop = Stop()
    with stop_on_signals(stop, Display()):
        child = os.fork()
        if not child:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(30)
            except KeyboardInterrupt:
                os._exit(7)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        await asyncio.sleep(0.05)
        return status, stop.requested

print(asyncio.run(forked()))
"""


def test_the_signals_of_a_forked_child_are_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, timeout=300
    )

    assert done.stdout == "(7, False)\n", done.stderr


def test_afterwards_signals_do_what_they_did_before() -> None:
    before = signal.getsignal(signal.SIGTERM)

    asyncio.run(sent())

    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_leaving_writes_out_what_was_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Stream:
        def flush(self) -> None:
            written.append("flushed")

    def leave(status: int) -> None:
        written.append(str(status))
        raise SystemExit

    monkeypatch.setattr(sys, "stdout", Stream())
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(os, "_exit", leave)

    with pytest.raises(SystemExit):
        exit_interrupted()

    assert written == ["flushed", "130"]


def test_a_display_is_told_that_time_goes_on() -> None:
    async def told() -> bool:
        heard = Heard()
        async with tick_periodically(heard, every_s=0.001):
            return await asyncio.wait_for(heard.ticks.wait(), 180)

    assert asyncio.run(told())


def test_work_is_run_while_the_display_ticks_and_signals_request_its_stop() -> None:
    stop, heard = Stop(grace_s=7), Heard()

    async def work() -> str:
        await asyncio.wait_for(heard.ticks.wait(), 180)
        os.kill(os.getpid(), signal.SIGINT)
        while not stop.requested:
            await asyncio.sleep(0.001)
        return "done"

    assert run_until_stopped(work, stop, heard) == "done"
