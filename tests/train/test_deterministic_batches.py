"""Lockstep: which calls come together does not depend on who is quick."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from assay.providers.in_process_batches import Job
from assay.providers.in_process_decoder import Generated, Sampling
from assay.train.deterministic_batches import Lockstep


class Echo:
    """Remembers the prompts of each batch."""

    weight_version: str | None = "1"

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def generate(
        self, prompts: Sequence[Sequence[int]], *_: Any, seeds: Sequence[int | None], **__: Any
    ) -> list[Generated]:
        self.batches.append([prompt[0] for prompt in prompts])
        return [Generated(tuple(prompt), (0.0,) * len(prompt), "stop") for prompt in prompts]


async def rollout(
    lockstep: Lockstep, engine: Echo, number: int, *, turns: int, pauses: int = 0
) -> None:
    """Asks a few times; its environment takes so many turns of the loop in between."""
    try:
        for _ in range(turns):
            for _ in range(pauses):
                await asyncio.sleep(0)
            job = Job([number], Sampling(), number)
            answered = await lockstep.answer(job, engine, max_batch=3)
            assert answered.generated.ids == (number,)
    finally:
        lockstep.leave()


@pytest.mark.parametrize("pauses", [(0, 0, 0, 0), (9, 0, 3, 1), (0, 20, 0, 5)])
def test_batches_are_the_same_however_long_each_environment_takes(
    pauses: tuple[int, ...],
) -> None:
    engine, lockstep = Echo(), Lockstep()

    async def step() -> None:
        lockstep.expect(4)
        turns = (1, 2, 3, 2)
        await asyncio.gather(
            *(
                rollout(lockstep, engine, number, turns=turns[number], pauses=pauses[number])
                for number in (2, 0, 3, 1)
            )
        )

    asyncio.run(step())

    assert engine.batches == [[0, 1, 2], [3], [1, 2, 3], [2]]


def test_a_rollout_that_breaks_before_it_asks_does_not_hold_the_others_up() -> None:
    engine, lockstep = Echo(), Lockstep()

    async def step() -> None:
        lockstep.expect(3)
        waiting = [
            asyncio.create_task(rollout(lockstep, engine, number, turns=1)) for number in (0, 1)
        ]
        await asyncio.sleep(0)
        assert engine.batches == []
        lockstep.leave()
        await asyncio.gather(*waiting)

    asyncio.run(asyncio.wait_for(step(), 180))

    assert engine.batches == [[0, 1]]


def test_a_cancelled_call_is_not_asked_for() -> None:
    engine, lockstep = Echo(), Lockstep()

    async def step() -> None:
        lockstep.expect(2)
        gone = asyncio.create_task(rollout(lockstep, engine, 0, turns=1))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, rollout(lockstep, engine, 1, turns=1), return_exceptions=True)

    asyncio.run(asyncio.wait_for(step(), 180))

    assert engine.batches == [[1]]


def test_once_released_nobody_waits_for_those_that_do_not_come() -> None:
    engine, lockstep = Echo(), Lockstep()

    async def step() -> None:
        lockstep.expect(5)
        waiting = asyncio.create_task(rollout(lockstep, engine, 0, turns=2))
        await asyncio.sleep(0)
        lockstep.release()
        await waiting

    asyncio.run(asyncio.wait_for(step(), 180))

    assert engine.batches == [[0], [0]]
