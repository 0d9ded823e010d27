"""Rollouts by a custom rollout processor."""

import asyncio
from collections.abc import Callable, Mapping
from copy import deepcopy
from types import TracebackType
from typing import Any

from assay.environments import BasicEnvironment
from assay.errors import ConfigError, EnvironmentFault
from assay.providers import ModelClient
from assay.types import Sample, Trajectory

from .processors import RolloutProcessor, RolloutProcessorConfig


class CustomRollouts:
    """Calls the processor for one row at a time. Entering the context sets it up.

    assay schedules and repeats the rows itself.
    """

    def __init__(self, processor: RolloutProcessor, settings: Mapping[str, Any]) -> None:
        self._processor = processor
        self._settings = dict(settings)

    async def __aenter__(self) -> Callable[[Sample], BasicEnvironment]:
        self._processor.setup()
        return lambda sample: BasicEnvironment()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._processor.acleanup()
        self._processor.cleanup()

    async def roll_out(self, client: ModelClient | None, sample: Sample) -> Trajectory:
        """Return the trajectory of one row. Changes of the processor to the row are kept."""
        config = RolloutProcessorConfig(
            **deepcopy(self._settings),
            # assay limits concurrency itself; processors still expect a semaphore.
            semaphore=asyncio.Semaphore(1),
            client=client,
            client_params=self._settings["completion_params"],
        )
        tasks = self._processor([sample], config)
        if not isinstance(tasks, list) or len(tasks) != 1:
            raise ConfigError(
                f"{type(self._processor).__name__} did not return one task for one row",
                where="rollout_processor",
            )
        try:
            row = await tasks[0]
        finally:
            tasks[0].cancel()
        if not isinstance(row, Sample):
            raise EnvironmentFault(
                f"{type(self._processor).__name__} returned a {type(row).__name__}, "
                "not an EvaluationRow"
            )
        if row is not sample:
            sample.ground_truth, sample.metadata = row.ground_truth, row.metadata
        return row.trajectory or Trajectory(messages=row.messages)
