"""Calling a scorer: async, fast or blocking, without stalling the loop."""

import asyncio
import threading
import time

import pytest

from assay.models import EvaluateResult, Sample
from assay.scoring import ScoreCaller

ASKED = Sample(id="a", prompt="2+2?")


def test_an_async_scorer_is_awaited_in_the_loop() -> None:
    async def score(sample: Sample) -> float:
        await asyncio.sleep(0)
        assert threading.current_thread() is threading.main_thread()
        return 0.5

    assert asyncio.run(_called(ScoreCaller(score))).reward == 0.5


def test_a_plain_function_that_returns_an_awaitable_is_awaited() -> None:
    async def later() -> bool:
        return True

    assert asyncio.run(_called(ScoreCaller(lambda sample: later()))).reward == 1.0


async def _called(caller: ScoreCaller) -> EvaluateResult:
    try:
        return await caller(ASKED)
    finally:
        caller.close()


def test_a_blocking_scorer_does_not_stall_the_loop() -> None:
    together = threading.Barrier(8, timeout=5)

    def score(sample: Sample) -> bool:
        together.wait()  # passes only if eight of them run at once
        return True

    async def run() -> list[EvaluateResult]:
        caller = ScoreCaller(score)
        try:
            return await asyncio.gather(*(caller(ASKED) for _ in range(8)))
        finally:
            caller.close()

    assert [result.reward for result in asyncio.run(run())] == [1.0] * 8


def test_a_fast_scorer_is_called_directly_after_its_trials() -> None:
    threads: list[bool] = []

    def score(sample: Sample) -> bool:
        threads.append(threading.current_thread() is threading.main_thread())
        return True

    async def run() -> None:
        caller = ScoreCaller(score)
        for _ in range(50):
            await caller(ASKED)
        caller.close()

    asyncio.run(run())

    assert threads[0] is False
    assert threads[-1] is True


def test_one_thread_is_enough_to_find_out_that_a_scorer_is_fast() -> None:
    threads: set[int] = set()

    def score(sample: Sample) -> bool:
        threads.add(threading.get_ident())
        return True

    async def run() -> None:
        caller = ScoreCaller(score)
        await asyncio.gather(*(caller(ASKED) for _ in range(100)))
        caller.close()

    asyncio.run(run())

    assert len(threads - {threading.get_ident()}) == 1


def test_a_scorer_that_turns_slow_goes_back_to_threads() -> None:
    calls = 0

    def score(sample: Sample) -> bool:
        nonlocal calls
        calls += 1
        if calls == 40:
            time.sleep(0.03)
        return threading.current_thread() is threading.main_thread()

    async def run() -> list[float | None]:
        caller = ScoreCaller(score)
        rewards = [(await caller(ASKED)).reward for _ in range(45)]
        caller.close()
        return rewards

    assert asyncio.run(run())[40:] == [0.0] * 5


def test_what_a_scorer_raises_reaches_the_caller() -> None:
    def score(sample: Sample) -> bool:
        raise KeyError("answer")

    with pytest.raises(KeyError, match="answer"):
        asyncio.run(_called(ScoreCaller(score)))
