"""The loop of TRL's trainer in one process."""

from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import TrainingError
from assay.providers import hide_progress_bars

from .checkpoints import Checkpoints, make_checkpoint_error
from .grpo_config import GRPOConfig
from .policy import Policy
from .preserve_state import preserve_model_state
from .rollout_collector import StepInterrupted
from .trl_processes import ProcessRank, find_process_rank
from .trl_rows import TrlRows
from .trl_trainer import make_trainer, quiet_trl
from .trl_vllm import sample_with_vllm


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
    def updated(self, step: int, trainer: Any, logs: dict[str, Any]) -> None:
        """Handle an update, with the metrics of TRL."""

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
            trainer.add_callback(_build_callback(self, trainer))
            self._take_steps(trainer, start.after)
            done = max(start.after, self.done(trainer))
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

    def done(self, trainer: Any) -> int:
        """Return how many steps the weights include."""
        return int(trainer.state.global_step) // self._config.updates_per_step

    def _provide_rollouts(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        # The `rollout_func` of TRL: returns this process's part of the next step.
        step = self.done(trainer) + 1
        check_prompts(prompts, step, self._config, self._rank)
        rows = self.rows(step, trainer, self._rank)
        if rows is None:
            raise StepInterrupted
        self._rows, self._updates = rows, 0
        trainer.assay_rows = rows.part(self._rank.number, self._rank.count)
        return trainer.assay_rows.plain()  # type: ignore[no-any-return]  # a trainer has no types

    def before_update(self, model: Any) -> None:
        """Check the gradient; without advantages, drop it, or momentum would move the weights."""
        if self._rows and not self._rows.teaches and self._config.beta == 0:
            model.zero_grad(set_to_none=True)
            return
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        if not all(bool(gradient.isfinite().all()) for gradient in gradients):
            raise TrainingError(
                "the gradient is not finite, so the weights were not updated",
                hint="lower learning_rate; checkpoints of earlier steps are kept",
            )
        self._policy.weights.probe.take()

    def measure_change(self) -> None:
        """Measure the changed weights, while the gradients of the update still exist."""
        teaches = self._rows is not None and (self._rows.teaches or self._config.beta > 0)
        self.changed = self._policy.weights.probe.share() if teaches else None

    def after_update(self, trainer: Any, logs: dict[str, Any]) -> None:
        """Report the update, and save a checkpoint when one is due."""
        if "grad_norm" not in logs:
            return  # the log entry at the end of the training
        self._updates += 1
        step, whole = self.done(trainer), self._updates == self._config.updates_per_step
        self.updated(step if whole else step + 1, trainer, logs)
        if whole and step % self._config.checkpoint_every == 0:
            self.save(step, trainer)


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


def _build_callback(learner: TrlLearner, trainer: Any) -> Any:
    from transformers import TrainerCallback

    class Callback(TrainerCallback):  # type: ignore[misc]  # transformers has no types
        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            learner.before_update(trainer.model)

        def on_optimizer_step(self, *_: Any, **__: Any) -> None:
            learner.measure_change()

        def on_log(self, *_: Any, logs: dict[str, Any], **__: Any) -> None:
            learner.after_update(trainer, logs)

    return Callback()
