"""The rollouts of one step: taken by the evaluation's own engine, each recorded as it ends."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Container, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from assay.errors import TrainingError
from assay.providers import ModelClient
from assay.runner import Engine, EvalConfig, Oversight, Progress, Stop, Unit
from assay.store import Run, Writer, sample_key
from assay.types import Boundary, Sample, Status, Trajectory

from .batches import Group
from .deterministic_batches import Lockstep
from .grpo_config import GRPOConfig
from .prompt_order import FRESH, Drawn, PromptOrder

STEP = "training_step"
"""Key of `Sample.metadata`: the step that a rollout was made for."""

_MOST_LOST = 3
"""Steps in a row without a rollout that succeeded, after which a training stops."""

_ENDED = (Status.COMPLETED, Status.TRUNCATED, Status.FAILED)


@dataclass(frozen=True)
class Collected:
    """What a step learns from, all of it: groups that teach nothing are among them."""

    groups: list[Group]
    position: int
    """Where the next step goes on in the order of prompts."""

    seconds: float
    found: int
    """Rollouts that were recorded before, and were not made again."""

    resampled: int
    """Groups that were taken in the place of others without differences."""


class Interrupted(Exception):
    """The step was asked to end before it was whole. What was recorded is kept."""


class EveryRolloutFailed(TrainingError):
    """No rollout of a step succeeded, and nothing says that the next step's will."""

    def __init__(self, message: str, *, rollouts: int = 0, **told: Any) -> None:
        super().__init__(message, **told)
        self.rollouts = rollouts


@dataclass(frozen=True)
class Recording:
    """Where rollouts are recorded."""

    run: Run
    writer: Writer
    fingerprint: str
    done: Container[str]
    """Keys of rollouts that an earlier process recorded."""

    kept: Container[str] = frozenset[str]()
    """Keys of rollouts that an earlier process could not score."""


@dataclass
class Collector:
    """Makes rollouts of the policy that a client asks."""

    config: GRPOConfig
    evaluation: EvalConfig
    order: PromptOrder
    client: ModelClient
    recording: Recording
    stop: Stop
    lockstep: Lockstep | None = None
    """Is told of each rollout's beginning and end. None: the client takes calls as they come."""

    watch: Callable[[int, int], None] | None = None
    """Told how many rollouts of how many are done."""

    _found: int = field(default=0, init=False)
    _succeeded: bool = field(default=False, init=False)
    _lost: int = field(default=0, init=False)
    """Steps in a row of which no rollout succeeded."""

    async def collect(self, step: int, position: int) -> Collected:
        """All rollouts of a step. Raises `Interrupted` when it was stopped before its end.

        Raises `TrainingError` when every rollout of the first step failed, or of several in a row.
        """
        started, self._found = time.perf_counter(), 0
        wanted = self.config.prompts_per_step
        groups = await self._rolled_out(self.order.take(position, wanted), step)
        position += wanted
        rounds = self.config.resample_rounds if self.config.zero_variance == "resample" else 0
        for _ in range(rounds):
            missing = wanted - sum(group.has_signal for group in groups)
            if not missing:
                break
            groups += await self._rolled_out(self.order.take(position, missing), step)
            position += missing
        self._stop_if_hopeless(step, groups)
        return Collected(
            groups=groups,
            position=position,
            seconds=time.perf_counter() - started,
            found=self._found,
            resampled=len(groups) - wanted,
        )

    def _stop_if_hopeless(self, step: int, groups: Sequence[Group]) -> None:
        failures = [sample.failure for group in groups for sample in group.samples]
        known = [failure for failure in failures if failure is not None]
        if len(known) < len(failures):
            self._succeeded, self._lost = True, 0
            return
        self._lost += 1
        if self._succeeded and self._lost < _MOST_LOST:
            return
        reasons = Counter((str(each.boundary), each.kind, each.message) for each in known)
        (boundary, kind, message), count = reasons.most_common(1)[0]
        kept = boundary == Boundary.SCORER
        raise EveryRolloutFailed(
            f"nothing was learned: all {len(known)} rollouts of step {step} failed, {count} of "
            f"them at the {boundary}: {kind}: {message}",
            rollouts=len(known),
            hint="correct the scorer and resume: its rollouts are kept"
            if kept
            else "correct the cause and resume: failed rollouts are made again",
        )

    async def _rolled_out(self, drawn: Sequence[Drawn], step: int) -> list[Group]:
        units = [self._unit(each, member, step) for each in drawn for member in self._members]
        recorded = await asyncio.to_thread(self._recorded, units)
        self._found += len(recorded)
        todo = [unit for unit in units if unit.key not in recorded]
        self._found += await asyncio.to_thread(self._take_kept, todo)
        progress = Progress(total=len(units), already_done=len(recorded))
        # In waves: whoever begins when another ends would make batches depend on timing.
        for start in range(0, len(todo), self.config.concurrency):
            await self._wave(todo[start : start + self.config.concurrency], progress)
        samples = [recorded.get(unit.key, unit.sample) for unit in units]
        if any(sample.status not in _ENDED for sample in samples):
            raise Interrupted
        size = self.config.group_size
        starts = range(0, len(samples), size)
        return [Group(tuple(samples[start : start + size])) for start in starts]

    async def _wave(self, units: Sequence[Unit], progress: Progress) -> None:
        evaluation = replace(self.evaluation, concurrency=len(units))
        oversight = Oversight(progress, self._watched, self.stop)
        engine = _Engine(evaluation, self.client, self.recording.writer, oversight)
        engine.group_size = self.config.group_size
        if self.lockstep is not None:
            engine.lockstep = self.lockstep
            self.lockstep.expect(sum(unit.kept is None for unit in units))
        await engine.run(iter(units))

    @property
    def _members(self) -> range:
        return range(self.config.group_size)

    def _unit(self, drawn: Drawn, member: int, step: int) -> Unit:
        sample, recording = drawn.sample, self.recording
        # A prompt comes again in each epoch: its rollouts are counted on, and sampled anew.
        repeat = drawn.epoch * self.config.group_size + member
        own = sample.model_copy(
            update={
                **FRESH,
                "group_index": drawn.position,
                "rollout_id": f"{sample.id}#{repeat}",
                # A scorer that changes its row must not change it for the others of the group.
                "input": deepcopy(sample.input),
                "ground_truth": deepcopy(sample.ground_truth),
                "metadata": {**sample.metadata, STEP: step},
            }
        )
        key = sample_key(recording.run.id, sample.id, repeat, recording.fingerprint)
        return Unit(own, repeat, key, sample.id)

    def _recorded(self, units: Sequence[Unit]) -> dict[str, Sample]:
        """The rollouts among these that are in the store, by key."""
        wanted: dict[str, dict[str | None, str]] = {}
        for unit in units:
            if unit.key in self.recording.done:
                wanted.setdefault(unit.sample.id, {})[unit.sample.rollout_id] = unit.key
        return {
            keys[sample.rollout_id]: sample
            for sample_id, keys in wanted.items()
            for sample in self.recording.run.samples(sample_id=sample_id, failed=False)
            if sample.rollout_id in keys
        }

    def _take_kept(self, units: Sequence[Unit]) -> int:
        """Fill in the rollouts that are only to be scored. Returns how many there are."""
        for unit in units:
            if unit.key in self.recording.kept:
                unit.kept = self.recording.run.kept(unit.key)
        return sum(unit.kept is not None for unit in units)

    def _watched(self, progress: Progress) -> None:
        if self.watch is not None and progress.total is not None:
            done = progress.already_done + progress.done + progress.failed
            self.watch(done, progress.total)


class _Engine(Engine):
    """Says of each rollout that it has ended, before it is scored. A group shares its task."""

    lockstep: Lockstep | None = None
    group_size = 1
    _probes = False
    """A wave starts whole: its batches must not depend on timing."""

    async def _rolled_out(self, unit: Unit, client: ModelClient) -> Trajectory:
        try:
            return await super()._rolled_out(unit, client)
        finally:
            if self.lockstep is not None:
                self.lockstep.leave()

    def _environment_seed(self, unit: Unit) -> int | None:
        # Advantages compare answers to one task: members differ in how they are sampled alone.
        return self._config.seed_of(unit.sample, unit.repeat // self.group_size)
