"""Batches: who is answered together, and what becomes of those who give up."""

import asyncio
from collections.abc import Sequence
from threading import Event

import pytest

from assay.providers.in_process_batches import BatchAnswer, BatchQueue, Job
from assay.providers.in_process_decoder import Generated, Sampling, ShouldStop


class Counting:
    """An engine that answers each prompt with its own first id."""

    weight_version: str | None = "v1"

    def __init__(self, *, wait: Event | None = None) -> None:
        self.seen: list[list[int]] = []
        self.began = Event()
        self._wait = wait

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sequence[Sampling] | Sampling,
        *,
        seeds: Sequence[int | None],
        should_stop: ShouldStop | None = None,
    ) -> list[Generated]:
        self.seen.append([prompt[0] for prompt in prompts])
        self.began.set()
        if self._wait is not None:
            assert self._wait.wait(60)
        return [Generated((prompt[0],), (-1.0,), "stop") for prompt in prompts]


def job(number: int) -> Job:
    return Job([number], Sampling(), None)


async def late(batches: BatchQueue, engine: Counting, number: int, *, turns: int) -> BatchAnswer:
    for _ in range(turns):
        await asyncio.sleep(0)
    return await batches.answer(job(number), engine, max_batch=64)


def test_calls_that_take_a_few_turns_of_the_loop_to_come_are_waited_for() -> None:
    async def run() -> list[BatchAnswer]:
        calls = (late(batches, engine, number, turns=number) for number in range(6))
        return await asyncio.gather(*calls)

    batches, engine = BatchQueue(), Counting()
    answers = asyncio.run(run())

    assert engine.seen == [[0, 1, 2, 3, 4, 5]]
    assert [answer.generated.ids for answer in answers] == [(number,) for number in range(6)]
    assert {answer.weight_version for answer in answers} == {"v1"}


def test_what_comes_while_a_batch_runs_is_the_next_batch() -> None:
    async def run() -> None:
        first = asyncio.create_task(batches.answer(job(0), engine, max_batch=64))
        while not engine.began.is_set():
            await asyncio.sleep(0)
        rest = [asyncio.create_task(late(batches, engine, n, turns=0)) for n in (1, 2)]
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(first, *rest)

    go = Event()
    batches, engine = BatchQueue(), Counting(wait=go)
    asyncio.run(run())

    assert engine.seen == [[0], [1, 2]]


def test_a_caller_that_gives_up_while_others_gather_does_not_hold_them_up() -> None:
    async def run() -> BatchAnswer:
        first = asyncio.create_task(batches.answer(job(0), engine, max_batch=64))
        await asyncio.sleep(0)
        second = asyncio.create_task(batches.answer(job(1), engine, max_batch=64))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await asyncio.wait_for(second, 180)

    batches, engine = BatchQueue(), Counting()

    assert asyncio.run(run()).generated.ids == (1,)
    assert engine.seen == [[1]]


def test_a_model_serves_one_event_loop_after_another() -> None:
    batches, engine = BatchQueue(), Counting()

    for number in (3, 4):
        answer = asyncio.run(late(batches, engine, number, turns=0))
        assert answer.generated.ids == (number,)


def test_a_row_ends_when_its_caller_gave_up_or_its_words_say_so() -> None:
    async def run() -> tuple[bool, bool, bool]:
        wordy = Job([1], Sampling(), None, hits_stop=lambda ids: len(ids) == 2)
        gone = job(1)
        gone.future.cancel()
        return wordy.ends([1]), wordy.ends([1, 2]), gone.ends([1])

    assert asyncio.run(run()) == (False, True, True)
