"""Threads for blocking calls: few for fast functions, one each for slow ones, none kept alive."""

import asyncio
import pickle
import threading
from functools import partial

import pytest

from assay.providers.call_threads import CallThreads, LoopMailbox


def test_calls_share_the_threads_of_the_pool() -> None:
    names: set[int] = set()

    async def run() -> list[object]:
        threads = CallThreads(20, role="test")

        def call(number: int) -> int:
            names.add(threading.get_ident())
            return number

        found: list[object] = []
        for start in range(0, 2000, 100):
            batch = [threads.run(partial(call, n)) for n in range(start, start + 100)]
            found += await asyncio.gather(*batch)
        threads.close()
        return found

    assert asyncio.run(run()) == list(range(2000))
    assert len(names) <= 20


def test_blocked_calls_get_a_thread_each_up_to_the_limit() -> None:
    released, inside = threading.Event(), threading.Semaphore(0)

    async def run() -> int:
        threads = CallThreads(8, role="test")

        def call() -> None:
            inside.release()
            released.wait(60)

        calls = [asyncio.create_task(threads.run(call)) for _ in range(30)]
        for _ in range(8):
            await asyncio.to_thread(inside.acquire)
        ninth = inside.acquire(timeout=0.05)
        released.set()
        await asyncio.gather(*calls)
        threads.close()
        return int(ninth)

    assert asyncio.run(run()) == 0


def test_an_error_is_raised_where_the_call_is_awaited() -> None:
    def fail() -> None:
        raise KeyError("x")

    async def run() -> None:
        await CallThreads(1, role="test").run(fail)

    with pytest.raises(KeyError, match="x"):
        asyncio.run(run())


def test_an_abandoned_call_is_replaced_by_another_thread() -> None:
    released, entered = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        released.wait(60)

    async def run() -> object:
        threads = CallThreads(1, role="test")
        stuck = asyncio.create_task(threads.run(hang))
        await asyncio.to_thread(entered.wait, 60)
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        return await asyncio.wait_for(threads.run(lambda: "next"), 30)

    try:
        assert asyncio.run(run()) == "next"
    finally:
        released.set()


def test_a_closed_loop_is_no_error_for_a_late_call() -> None:
    loop = asyncio.new_event_loop()
    mailbox = LoopMailbox(loop)
    loop.close()

    assert not mailbox.post(lambda: None)


def test_another_process_starts_threads_of_its_own() -> None:
    async def run() -> int:
        threads = CallThreads(2, role="test")
        await threads.run(threading.get_ident)
        other = pickle.loads(pickle.dumps(threads))
        threads.close()
        found: int = await other.run(lambda: 42)
        other.close()
        return found

    assert asyncio.run(run()) == 42


def test_a_thread_ends_though_its_call_was_cancelled_before_it_began() -> None:
    before = set(threading.enumerate())

    async def run() -> None:
        threads = CallThreads(4, role="test")
        await threads.run(int)
        for _ in range(20):
            task = asyncio.create_task(threads.run(int))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        threads.close()

    asyncio.run(run())

    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()


def test_threads_whose_abandoned_calls_have_ended_are_not_counted_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("assay.providers.call_threads._MAX_ABANDONED_THREADS", 1)

    async def run() -> list[int]:
        threads = CallThreads(1, role="lone")
        for _ in range(3):
            inside, released = threading.Event(), threading.Event()

            def hang(inside: threading.Event = inside, end: threading.Event = released) -> None:
                inside.set()
                end.wait(60)

            task = asyncio.create_task(threads.run(hang))
            await asyncio.to_thread(inside.wait, 60)
            (thread,) = (each for each in threading.enumerate() if each.name == "assay-lone")
            task.cancel()
            await asyncio.wait([task])
            released.set()
            await asyncio.to_thread(thread.join, 60)
        found = [await threads.run(lambda: 7)]
        threads.close()
        return found

    assert asyncio.run(asyncio.wait_for(run(), 120)) == [7]
