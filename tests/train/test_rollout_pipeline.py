"""Rollouts ahead of learning: how far, in which order, and how it ends."""

import asyncio

import pytest

from assay.runner import Stop
from assay.train.rollout_collector import StepInterrupted, StepRollouts
from assay.train.rollout_pipeline import RolloutPipeline


class Collector:
    """Collects nothing at once, and notes which step was learned when each began."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.began: list[int] = []
        self.positions: list[int] = []
        self.active = 0
        self._fails_at = fails_at

    async def collect(self, step: int, position: int) -> StepRollouts:
        self.active += 1
        assert self.active == 1
        self.began.append(step)
        self.positions.append(position)
        await asyncio.sleep(0)
        self.active -= 1
        if step == self._fails_at:
            raise RuntimeError("the server is gone")
        return StepRollouts([], position + 10, 0.0, 0, 0)


async def settle() -> None:
    """Let the pipeline run as far as it may."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_a_step_begins_when_at_most_so_many_before_it_are_not_learned(ahead: int) -> None:
    async def run() -> None:
        collector = Collector()
        async with RolloutPipeline(collector, ahead=ahead, last=8, stop=Stop()) as pipeline:
            for step in range(1, 9):
                collected = await pipeline.collect(step, 10 * (step - 1))
                await settle()
                assert collected.position == 10 * step
                assert collector.began == list(range(1, min(8, step + ahead) + 1))
        assert collector.positions == [10 * step for step in range(8)]

    asyncio.run(run())


def test_an_error_is_raised_when_the_steps_before_it_are_learned() -> None:
    async def run() -> None:
        async with RolloutPipeline(Collector(fails_at=3), ahead=4, last=8, stop=Stop()) as pipeline:
            await pipeline.collect(1, 0)
            await settle()
            await pipeline.collect(2, 10)
            with pytest.raises(RuntimeError, match="the server is gone"):
                await pipeline.collect(3, 20)

    asyncio.run(run())


def test_a_stop_ends_a_pipeline_that_waits_for_learning() -> None:
    async def run() -> None:
        stop, collector = Stop(), Collector()
        async with RolloutPipeline(collector, ahead=1, last=8, stop=stop) as pipeline:
            await pipeline.collect(1, 0)
            await settle()
            stop.request()
            await settle()
            await pipeline.collect(2, 10)
            with pytest.raises(StepInterrupted):
                await pipeline.collect(3, 20)
        assert collector.began == [1, 2]

    asyncio.run(run())


def test_leaving_cancels_rollouts_that_nothing_waits_for() -> None:
    class Endless(Collector):
        cancelled = False

        async def collect(self, step: int, position: int) -> StepRollouts:
            if step == 1:
                return await super().collect(step, position)
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled = True
            raise AssertionError

    async def run() -> None:
        collector = Endless()
        async with RolloutPipeline(collector, ahead=1, last=8, stop=Stop()) as pipeline:
            await pipeline.collect(1, 0)
            await settle()
        assert collector.cancelled

    asyncio.run(run())
