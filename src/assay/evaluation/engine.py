"""The one place that joins source, rollout, scoring and record."""

import asyncio
from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import dataclass

from assay.endpoints import ModelClient
from assay.errors import AccessDenied, AssayError
from assay.models import (
    Boundary,
    EvaluateResult,
    Failure,
    Message,
    Sample,
    Status,
    Trajectory,
)
from assay.record import Writer, sample_key
from assay.rollout import RolloutFailed, run_agent
from assay.scoring import ScoreCaller

from .config import EvalConfig
from .progress import Progress, Stop, Watch


@dataclass(frozen=True)
class Unit:
    """One rollout to do."""

    sample: Sample
    repeat: int
    key: str


def units(
    samples: Iterator[Sample], config: EvalConfig, *, run_id: str, done: Container[str]
) -> Iterator[Unit]:
    """The rollouts that are not recorded yet, one sample at a time."""
    fingerprint = config.fingerprint()
    for sample in samples:
        for repeat in range(config.repeats):
            key = sample_key(run_id, sample.id, repeat, fingerprint)
            if key not in done:
                yield Unit(_copy(sample, repeat, config.repeats), repeat, key)


def _copy(sample: Sample, repeat: int, repeats: int) -> Sample:
    if repeats == 1:
        return sample
    # Each rollout fills a sample of its own; what they share is only read.
    return sample.model_copy(
        update={
            "group_index": sample.index,
            "rollout_id": f"{sample.id}#{repeat}",
            "metadata": dict(sample.metadata),
        }
    )


class Engine:
    """Runs units through a bounded number of workers and records each as it ends."""

    def __init__(
        self,
        config: EvalConfig,
        client: ModelClient | None,
        writer: Writer,
        *,
        progress: Progress,
        watch: Watch | None = None,
        stop: Stop | None = None,
    ) -> None:
        self._config = config
        self._client = client
        self._writer = writer
        self._scorer = None if config.score_fn is None else ScoreCaller(config.score_fn)
        self._progress = progress
        self._watch = watch
        self._stop = stop or Stop()
        self._fatal: BaseException | None = None
        self._answered = False
        self._recording: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()

    async def run(self, todo: Iterator[Unit]) -> None:
        """Work until there is nothing left, or the run is stopped.

        Raises what makes going on pointless: a refused key, a dataset that cannot be read on, a
        store that cannot be written. What was recorded before that stays.
        """
        workers = [asyncio.create_task(self._work(todo)) for _ in range(self._config.concurrency)]
        overseer = asyncio.create_task(self._oversee(workers))
        try:
            await asyncio.gather(*workers, return_exceptions=True)
        finally:
            for worker in workers:
                worker.cancel()
            overseer.cancel()
            await asyncio.gather(*workers, overseer, return_exceptions=True)
            await asyncio.gather(*self._recording)
            if self._scorer is not None:
                self._scorer.close()
        if self._fatal is not None:
            raise self._fatal

    async def _oversee(self, workers: list[asyncio.Task[None]]) -> None:
        """Once a stop is asked for, give samples in flight their grace time, then end them."""
        asked = asyncio.Event()
        self._stop.listen(asked.set)
        while not self._stop.requested:
            await asked.wait()
        asked.clear()
        if not self._stop.at_once:
            with suppress(TimeoutError):
                await asyncio.wait_for(asked.wait(), self._stop.grace_s)
        for worker in workers:
            worker.cancel()

    async def _work(self, todo: Iterator[Unit]) -> None:
        while not self._stop.requested and self._fatal is None:
            try:
                unit = next(todo, None)
            except Exception as error:
                # The dataset: no worker can go on, but the others finish what they have.
                self._fatal = error
                return
            if unit is None:
                return
            failure = await self._attempt(unit)
            # A refused key says nothing about the sample. Whatever else ended the run, what was
            # done until then is kept.
            if not isinstance(self._fatal, AccessDenied):
                await self._hand_over(unit, failure)

    async def _attempt(self, unit: Unit) -> Failure | None:
        """Fill the sample in. A failure is data; only cancellation passes through."""
        sample = unit.sample
        try:
            if self._client is not None:
                sample.trajectory = await self._rolled_out(unit, self._client)
                self._answered = True
        except RolloutFailed as failed:
            sample.trajectory = failed.trajectory
            return self._failed(sample, failed.__cause__ or failed, failed.boundary)
        except _Unprepared as unprepared:
            return self._failed(sample, unprepared.__cause__ or unprepared, unprepared.boundary)
        except TimeoutError as error:
            return self._failed(sample, error, Boundary.ENDPOINT)
        try:
            sample.score = await self._score(sample)
        except Exception as error:
            return self._failed(sample, error, Boundary.SCORER)
        truncated = sample.trajectory is not None and sample.trajectory.truncated
        sample.status = Status.TRUNCATED if truncated else Status.COMPLETED
        return None

    async def _rolled_out(self, unit: Unit, client: ModelClient) -> Trajectory:
        sample = unit.sample
        messages = self._prepared(sample)
        try:
            environment = self._config.make_environment(sample)
        except Exception as error:
            raise _Unprepared(Boundary.ENVIRONMENT) from error
        rollout = run_agent(
            client,
            environment,
            messages,
            limits=self._config.limits,
            seed=self._config.seed_of(sample, unit.repeat),
        )
        if self._config.sample_timeout_s is None:
            return await rollout
        try:
            async with asyncio.timeout(self._config.sample_timeout_s):
                return await rollout
        except TimeoutError as error:
            seconds = self._config.sample_timeout_s
            raise TimeoutError(f"the sample was not finished within {seconds} s") from error

    def _prepared(self, sample: Sample) -> list[Message]:
        prepare = self._config.prepare_messages
        try:
            given = sample.messages if prepare is None else prepare(sample)
            return [
                message if isinstance(message, Message) else Message.model_validate(message)
                for message in given
            ]
        except Exception as error:
            raise _Unprepared(Boundary.DATASET) from error

    async def _score(self, sample: Sample) -> EvaluateResult:
        own = sample.trajectory.evaluation_result if sample.trajectory is not None else None
        if self._scorer is None:
            return own or EvaluateResult(reason="the environment gave no reward")
        result = await self._scorer(sample)
        if own is None or result.step_outputs is not None:
            return result
        # The steps belong to the result, whoever judged it.
        return result.model_copy(
            update={
                "step_outputs": own.step_outputs,
                "final_control_plane_info": own.final_control_plane_info,
                "trajectory_info": own.trajectory_info,
            }
        )

    def _failed(self, sample: Sample, error: BaseException, boundary: Boundary) -> Failure:
        if isinstance(error, AccessDenied) and not self._answered:
            # Nothing was ever answered: every other call would be refused as well.
            self._fatal = error
        failure = Failure.of(error, boundary, retryable=getattr(error, "retryable", True))
        sample.status = Status.FAILED
        sample.failure = failure
        sample.score = EvaluateResult(error=f"{failure.kind}: {failure.message}")
        return failure

    async def _hand_over(self, unit: Unit, failure: Failure | None) -> None:
        """Give the sample to the store without waiting for the disk, unless it is far behind."""
        while len(self._recording) >= _MOST_UNRECORDED:
            self._room.clear()
            await self._room.wait()
        task = asyncio.create_task(self._record(unit, failure))
        self._recording.add(task)
        task.add_done_callback(self._recorded)

    def _recorded(self, task: asyncio.Task[None]) -> None:
        self._recording.discard(task)
        if len(self._recording) < _MOST_UNRECORDED:
            self._room.set()

    async def _record(self, unit: Unit, failure: Failure | None) -> None:
        try:
            if failure is not None:
                await self._writer.record_failure(unit.key, unit.sample, repeat=unit.repeat)
                self._progress.failed += 1
            elif await self._writer.record(unit.key, unit.sample, repeat=unit.repeat):
                self._progress.add(unit.sample.reward, cost_of(unit.sample))
        except AssayError as error:
            self._fatal = self._fatal or error
            return
        if self._watch is not None:
            self._watch(self._progress)


_MOST_UNRECORDED = 1000


class _Unprepared(Exception):
    """A rollout could not even begin."""

    def __init__(self, boundary: Boundary) -> None:
        self.boundary = boundary


def cost_of(sample: Sample) -> float | None:
    """What the model calls of a sample cost; None when one of them is unknown."""
    if sample.trajectory is None:
        return 0.0
    total = 0.0
    for call in sample.trajectory.calls:
        if call.usage is None or call.usage.cost_usd is None:
            return None
        total += call.usage.cost_usd
    return total
