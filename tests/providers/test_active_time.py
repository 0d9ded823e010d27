"""Own time: it stands still in the queue, and only there."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from assay.providers.active_time import ActiveTimer
from assay.providers.concurrency import Limiter
from told_loop import in_told_time


class Counter:
    """A limiter of one slot, which somebody else has for some seconds."""

    def __init__(self, taken_s: float) -> None:
        self.limiter = Limiter(1)
        assert self.limiter.try_acquire()
        asyncio.get_running_loop().call_later(taken_s, self.limiter.release)

    async def ask(self, seconds: float) -> None:
        await self.limiter.acquire()
        await asyncio.sleep(seconds)
        self.limiter.release()


async def runs_out(own: ActiveTimer, seconds: float, work: Coroutine[Any, Any, None]) -> bool:
    try:
        async with own.limit_time(seconds) as timer:
            await work
    except TimeoutError:
        assert timer.expired()
        return True
    return False


def test_waiting_for_a_turn_is_not_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> tuple[float, float]:
        with ActiveTimer() as own:
            await Counter(taken_s=5).ask(2)
        return own.spent_s, own.waited_s

    assert in_told_time(scenario(), monkeypatch) == pytest.approx((2, 5))


def test_a_limit_does_not_run_out_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> float:
        with ActiveTimer() as own:
            assert not await runs_out(own, 3, Counter(taken_s=5).ask(2))
            assert await runs_out(own, 3, Counter(taken_s=5).ask(2))
        return own.spent_s

    assert in_told_time(scenario(), monkeypatch) == pytest.approx(3)


def test_a_limit_counts_from_the_beginning_of_the_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> float:
        with ActiveTimer() as own:
            await Counter(taken_s=5).ask(2)
            assert await runs_out(own, 3, asyncio.sleep(2))
        return own.spent_s

    assert in_told_time(scenario(), monkeypatch) == pytest.approx(3)


def test_several_that_wait_at_once_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> tuple[float, float]:
        counter = Counter(taken_s=5)

        async def ask_after(seconds: float) -> None:
            await asyncio.sleep(seconds)
            await counter.ask(2)

        with ActiveTimer() as own:
            async with own.limit_time(4.5):
                await asyncio.gather(*(ask_after(n) for n in range(3)))
                await asyncio.sleep(1)
        return own.spent_s, own.waited_s

    # The last one waits until the others have been asked: from 0 to 9, and is asked until 11.
    assert in_told_time(scenario(), monkeypatch) == pytest.approx((3, 9))


def test_the_time_stands_still_while_it_is_read_in_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> float:
        with ActiveTimer() as own:
            await asyncio.sleep(1)
            waiting = asyncio.create_task(Counter(taken_s=5).ask(0))
            await asyncio.sleep(3)
            read = own.spent_s
            await waiting
        return read

    assert in_told_time(scenario(), monkeypatch) == pytest.approx(1)


def test_a_wait_within_a_part_is_one_of_the_whole_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> list[float]:
        with ActiveTimer() as whole:
            async with whole.limit_time(4):
                with ActiveTimer() as part:
                    async with part.limit_time(2.5):
                        await Counter(taken_s=5).ask(2)
                await asyncio.sleep(1)
                await Counter(taken_s=5).ask(0)
        return [part.waited_s, whole.waited_s, whole.spent_s]

    assert in_told_time(scenario(), monkeypatch) == pytest.approx([5, 10, 3])


def test_a_cancelled_wait_sets_the_limit_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gives_up() -> None:
        waiting = asyncio.create_task(Counter(taken_s=9).ask(0))
        await asyncio.sleep(5)
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.sleep(4)

    async def scenario() -> float:
        with ActiveTimer() as own:
            assert await runs_out(own, 3, gives_up())
        return own.spent_s

    assert in_told_time(scenario(), monkeypatch) == pytest.approx(3)


def test_what_still_waits_when_the_limited_part_has_ended_touches_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> float:
        with ActiveTimer() as own:
            async with own.limit_time(3) as timer:
                waiting = asyncio.create_task(Counter(taken_s=5).ask(0))
                await asyncio.sleep(1)
            await waiting
        assert not timer.expired()
        return own.waited_s

    assert in_told_time(scenario(), monkeypatch) == pytest.approx(5)


def test_a_limit_that_has_run_out_is_not_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tidies_up() -> None:
        try:
            await asyncio.sleep(4)
        finally:
            await Counter(taken_s=5).ask(0)

    async def scenario() -> float:
        with ActiveTimer() as own:
            assert await runs_out(own, 3, tidies_up())
        return own.spent_s

    assert in_told_time(scenario(), monkeypatch) == pytest.approx(3)


def test_work_in_another_thread_does_not_stop_the_clock_here() -> None:
    async def waits() -> None:
        limiter = Limiter(1)
        assert limiter.try_acquire()
        asyncio.get_running_loop().call_soon(limiter.release)
        with ActiveTimer() as inner:
            await limiter.acquire()
        assert inner.waited_s > 0

    async def scenario() -> None:
        with ActiveTimer() as own:
            async with own.limit_time(60) as timer:
                due = timer.when()
                await asyncio.to_thread(asyncio.run, waits())
                assert timer.when() == due
        assert own.waited_s == 0

    asyncio.run(scenario())
