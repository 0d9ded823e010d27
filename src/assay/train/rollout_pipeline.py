"""Rollouts of later steps are collected while one step is learned, within a bound."""

import asyncio
from contextlib import suppress
from typing import Protocol, Self

from assay.runner import Stop

from .rollout_collector import StepInterrupted, StepRollouts


class StepCollector(Protocol):
    """Collects the rollouts of one step at a time."""

    async def collect(self, step: int, position: int) -> StepRollouts:
        """Return all rollouts of a step."""


class RolloutPipeline:
    """Collects up to `ahead` steps before they are needed; an async context manager.

    The rollouts of a step begin when at most `ahead` steps before it are not learned, so that the
    weights that sample them are at most that many steps old. 0: sampling and learning take turns.
    """

    def __init__(self, collector: StepCollector, *, ahead: int, last: int, stop: Stop) -> None:
        self._collector = collector
        self._ahead = ahead
        self._last = last
        self._stop = stop
        self._learned = 0
        self._progressed = asyncio.Event()
        self._collected: asyncio.Queue[StepRollouts | BaseException] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._stop.listen(self._progressed.set)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is None:
            return
        # After a stop request it ends by itself: rollouts in flight have a while to finish.
        if not self._stop.requested:
            self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def collect(self, step: int, position: int) -> StepRollouts:
        """Return all rollouts of a step. Every step before it is learned, and its weights sent."""
        self._learned = step - 1
        self._progressed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._collect_all(step, position))
        found = await self._collected.get()
        if isinstance(found, BaseException):
            raise found
        return found

    async def _collect_all(self, first: int, position: int) -> None:
        try:
            for step in range(first, self._last + 1):
                await self._wait_for(step - 1 - self._ahead)
                collected = await self._collector.collect(step, position)
                position = collected.position
                self._collected.put_nowait(collected)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # Raised by `collect`, when the steps before it are learned.
            self._collected.put_nowait(error)

    async def _wait_for(self, learned: int) -> None:
        while self._learned < learned:
            if self._stop.requested:
                raise StepInterrupted
            self._progressed.clear()
            await self._progressed.wait()
