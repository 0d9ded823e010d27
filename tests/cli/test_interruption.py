"""Signals ask a run to stop. That a whole run then ends well is shown in `tests/flows/`."""

import asyncio
import os
import signal
import sys

import pytest

from assay.cli.interruption import leave_now, stopping_on_signals, ticking
from assay.cli.progress import Silence
from assay.evaluation import Stop


class Heard(Silence):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.ticks = asyncio.Event()

    def say(self, text: str) -> None:
        self.said.append(text)

    def tick(self) -> None:
        self.ticks.set()


async def sent(*numbers: signal.Signals) -> tuple[Stop, Heard]:
    stop, heard = Stop(grace_s=7), Heard()
    with stopping_on_signals(stop, heard):
        for number in numbers:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.01)
    return stop, heard


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_leaves_samples_in_flight_their_time(number: signal.Signals) -> None:
    stop, heard = asyncio.run(sent(number))

    assert (stop.requested, stop.at_once) == (True, False)
    assert heard.said == ["stopping: samples in flight have 7 s to end; again to stop now"]


def test_the_second_signal_stops_now() -> None:
    stop, heard = asyncio.run(sent(signal.SIGINT, signal.SIGTERM))

    assert stop.at_once
    assert heard.said[1:] == ["stopping now"]


def test_the_third_signal_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[int] = []
    monkeypatch.setattr(os, "_exit", statuses.append)

    asyncio.run(sent(signal.SIGINT, signal.SIGINT, signal.SIGINT))

    assert statuses == [130]


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
        leave_now()

    assert written == ["flushed", "130"]


def test_a_display_is_told_that_time_goes_on() -> None:
    async def wait() -> None:
        heard = Heard()
        async with ticking(heard, every_s=0.001):
            await asyncio.wait_for(heard.ticks.wait(), 10)

    asyncio.run(wait())
