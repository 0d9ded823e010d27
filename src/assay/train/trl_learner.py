"""The loop of TRL's trainer in one process, whichever of them it is."""

from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import TrainingError

from .checkpoints import Checkpoints, make_checkpoint_error
from .grpo_config import GRPOConfig
from .policy import Policy
from .preserve_state import preserve_model_state
from .rollout_collector import StepInterrupted
from .trained_weights import hide_progress_bars
from .trl_processes import ProcessRank, find_process_rank
from .trl_rows import TrlRows
from .trl_trainer import make_trainer, quiet_trl
from .trl_vllm import sample_with_vllm


@dataclass(frozen=True)
class TrlStart:
    """Where a training begins; the first process tells the others."""

    run_id: str
    store: str
    after: int
    """Steps that are done. There is a checkpoint of the last one, unless it is 0."""


class TrlLearner(ABC):
    """Learns from rows, step by step, in the thread that `train` is called in."""

    def __init__(self, config: GRPOConfig, policy: Policy, checkpoints: Checkpoints) -> None:
        self._config = config
        self._policy = policy
        self._checkpoints = checkpoints
        self._rows: TrlRows | None = None
        """Of the step in progress; None before the first one."""

        self._updates = 0
        self.changed: float | None = None
        """The share of the weights that the last update changed."""

    @abstractmethod
    def rows(self, step: int, trainer: Any, rank: ProcessRank) -> TrlRows | None:
        """The rows of a step, those of all processes; None ends the training."""

    @abstractmethod
    def updated(self, step: int, trainer: Any, logs: dict[str, Any]) -> None:
        """Called after each update with what TRL measured."""

    @abstractmethod
    def save(self, step: int, trainer: Any) -> None:
        """Called in all processes together when a checkpoint is due."""

    def train(self, start: TrlStart) -> bool:
        """Whether all steps are done; not when the training was stopped."""
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
        """All that are left, or until the training is stopped. Has the weights of `after` first."""
        checkpoint = self._find_checkpoint(after)
        try:
            if checkpoint is not None and after >= self._config.num_steps:
                trainer._load_from_checkpoint(checkpoint)
            else:
                trainer.train(resume_from_checkpoint=checkpoint)
        except StepInterrupted:
            return
        except Exception as error:
            # Which of many kinds a damaged file raises depends on the file.
            if checkpoint is None or self._rows is not None:
                raise
            raise make_checkpoint_error(self._checkpoints.path(after), error) from error

    def done(self, trainer: Any) -> int:
        """How many steps are in the weights."""
        return int(trainer.state.global_step) // self._config.updates_per_step

    def _find_checkpoint(self, step: int) -> str | None:
        name = f"checkpoint-{step * self._config.updates_per_step}"
        return str(self._checkpoints.path(step) / name) if step else None

    def _provide_rollouts(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """TRL's `rollout_func`: this process's part of the next step."""
        step = self.done(trainer) + 1
        check_prompts(prompts, step, self._config, self._rank)
        rows = self.rows(step, trainer, self._rank)
        if rows is None:
            raise StepInterrupted
        self._rows, self._updates = rows, 0
        trainer.assay_rows = rows.part(self._rank.number, self._rank.count)
        return trainer.assay_rows.plain()  # type: ignore[no-any-return]  # a trainer has no types

    def before_update(self, model: Any) -> None:
        """Without differences nothing is learned: weights and momentum stay as they are."""
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
        """Called while the gradients of an update are still there."""
        teaches = self._rows is not None and (self._rows.teaches or self._config.beta > 0)
        self.changed = self._policy.weights.probe.share() if teaches else None

    def after_update(self, trainer: Any, logs: dict[str, Any]) -> None:
        """Tell of the update, and save where a checkpoint is due."""
        if "grad_norm" not in logs:
            return  # the summary at the end
        self._updates += 1
        step, whole = self.done(trainer), self._updates == self._config.updates_per_step
        self.updated(step if whole else step + 1, trainer, logs)
        if whole and step % self._config.checkpoint_every == 0:
            self.save(step, trainer)


def check_prompts(prompts: list[str], step: int, config: GRPOConfig, rank: ProcessRank) -> None:
    """Raise `TrainingError` unless TRL asks for this step's prompts, each a group in a row."""
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
    """As TRL does it, in a folder inside this one."""
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
