"""The rollouts of one step, made by the evaluation engine and recorded as they end."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from assay.errors import TrainingError
from assay.providers import ModelClient
from assay.runner import (
    EvalConfig,
    EvalEngine,
    Progress,
    RolloutJob,
    RunControl,
    Stop,
)
from assay.store import Run, Writer, sample_key
from assay.types import Boundary, Sample, Status, Trajectory

from .batches import RolloutGroup
from .deterministic_batches import Lockstep
from .grpo_config import GRPOConfig
from .grpo_plan import UNROLLED_FIELDS, PromptDraw, PromptOrder

if TYPE_CHECKING:
    from assay.runner import RayCluster, RayEngine

STEP_KEY = "training_step"
"""Key of `Sample.metadata`: the step that a rollout was made for."""

# The training stops after this many steps in a row in which every rollout failed: a short outage
# is survived, a permanent one is not waited for.
_MAX_FAILED_STEPS = 3

_ENDED_STATUSES = (Status.COMPLETED, Status.TRUNCATED, Status.FAILED)


@dataclass(frozen=True)
class StepRollouts:
    """All rollouts of a step, including groups without different rewards."""

    groups: list[RolloutGroup]
    position: int
    """The position of the next step in the order of prompts."""

    seconds: float
    found: int
    """Rollouts that were recorded before, and were not made again."""

    resampled: int
    """Groups that replaced others without different rewards."""

    stale: int = 0
    """Rollouts that were too old, and are in none of the groups."""

    staleness: tuple[int, ...] = ()
    """Steps between sampling and learning of each rollout that a server sampled."""

    weight_versions: Mapping[str, int] | None = None
    """Rollouts by the oldest weights that sampled them; None without a server."""


class StepInterrupted(Exception):
    """The step was stopped before its end. Recorded rollouts are kept."""


class EveryRolloutFailed(TrainingError):
    """Every rollout of a step failed, and the next step is expected to fail as well."""

    def __init__(self, message: str, *, rollouts: int = 0, **details: Any) -> None:
        super().__init__(message, **details)
        self.rollouts = rollouts


@dataclass(frozen=True)
class RolloutRecording:
    """Where rollouts are recorded."""

    run: Run
    writer: Writer
    fingerprint: str
    done: Container[str]
    """Keys of rollouts that an earlier process recorded."""

    kept: Container[str] = frozenset[str]()
    """Keys of rollouts that an earlier process could not score."""

    engine: "RayEngine | None" = None
    """What makes the rollouts on the workers of a cluster. None: this process makes them."""


@dataclass
class RolloutCollector:
    """Makes the rollouts of a policy."""

    config: GRPOConfig
    evaluation: EvalConfig
    order: PromptOrder
    client: ModelClient
    stop: Stop
    cluster: "RayCluster | None" = None
    """The workers that make rollouts. None: this process makes them."""

    lockstep: Lockstep | None = None
    """Batches the calls of all rollouts. None: the client batches calls as they arrive."""

    watch: Callable[[int, int, int], None] | None = None
    """Called with the step, the number of its rollouts that are done, and their total."""

    recording: RolloutRecording = field(init=False)
    """Set while a run is open."""

    _step: int = field(default=0, init=False)
    _reused: int = field(default=0, init=False)
    _succeeded: bool = field(default=False, init=False)
    _failed_steps: int = field(default=0, init=False)
    """Steps in a row of which no rollout succeeded."""

    @asynccontextmanager
    async def record_in(self, run: Run, *, resumed: bool) -> AsyncIterator[None]:
        """Record rollouts in this run while the block lasts."""
        done = run.read_done_keys() if resumed else frozenset[str]()
        kept = run.read_kept_keys() if resumed else frozenset[str]()
        async with AsyncExitStack() as stack:
            writer, engine = await stack.enter_async_context(run.writer()), None
            if self.cluster is not None:
                # No probing with a few samples first: a step starts as a whole.
                control = RunControl(
                    Progress(), self._report_progress, self.stop, stops_early=False
                )
                built = self.cluster.build_engine(run)(self.evaluation, None, writer, control)
                engine = await stack.enter_async_context(built)
            self.recording = RolloutRecording(run, writer, run.key_fingerprint, done, kept, engine)
            yield

    async def collect(self, step: int, position: int) -> StepRollouts:
        """Return all rollouts of a step. Raises `StepInterrupted` if it was stopped before its end.

        Raises `TrainingError` when every rollout of the first step failed, or of several in a row.
        """
        started, self._step, self._reused = time.perf_counter(), step, 0
        wanted = self.config.prompts_per_step
        groups = await self._roll_out_groups(self.order.take(position, wanted), step)
        position += wanted
        rounds = self.config.resample_rounds if self.config.zero_variance == "resample" else 0
        for _ in range(rounds):
            missing = wanted - sum(group.has_signal for group in groups)
            if not missing:
                break
            groups += await self._roll_out_groups(self.order.take(position, missing), step)
            position += missing
        self._stop_if_all_failed(step, groups)
        return StepRollouts(
            groups=groups,
            position=position,
            seconds=time.perf_counter() - started,
            found=self._reused,
            resampled=len(groups) - wanted,
        )

    def _stop_if_all_failed(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        failures = [sample.failure for group in groups for sample in group.samples]
        known = [failure for failure in failures if failure is not None]
        if len(known) < len(failures):
            self._succeeded, self._failed_steps = True, 0
            return
        self._failed_steps += 1
        if self._succeeded and self._failed_steps < _MAX_FAILED_STEPS:
            return
        reasons = Counter((str(each.boundary), each.kind, each.message) for each in known)
        (boundary, kind, message), count = reasons.most_common(1)[0]
        kept = boundary == Boundary.SCORER
        raise EveryRolloutFailed(
            f"nothing was learned: all {len(known)} rollouts of step {step} failed, {count} of "
            f"them at the {boundary}: {kind}: {message}",
            rollouts=len(known),
            hint="fix the scorer and resume: the rollouts are kept"
            if kept
            else "fix the cause and resume: failed rollouts are repeated",
        )

    async def _roll_out_groups(self, drawn: Sequence[PromptDraw], step: int) -> list[RolloutGroup]:
        size = self.config.group_size
        units = [self._build_job(each, member, step) for each in drawn for member in range(size)]
        recorded = await asyncio.to_thread(self._load_recorded, units)
        todo = [unit for unit in units if unit.key not in recorded]
        self._reused += len(recorded) + sum(unit.kept is not None for unit in todo)
        progress = Progress(total=len(units), already_done=len(recorded))
        if self.recording.engine is not None:
            await self.recording.engine.execute(iter(todo), progress)
            recorded |= await asyncio.to_thread(self._load_collected, todo)
        else:
            await self._roll_out_here(todo, progress)
        samples = [recorded.get(unit.key, unit.sample) for unit in units]
        if any(sample.status not in _ENDED_STATUSES for sample in samples):
            raise StepInterrupted
        starts = range(0, len(samples), size)
        return [RolloutGroup(tuple(samples[start : start + size])) for start in starts]

    async def _roll_out_here(self, todo: Sequence[RolloutJob], progress: Progress) -> None:
        # In waves: a rollout that starts when another ends would make batches depend on timing.
        for start in range(0, len(todo), self.config.concurrency):
            wave = todo[start : start + self.config.concurrency]
            evaluation = replace(self.evaluation, concurrency=len(wave))
            control = RunControl(progress, self._report_progress, self.stop)
            engine = _TrainingEngine(evaluation, self.client, self.recording.writer, control)
            if self.lockstep is not None:
                engine.lockstep = self.lockstep
                self.lockstep.expect(sum(unit.kept is None for unit in wave))
            await engine.run(iter(wave))

    def _load_collected(self, units: Sequence[RolloutJob]) -> dict[str, Sample]:
        """Return the rollouts that workers recorded: samples never pass through Ray."""
        found = dict(self.recording.run.samples_by_key(unit.key for unit in units))
        if not self.stop.requested:
            return found
        # A failure may be that of an earlier attempt, if the stop came before this one.
        return {key: each for key, each in found.items() if each.failure is None}

    def _build_job(self, drawn: PromptDraw, member: int, step: int) -> RolloutJob:
        sample, recording = drawn.sample, self.recording
        # Repeats are numbered across epochs, so that each has its own key and seed.
        repeat = drawn.epoch * self.config.group_size + member
        own = sample.model_copy(
            update={
                **UNROLLED_FIELDS,
                "group_index": drawn.position,
                "rollout_id": f"{sample.id}#{repeat}",
                # Copied: a scorer may change its row, which the group shares.
                "input": deepcopy(sample.input),
                "ground_truth": deepcopy(sample.ground_truth),
                "metadata": {**sample.metadata, STEP_KEY: step},
            }
        )
        key = sample_key(recording.run.id, sample.id, repeat, recording.fingerprint)
        # Advantages compare answers to one task: members of a group must have the same one.
        return RolloutJob(own, repeat, key, sample.id, group=repeat // self.config.group_size)

    def _load_recorded(self, units: Sequence[RolloutJob]) -> dict[str, Sample]:
        """Return the rollouts among these that are in the store, by key.

        Rollouts that were recorded without a score are filled in, and are only to be scored.
        """
        wanted: dict[str, dict[str | None, str]] = {}
        for unit in units:
            if unit.key in self.recording.done:
                wanted.setdefault(unit.sample.id, {})[unit.sample.rollout_id] = unit.key
        recorded = {
            keys[sample.rollout_id]: sample
            for sample_id, keys in wanted.items()
            for sample in self.recording.run.samples(sample_id=sample_id, failed=False)
            if sample.rollout_id in keys
        }
        for unit in units:
            if unit.key in self.recording.kept and unit.key not in recorded:
                unit.kept = self.recording.run.find_kept_rollout(unit.key)
        return recorded

    def _report_progress(self, progress: Progress) -> None:
        if self.watch is not None and progress.total is not None:
            done = progress.already_done + progress.done + progress.failed
            self.watch(self._step, done, progress.total)


class _TrainingEngine(EvalEngine):
    """Reports the end of each rollout before it is scored."""

    lockstep: Lockstep | None = None
    # No probing with a few samples first: a wave starts as a whole.
    _probes = False

    def _start_rollout(self, job: RolloutJob) -> Coroutine[Any, Any, Trajectory]:
        return self._roll_out_and_leave(job)

    async def _roll_out_and_leave(self, job: RolloutJob) -> Trajectory:
        try:
            rollout = super()._start_rollout(job)
            assert rollout is not None  # a policy is always called
            return await rollout
        finally:
            if self.lockstep is not None:
                self.lockstep.leave()
