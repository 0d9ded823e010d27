"""Threads beside the event loop: what they bring back, and how they end."""

import asyncio
import subprocess
import sys
from threading import Event

import pytest

from assay.providers.daemon_threads import ExitGroup, deliver, run_in_thread


def test_a_value_or_an_error_comes_back_to_whoever_waits() -> None:
    def fail() -> int:
        raise KeyError("boom")

    assert asyncio.run(run_in_thread(lambda: 7)) == 7
    with pytest.raises(KeyError, match="boom"):
        asyncio.run(run_in_thread(fail))


def test_the_event_loop_lives_on_meanwhile() -> None:
    async def both() -> bool:
        go = Event()
        waiting = asyncio.create_task(run_in_thread(lambda: go.wait(60)))
        await asyncio.sleep(0)
        go.set()
        return await waiting

    assert asyncio.run(both())


def test_who_gave_up_gets_nothing_and_breaks_nothing() -> None:
    async def give_up() -> None:
        go, done = Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def work() -> None:
            go.wait(60)
            loop.call_soon_threadsafe(loop.call_soon, done.set)

        waiting = asyncio.create_task(run_in_thread(work))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        go.set()
        await asyncio.wait_for(done.wait(), 180)

    asyncio.run(give_up())


def test_a_loop_that_is_closed_wants_nothing() -> None:
    loop = asyncio.new_event_loop()
    future: asyncio.Future[int] = loop.create_future()
    loop.close()

    deliver(loop, [(future, 7)])

    assert not future.done()


def test_shutdown_signals_every_thread_and_joins_them() -> None:
    group, ended = ExitGroup(), []

    def work() -> None:
        while not group.is_shutting_down:
            pass
        ended.append(True)

    group.start(work)
    group.start(work)
    group.shutdown()

    assert ended == [True, True]


def test_a_thread_that_never_ends_does_not_keep_the_process() -> None:
    code = (
        "from assay.providers import daemon_threads as background\n"
        "from threading import Event\n"
        "background._JOIN_TIMEOUT_S = 0.05\n"
        "background.EXIT_GROUP.start(Event().wait)\n"
        "raise SystemExit(7)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300)

    assert (done.returncode, done.stderr) == (7, b"")
