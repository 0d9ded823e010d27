"""A training with TRL's `GRPOTrainer`, on assay's rollouts and with assay's recording.

TRL is synchronous and runs in a thread. Its requests, rollouts above all, are executed in the event
loop of the training. Of several processes the first does that; the others follow it.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from assay.runner import Stop

from .batches import TrainedRollout, select_trained_rollouts
from .checkpoints import Checkpoints, TrainingProgress
from .grpo_config import GRPOConfig
from .policy import Policy
from .rollout_collector import RolloutCollector, StepInterrupted, StepRollouts
from .step_statistics import StepMetrics, Update, compute_step_metrics
from .trl_learner import TrlLearner, TrlStart, write_checkpoint
from .trl_processes import ProcessRank, broadcast_from_first
from .trl_rows import TrlRows, build_trl_rows

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class TrlListener:
    """Callbacks of a training, called in the event loop."""

    on_step: Callable[[StepMetrics, int], Coroutine[Any, Any, None]]
    """The second argument is the position of the next step in the order of prompts."""

    on_checkpoint: Callable[[int, Path], Coroutine[Any, Any, None]]


@dataclass
class _StepInProgress:
    number: int
    collected: StepRollouts
    rollouts: Sequence[TrainedRollout]
    teaches: bool
    rolled_out: float = field(default_factory=time.perf_counter)
    logs: list[dict[str, Any]] = field(default_factory=list)
    """The metrics of TRL, one entry for each update."""

    weights: Mapping[str, float] = field(default_factory=dict)
    """The metrics of the importance weights, where there are any."""

    changed: float | None = None
    """The share of the weights that the last update changed."""


class TrlLeader(TrlLearner):
    """The process that rolls out and records: the only one, or the first."""

    def __init__(
        self, config: GRPOConfig, policy: Policy, checkpoints: Checkpoints, *, stop: Stop
    ) -> None:
        super().__init__(config, policy, checkpoints)
        self._stop = stop
        self._step: _StepInProgress | None = None
        self._asked: Future[Any] | None = None
        self._abandoned = False

    async def run(
        self, start: TrlStart, collector: RolloutCollector, listener: TrlListener
    ) -> bool:
        """Train, and return whether all steps are done; False after a stop."""
        self._collector, self._listener = collector, listener
        self._loop = asyncio.get_running_loop()
        work = asyncio.ensure_future(
            asyncio.to_thread(lambda: self.train(broadcast_from_first(start)))
        )
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: it ends at its next request.
            self._abandoned = True
            if self._asked is not None:
                self._asked.cancel()
            await asyncio.wait([work])
            raise

    def rows(self, step: int, trainer: Any, rank: ProcessRank) -> TrlRows | None:
        rows = None
        # Broadcast in any case: the other processes wait for it, and None ends them too.
        with suppress(StepInterrupted):
            if not self._stop.requested:
                rows = self._collect_rows(step, trainer, rank)
        broadcast_from_first(rows)
        return rows

    def _collect_rows(self, step: int, trainer: Any, rank: ProcessRank) -> TrlRows:
        config = self._config
        position = (step - 1) * config.prompts_per_step
        collected = self._run_in_loop(self._collector.collect(step, position))
        rollouts = select_trained_rollouts(collected.groups, config)
        rows = build_trl_rows(
            collected.groups,
            rollouts,
            config,
            passes=trainer.args.steps_per_generation * rank.count,
            filler=trainer.processing_class.pad_token_id,
        )
        self._step = _StepInProgress(step, collected, rollouts, rows.teaches)
        return rows

    def updated(self, step: int, trainer: Any, logs: dict[str, Any]) -> None:
        now = self._step
        assert now is not None  # TRL requests rollouts before it updates
        now.logs.append(dict(logs))
        now.weights = trainer.assay_weights
        now.changed = self.changed
        if len(now.logs) == self._config.updates_per_step:
            self._step = None
            metrics = compute_trl_metrics(now, self._config)
            self._run_in_loop(self._listener.on_step(metrics, now.collected.position))

    def save(self, step: int, trainer: Any) -> None:
        """Write a checkpoint of the last complete step, unless it exists."""
        if not broadcast_from_first(step not in self._checkpoints.steps()):
            return
        progressed = TrainingProgress(step=step, position=step * self._config.prompts_per_step)
        path = self._checkpoints.write(progressed, lambda folder: write_checkpoint(trainer, folder))
        self._run_in_loop(self._listener.on_checkpoint(step, path))

    async def release_followers(self) -> None:
        """Signal the other processes that everything is written."""
        await asyncio.to_thread(broadcast_from_first)

    def _run_in_loop(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        if self._abandoned:
            work.close()
            raise StepInterrupted
        asked: Future[ResultT] = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._asked = asked
        return asked.result()


class TrlFollower(TrlLearner):
    """Every process but the first. It records nothing and prints nothing.

    It reads checkpoints from the output folder, which must be on a shared disk.
    """

    async def run(self) -> tuple[TrlStart, bool]:
        """Train, and return the start from the first process and whether all steps are done."""
        return await asyncio.to_thread(self._follow)

    def _follow(self) -> tuple[TrlStart, bool]:
        start: TrlStart = broadcast_from_first()
        whole = self.train(start)
        # Wait: the first process still writes the model and the curve.
        broadcast_from_first()
        return start, whole

    def rows(self, step: int, trainer: Any, rank: ProcessRank) -> TrlRows | None:
        rows: TrlRows | None = broadcast_from_first()
        return rows

    def updated(self, step: int, trainer: Any, logs: dict[str, Any]) -> None:
        return None

    def save(self, step: int, trainer: Any) -> None:
        """Take part in the checkpoint of the first process, which TRL gathers from all."""
        due: bool = broadcast_from_first()
        if due:
            with tempfile.TemporaryDirectory() as folder:
                write_checkpoint(trainer, Path(folder))


def compute_trl_metrics(step: _StepInProgress, config: GRPOConfig) -> StepMetrics:
    """Compute the metrics of one step: of its rollouts as usual, of its updates from TRL.

    Values that TRL does not measure are None. Its means are over passes, then over updates.
    """
    rate, seconds = config.learning_rate_at(step.number), time.perf_counter() - step.rolled_out
    known = compute_step_metrics(
        step.number, step.collected, Update(step.rollouts, None, rate, seconds)
    )
    if not step.rollouts or not (step.teaches or config.beta > 0):
        return known
    measured = {
        "updated": True,
        "loss": step.logs[0]["loss"],
        "grad_norm": max(logs["grad_norm"] for logs in step.logs),
        "entropy": step.logs[0]["entropy"],
        "kl": _average_logs(step.logs, "kl"),
        "clip_fraction": _average_logs(step.logs, "clip_ratio/region_mean"),
        "weights_changed": step.changed,
        **step.weights,
    }
    return known.model_copy(update=measured)


def _average_logs(logs: list[dict[str, Any]], name: str) -> float | None:
    values = [each[name] for each in logs if each.get(name) is not None]
    return fmean(values) if values else None
