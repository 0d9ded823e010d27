"""The steps of a training as TRL's `GRPOTrainer` takes them, with rollouts and records from here.

TRL is not asynchronous and runs in a thread. Whatever it asks for, rollouts above all, is done in
the event loop that the training was called in.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from assay.errors import TrainingError
from assay.evaluation import Stop

from .checkpoints import Checkpoints, Progressed
from .collecting import Collected, Collector, Interrupted
from .grpo_config import GRPOConfig
from .metrics import StepMetrics, Update, step_metrics
from .policy import Policy
from .trained_weights import without_bars
from .trl_rows import TrlRows, trl_rows
from .trl_trainer import make_trainer, quiet_trl
from .trl_vllm import sampled_by_vllm

T = TypeVar("T")


@dataclass(frozen=True)
class TrlListener:
    """Who is told what happens. Called in the event loop."""

    stepped: Callable[[StepMetrics, int], Coroutine[Any, Any, None]]
    """Also given where the next step goes on in the order of prompts."""

    saved: Callable[[int, Path], Coroutine[Any, Any, None]]


@dataclass
class _Step:
    """The step in progress."""

    number: int
    collected: Collected
    rows: TrlRows
    rolled_out: float = field(default_factory=time.perf_counter)
    logs: list[dict[str, Any]] = field(default_factory=list)
    """What TRL measured, one for each update."""

    weights: Mapping[str, float] = field(default_factory=dict)
    """The metrics of the importance weights, where there are any."""


class TrlSteps:
    """All steps of one training from where it begins."""

    def __init__(
        self, config: GRPOConfig, policy: Policy, checkpoints: Checkpoints, *, stop: Stop
    ) -> None:
        self._config = config
        self._policy = policy
        self._checkpoints = checkpoints
        self._stop = stop
        self._step: _Step | None = None
        self._asked: Future[Any] | None = None
        self._abandoned = False

    async def run(self, collector: Collector, listener: TrlListener, *, after: int) -> bool:
        """Take the steps after `after`, which there is a checkpoint of unless it is 0.

        Whether all are done; not when the training was stopped.
        """
        self._collector, self._listener = collector, listener
        self._loop = asyncio.get_running_loop()
        work = asyncio.ensure_future(asyncio.to_thread(self._train, after))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: it ends at its next question.
            self._abandoned = True
            if self._asked is not None:
                self._asked.cancel()
            await asyncio.wait([work])
            raise

    def _train(self, after: int) -> bool:
        """In the thread of TRL."""
        config, local = self._config, self._policy.local
        if after >= config.num_steps:
            return True
        with ExitStack() as stack:
            stack.enter_context(local.limited_threads())
            stack.enter_context(_as_it_was(local.model))
            stack.enter_context(quiet_trl())
            trainer = make_trainer(
                config, self._policy, self._rollouts, folder=self._checkpoints.folder
            )
            stack.enter_context(sampled_by_vllm(trainer, local))
            trainer.add_callback(_callback(self, trainer))
            found = self._checkpoints.path(after) / f"checkpoint-{after * config.updates_per_step}"
            try:
                trainer.train(resume_from_checkpoint=str(found) if after else None)
            except Interrupted:
                self._save(trainer)
                return False
            self._save(trainer)
            return self._done(trainer.state) >= config.num_steps

    def _rollouts(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """TRL's `rollout_func`: the rollouts of its next step."""
        config = self._config
        step = self._done(trainer.state) + 1
        position = (step - 1) * config.prompts_per_step
        expected = [str(position + n // config.group_size) for n in range(config.rollouts_per_step)]
        if prompts != expected:
            raise TrainingError(
                f"TRL asks for the prompts {prompts[:4]!r} … at step {step}, where "
                f"{expected[:4]!r} … come: it does not repeat them as it did",
                hint="install a version of trl that this was tested with: trl>=1.16,<2",
            )
        collected = self._in_loop(self._collector.collect(step, position))
        rows = trl_rows(
            collected.groups,
            config,
            passes=trainer.args.steps_per_generation,
            filler=trainer.processing_class.pad_token_id,
        )
        trainer.assay_rows = rows
        self._step = _Step(step, collected, rows)
        return rows.plain()

    def before_update(self, model: Any) -> None:
        """Without differences nothing is learned: weights and momentum stay as they are."""
        if self._step and not self._step.rows.teaches and self._config.beta == 0:
            model.zero_grad(set_to_none=True)
            return
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        if not all(bool(gradient.isfinite().all()) for gradient in gradients):
            raise TrainingError(
                "the gradient is not finite: the weights were left as they are",
                hint="lower learning_rate; checkpoints of earlier steps are kept",
            )

    def after_update(self, trainer: Any, logs: dict[str, Any]) -> None:
        """Note what TRL measured; after the last update of a step, tell of it and save."""
        step = self._step
        if step is None or "grad_norm" not in logs:
            return  # the summary at the end
        step.logs.append(dict(logs))
        step.weights = trainer.assay_weights
        if len(step.logs) < self._config.updates_per_step:
            return
        self._step = None
        self._in_loop(
            self._listener.stepped(trl_metrics(step, self._config), step.collected.position)
        )
        if self._stop.requested:
            trainer.control.should_training_stop = True
        if step.number % self._config.checkpoint_every == 0:
            self._save(trainer)

    def _save(self, trainer: Any) -> None:
        """Write a checkpoint of the last whole step, unless there is one."""
        step = self._done(trainer.state)
        if not step or step in self._checkpoints.steps():
            return
        progressed = Progressed(step=step, position=step * self._config.prompts_per_step)

        def fill(folder: Path) -> None:
            trainer.args.output_dir = str(folder)
            with without_bars():
                trainer._save_checkpoint(trainer.model, trial=None)

        path = self._checkpoints.write(progressed, fill)
        self._in_loop(self._listener.saved(step, path))

    def _done(self, state: Any) -> int:
        return int(state.global_step) // self._config.updates_per_step

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        if self._abandoned:
            work.close()
            raise Interrupted
        asked: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._asked = asked
        return asked.result()


def trl_metrics(step: _Step, config: GRPOConfig) -> StepMetrics:
    """The numbers of one step: those of its rollouts as ever, those of its updates from TRL.

    What TRL does not measure is None. Its means are over passes, then over updates.
    """
    rate, seconds = config.learning_rate_at(step.number), time.perf_counter() - step.rolled_out
    known = step_metrics(
        step.number, step.collected, Update(step.rows.rollouts, None, rate, seconds)
    )
    if not step.rows.rollouts or not (step.rows.teaches or config.beta > 0):
        return known
    measured = {
        "updated": True,
        "loss": step.logs[0]["loss"],
        "grad_norm": max(logs["grad_norm"] for logs in step.logs),
        "entropy": step.logs[0]["entropy"],
        "kl": _mean(step.logs, "kl"),
        "clip_fraction": _mean(step.logs, "clip_ratio/region_mean"),
        **step.weights,
    }
    return known.model_copy(update=measured)


def _mean(logs: list[dict[str, Any]], name: str) -> float | None:
    values = [each[name] for each in logs if each.get(name) is not None]
    return fmean(values) if values else None


def _callback(steps: TrlSteps, trainer: Any) -> Any:
    from transformers import TrainerCallback

    class Callback(TrainerCallback):  # type: ignore[misc]  # transformers has no types
        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            steps.before_update(trainer.model)

        def on_log(self, *_: Any, logs: dict[str, Any], **__: Any) -> None:
            steps.after_update(trainer, logs)

    return Callback()


@contextmanager
def _as_it_was(model: Any) -> Iterator[None]:
    """What TRL changes in a model that is not its weights, and in the process, is put back.

    Inside of it the model has no dropout: no logprob could be compared with the recorded one.
    """
    import numpy

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    forward, training = base.__dict__.get("forward"), model.training
    states = random.getstate(), numpy.random.get_state()
    rates = list(_dropout_rates(model))
    for module, name, _ in rates:
        setattr(module, name, 0.0)
    try:
        yield
    finally:
        for module, name, rate in rates:
            setattr(module, name, rate)
        random.setstate(states[0])
        numpy.random.set_state(states[1])
        model.train(training)
        base.__dict__.pop("forward", None)
        if forward is not None:
            base.forward = forward


def _dropout_rates(model: Any) -> Iterator[tuple[Any, str, float]]:
    """Every number by which a module drops out: of its own, or handed to a function."""
    import torch

    for module in model.modules():
        names = [name for name in vars(module) if "dropout" in name]
        if isinstance(module, torch.nn.Dropout):
            names.append("p")
        for name in names:
            rate = getattr(module, name)
            if isinstance(rate, float) and rate > 0:
                yield module, name, rate
