"""Calling a scorer: async, fast or blocking, without stalling the loop."""

import asyncio
import inspect
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from assay.scorers import ScoreCaller
from assay.types import EvaluateResult, Sample
from make import asked, said, sample

ASKED = Sample(id="a", prompt="2+2?")


@pytest.fixture
def any_time_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is at the moment."""
    for name in ("_FAST_S", "_SLOW_S", "_TRIAL_WAIT_S"):
        monkeypatch.setattr(f"assay.scorers.caller.{name}", 60.0)


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


def test_a_scorer_does_not_change_the_recorded_conversation() -> None:
    def append(given: Sample) -> float:
        messages: list[Any] = given.messages
        messages.append({"role": "user", "content": "Rate the answer."})
        return 1.0

    def remove(given: Sample) -> float:
        given.messages.clear()
        raise ValueError("unreadable")

    async def replace(given: Sample) -> Sample:
        given.messages = [said("other")]
        given.score = EvaluateResult(score=0.5)
        return given

    async def run() -> list[object]:
        callers = [ScoreCaller(score) for score in (append, remove, replace)]
        found: list[object] = []
        for caller in callers:
            found += await asyncio.gather(caller(judged), return_exceptions=True)
            assert [message.text for message in judged.messages] == ["?", "4"]
            caller.close()
        return found

    judged = sample(asked("?"), said("4"))
    first, second, third = asyncio.run(run())

    assert isinstance(first, EvaluateResult)
    assert isinstance(second, ValueError)
    assert isinstance(third, EvaluateResult)
    assert (first.reward, third.reward) == (1.0, 0.5)


def test_a_blocking_scorer_does_not_stall_the_loop() -> None:
    together = threading.Barrier(8, timeout=180)

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


def test_a_fast_scorer_is_called_directly_after_its_trials(
    any_time_is_fast: None,
) -> None:
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


def test_three_calls_show_that_a_scorer_is_fast_and_the_others_wait_for_them(
    any_time_is_fast: None,
) -> None:
    threads: list[bool] = []

    def score(sample: Sample) -> bool:
        threads.append(threading.current_thread() is threading.main_thread())
        return True

    async def run() -> list[EvaluateResult]:
        caller = ScoreCaller(score)
        results = await asyncio.gather(*(caller(ASKED) for _ in range(100)))
        caller.close()
        return results

    assert [result.reward for result in asyncio.run(run())] == [1.0] * 100
    assert threads == [False] * 3 + [True] * 97


def test_a_scorer_that_raises_at_once_keeps_nobody_waiting() -> None:
    def score(sample: Sample) -> bool:
        raise KeyError("answer")

    async def run() -> list[EvaluateResult | BaseException]:
        caller = ScoreCaller(score)
        calls = (caller(ASKED) for _ in range(50))
        results = await asyncio.gather(*calls, return_exceptions=True)
        caller.close()
        return results

    results = asyncio.run(asyncio.wait_for(run(), 180))

    assert [type(result) for result in results] == [KeyError] * 50


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


def test_a_scorer_that_raises_stop_iteration_hangs_nobody() -> None:
    def score(sample: Sample) -> bool:
        return bool(next(message for message in sample.messages if message.role == "tool"))

    async def run() -> None:
        await asyncio.wait_for(_called(ScoreCaller(score)), 180)

    with pytest.raises(RuntimeError, match="the scorer raised StopIteration") as raised:
        asyncio.run(run())
    assert isinstance(raised.value.__cause__, StopIteration)


def test_a_scorer_kept_apart_never_runs_in_the_loop() -> None:
    threads: list[bool] = []

    def score(sample: Sample) -> bool:
        threads.append(threading.current_thread() is threading.main_thread())
        return True

    async def run() -> None:
        caller = ScoreCaller(score, always_threaded=True)
        for _ in range(20):
            await caller(ASKED)
        caller.close()

    asyncio.run(run())

    assert threads == [False] * 20


def test_calls_that_never_return_take_no_thread_from_the_others() -> None:
    never = threading.Event()

    def score(sample: Sample) -> bool:
        if sample.id == "hangs":
            never.wait(60)
        return True

    async def run() -> EvaluateResult:
        caller = ScoreCaller(score)
        hanging = [asyncio.ensure_future(caller(Sample(id="hangs", prompt="?"))) for _ in range(40)]
        await asyncio.wait(hanging, timeout=0.2)
        for call in hanging:
            call.cancel()
        await asyncio.wait(hanging)
        try:
            return await asyncio.wait_for(caller(ASKED), 180)
        finally:
            caller.close()

    try:
        assert asyncio.run(run()).reward == 1.0
    finally:
        never.set()


def test_a_call_that_is_cancelled_leaves_no_coroutine_that_nobody_awaits() -> None:
    made: list[Coroutine[Any, Any, float]] = []
    goes, may_return = threading.Event(), threading.Event()

    async def judged() -> float:
        return 1.0

    def score(sample: Sample) -> Coroutine[Any, Any, float]:
        goes.set()
        may_return.wait()
        made.append(judged())
        return made[0]

    async def scenario() -> None:
        caller = ScoreCaller(score)
        task = asyncio.create_task(caller(Sample(id="a")))
        await asyncio.to_thread(goes.wait)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        may_return.set()
        while not made or inspect.getcoroutinestate(made[0]) != inspect.CORO_CLOSED:
            await asyncio.sleep(0)
        caller.close()

    asyncio.run(asyncio.wait_for(scenario(), 180))

    assert inspect.getcoroutinestate(made[0]) == inspect.CORO_CLOSED
