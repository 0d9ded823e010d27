"""Ctrl-C while synchronous code waits for an evaluation inside a running event loop."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.runner import EvalConfig, EvalReport, Stop, evaluate_sync
from assay.runner.blocking_run import _ThreadedWork
from assay.store import Store
from assay.types import Sample
from misbehaving import PATIENCE_S
from runner_runs import rows


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def evaluate_and_interrupt(store: Path, stop: Stop | None = None) -> EvalReport:
    """Evaluate an agent that gets a Ctrl-C from the terminal and does not end by itself."""

    async def interrupt(sample: Sample) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)
        return "never"

    config = EvalConfig(agent=interrupt, score_fn=lambda sample: 1.0)
    return evaluate_sync(rows(1), config, store=store, stop=stop)


def check_interrupted(store: Path) -> None:
    with Store.open(store, create=False) as opened:
        assert opened.run("latest").status == "interrupted"
    assert not [each for each in threading.enumerate() if "evaluate_sync" in each.name]


def test_ctrl_c_under_asyncio_run_ends_the_evaluation(store: Path) -> None:
    async def run_cell() -> None:
        handler = signal.getsignal(signal.SIGINT)
        try:
            evaluate_and_interrupt(store)
        finally:
            assert signal.getsignal(signal.SIGINT) is handler

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run_cell())

    check_interrupted(store)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_blocked_loop_does_not_lose_it(store: Path) -> None:
    seen: list[str] = []

    async def run_cell() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, seen.append, "later")
        with pytest.raises(KeyboardInterrupt):
            evaluate_and_interrupt(store)
        while not seen:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run_cell(), PATIENCE_S))

    check_interrupted(store)
    assert seen == ["later"]


def test_a_handler_that_requests_the_stop_is_left_to_do_that(store: Path) -> None:
    stop = Stop(grace_s=0.0)

    async def run_cell() -> EvalReport:
        signal.signal(signal.SIGINT, lambda *_: stop.request())
        return evaluate_and_interrupt(store, stop)

    report = asyncio.run(run_cell())

    assert report.interrupted
    assert report.summary.samples == 0
    check_interrupted(store)


def test_work_that_is_cancelled_before_its_thread_has_begun_is_not_started() -> None:
    started: list[bool] = []

    async def start() -> None:
        started.append(True)

    work = _ThreadedWork(start)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(work.run())

    assert started == []


def test_a_stop_is_heard_from_another_thread(store: Path) -> None:
    stop, waiting = Stop(grace_s=0.0), threading.Event()

    async def wait(sample: Sample) -> str:
        waiting.set()
        await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)
        return "never"

    def request() -> None:
        assert waiting.wait(PATIENCE_S)
        stop.request()

    thread = threading.Thread(target=request)
    thread.start()
    config = EvalConfig(agent=wait, score_fn=lambda sample: 1.0)
    report = evaluate_sync(rows(1), config, store=store, stop=stop)
    thread.join()

    assert report.interrupted
