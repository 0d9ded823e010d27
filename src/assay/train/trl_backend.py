"""A training with TRL's `GRPOTrainer`, on assay's rollouts and with assay's recording.

TRL is synchronous and runs in a thread. Its requests, rollouts above all, are executed in the event
loop of the training. Of several processes the first does that; the others follow it.
"""

import asyncio
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from assay.errors import TrainingError
from assay.providers import hide_progress_bars
from assay.runner import Stop

from .batches import TrainedRollout, select_trained_rollouts
from .checkpoints import Checkpoints, TrainingProgress, make_checkpoint_error
from .grpo_config import GRPOConfig
from .policy import Policy
from .preserve_state import preserve_model_state
from .rollout_collector import RolloutCollector, StepInterrupted, StepRollouts
from .step_statistics import StepMetrics, Update, compute_step_metrics
from .trl_processes import ProcessRank, broadcast_from_first, find_process_rank
from .trl_rows import TrlRows, build_trl_rows
from .trl_trainer import make_trainer, quiet_trl, sample_with_vllm

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class TrlStart:
    """The start of a training, which the first process sends to the others."""

    run_id: str
    store: str
    after: int
    """Steps that are done. The last one has a checkpoint, unless this is 0."""


class TrlLearner(ABC):
    """Trains step by step, in the thread that calls `train`."""

    def __init__(self, config: GRPOConfig, policy: Policy, checkpoints: Checkpoints) -> None:
        self._config = config
        self._policy = policy
        self._checkpoints = checkpoints
        # The rows of the current step; None before the first one.
        self._rows: TrlRows | None = None

        self._updates = 0
        self.changed: float | None = None
        """The share of the weights that the last update changed."""

    @abstractmethod
    def rows(self, step: int, trainer: Any, rank: ProcessRank) -> TrlRows | None:
        """Return the rows of a step for all processes; None ends the training."""

    @abstractmethod
    def record_update(self, step: int, trainer: Any, logs: dict[str, Any]) -> None:
        """Record an update, with the metrics of TRL."""

    @abstractmethod
    def save(self, step: int, trainer: Any) -> None:
        """Save a checkpoint. Called in all processes together."""

    def train(self, start: TrlStart) -> bool:
        """Train, and return whether all steps are done; False after a stop."""
        config, local = self._config, self._policy.local
        self._rank = find_process_rank(config)
        with ExitStack() as stack:
            stack.enter_context(local.limit_threads())
            stack.enter_context(preserve_model_state(local))
            stack.enter_context(quiet_trl())
            trainer = make_trainer(
                config, self._policy, self._provide_rollouts, folder=self._checkpoints.folder
            )
            stack.enter_context(sample_with_vllm(trainer, local))
            trainer.add_callback(self._build_callback(trainer))
            self._take_steps(trainer, start.after)
            done = max(start.after, self.count_steps(trainer))
            if done:
                self.save(done, trainer)
            return done >= config.num_steps

    def _take_steps(self, trainer: Any, after: int) -> None:
        # Takes the remaining steps, starting with the weights of step `after`.
        checkpoint = None
        if after:
            name = f"checkpoint-{after * self._config.updates_per_step}"
            checkpoint = str(self._checkpoints.path(after) / name)
        try:
            # With all steps done only the weights are needed, for the model that is saved.
            if checkpoint is not None and after >= self._config.num_steps:
                trainer._load_from_checkpoint(checkpoint)
            else:
                trainer.train(resume_from_checkpoint=checkpoint)
        except StepInterrupted:
            return
        except Exception as error:
            # A damaged file raises any of many exceptions. After the first rows it is not the file.
            if checkpoint is None or self._rows is not None:
                raise
            raise make_checkpoint_error(self._checkpoints.path(after), error) from error

    def count_steps(self, trainer: Any) -> int:
        """Return how many steps the weights include."""
        return int(trainer.state.global_step) // self._config.updates_per_step

    def _provide_rollouts(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        # The `rollout_func` of TRL: returns this process's part of the next step.
        step = self.count_steps(trainer) + 1
        check_prompts(prompts, step, self._config, self._rank)
        rows = self.rows(step, trainer, self._rank)
        if rows is None:
            raise StepInterrupted
        self._rows, self._updates = rows, 0
        trainer.assay_rows = rows.part(self._rank.number, self._rank.count)
        return trainer.assay_rows.plain()  # type: ignore[no-any-return]  # a trainer has no types

    def _build_callback(self, trainer: Any) -> Any:
        from transformers import TrainerCallback

        learner, config, probe = self, self._config, self._policy.weights.probe

        class Callback(TrainerCallback):  # type: ignore[misc]  # transformers has no types
            def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
                # Without advantages the gradient is dropped, or momentum would move the weights.
                if learner._rows and not learner._rows.teaches and config.beta == 0:
                    trainer.model.zero_grad(set_to_none=True)
                    return
                gradients = (each.grad for each in trainer.model.parameters())
                if not all(bool(each.isfinite().all()) for each in gradients if each is not None):
                    raise TrainingError(
                        "the gradient is not finite, so the weights were not updated",
                        hint="lower learning_rate; checkpoints of earlier steps are kept",
                    )
                probe.take()

            def on_optimizer_step(self, *_: Any, **__: Any) -> None:
                # Measured here, while the gradients of the update still exist.
                rows = learner._rows
                teaches = rows is not None and (rows.teaches or config.beta > 0)
                learner.changed = probe.share() if teaches else None

            def on_log(self, *_: Any, logs: dict[str, Any], **__: Any) -> None:
                if "grad_norm" not in logs:
                    return  # the log entry at the end of the training
                learner._updates += 1
                step, whole = (
                    learner.count_steps(trainer),
                    learner._updates == config.updates_per_step,
                )
                learner.record_update(step if whole else step + 1, trainer, logs)
                if whole and config.saves_after(step):
                    learner.save(step, trainer)

        return Callback()


def check_prompts(prompts: list[str], step: int, config: GRPOConfig, rank: ProcessRank) -> None:
    """Raise `TrainingError` unless TRL requests this step's prompts in the expected order."""
    count = config.rollouts_per_step // rank.count
    first = (step - 1) * config.rollouts_per_step + rank.number * count
    expected = [str(number // config.group_size) for number in range(first, first + count)]
    if prompts != expected:
        raise TrainingError(
            f"TRL requests the prompts {prompts[:4]!r} … at step {step} instead of "
            f"{expected[:4]!r} …: its order of prompts changed",
            hint="install a supported version of trl: trl>=1.16,<2",
        )


def write_checkpoint(trainer: Any, folder: Path) -> None:
    """Write TRL's checkpoint, in a folder inside this one."""
    trainer.args.output_dir = str(folder)
    with hide_progress_bars():
        trainer._save_checkpoint(trainer.model, trial=None)


@dataclass(frozen=True)
class TrlListener:
    """Callbacks of a training, called in the event loop."""

    before_step: Callable[[], Coroutine[Any, Any, None]]
    """Raises `StepInterrupted` if the training is to end."""

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
            # A thread cannot be cancelled: it ends at its next request, by an exception that nobody
            # awaits, which asyncio would log.
            self._abandoned = True
            work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
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
        self._run_in_loop(self._listener.before_step())
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

    def record_update(self, step: int, trainer: Any, logs: dict[str, Any]) -> None:
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

    async def release_followers(self, whole: bool) -> None:
        """Signal the other processes that everything is written, and whether all steps are done."""
        await asyncio.to_thread(broadcast_from_first, whole)

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
        self.train(start)
        # Wait: the first process still writes the model and the curve.
        whole: bool = broadcast_from_first()
        return start, whole

    def rows(self, step: int, trainer: Any, rank: ProcessRank) -> TrlRows | None:
        rows: TrlRows | None = broadcast_from_first()
        return rows

    def record_update(self, step: int, trainer: Any, logs: dict[str, Any]) -> None:
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
