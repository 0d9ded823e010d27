"""Evaluation during a training: a held-out dataset, rolled out and scored as its prompts are.

Each evaluation is a run of its own. Its id is made of the training and the step, so that a resumed
training finds the rollouts that were recorded before.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from assay.errors import ConfigError, StoreError
from assay.runner import build_evaluation_id
from assay.stats import summarise_recorded
from assay.store import Run, RunSpec, RunStatus, Store
from assay.types import stable_id

from .grpo_plan import GRPOPlan, HeldOutSet, PromptDraw, PromptOrder
from .output_folder import TrainingStep
from .rollout_collector import RolloutCollector, StepInterrupted


class EvalStep(TrainingStep):
    """The evaluation of the weights after a step; step 0 is before the training."""

    run_id: str
    """The recorded run of the evaluation."""

    score: float | None
    """Mean over the judged samples, as `assay show` prints it; None if none was judged."""

    score_low: float | None
    score_high: float | None
    """The 95 % interval of that mean, over samples; None where it cannot be given."""

    samples: int
    judged: int
    """Samples with at least one judged rollout."""

    failed: dict[str, int]
    """Rollouts by the boundary that failed."""

    invalid: int
    """Rollouts that are unscored without a failure."""

    seconds: float


def find_best(evaluations: Sequence[EvalStep]) -> EvalStep | None:
    """Return the first evaluation with the highest score; None if none was judged."""
    judged = [each for each in evaluations if each.score is not None]
    return max(judged, key=lambda each: each.score or 0.0, default=None)


def is_exhausted(evaluations: Sequence[EvalStep], patience: int | None) -> bool:
    """Whether `patience` evaluations with a score came after the best one."""
    best = find_best(evaluations)
    if patience is None or best is None:
        return False
    return sum(each.step > best.step and each.score is not None for each in evaluations) >= patience


class _HeldOutOrder(PromptOrder):
    """Every sample as often as it is repeated, at any position."""

    def __init__(self, held_out: HeldOutSet, repeats: int) -> None:
        super().__init__(held_out.samples, seed=0)
        self._repeats = repeats

    def take(self, position: int, count: int) -> list[PromptDraw]:
        return [
            PromptDraw(sample, number, repeat)
            for number, sample in enumerate(self._prompts)
            for repeat in range(self._repeats)
        ]


@dataclass(frozen=True)
class HeldOutEvaluation:
    """Evaluates the present weights, each time in a run of its own."""

    plan: GRPOPlan
    held_out: HeldOutSet
    training_run: str
    store: Store
    collector: RolloutCollector
    """A copy of the training's own, for these samples and without its recording."""

    @classmethod
    def build(
        cls,
        plan: GRPOPlan,
        training_run: str,
        *,
        store: Store,
        collector: RolloutCollector,
        watch: Callable[[int, int, int], None],
    ) -> "HeldOutEvaluation | None":
        """Evaluate with the model and the agent of a training; None without a held-out dataset."""
        held_out, repeats = plan.held_out, plan.config.eval_repeats
        if held_out is None:
            return None
        # Groups of one: as in any evaluation, each repeat has a task of its own.
        settings = {
            "group_size": 1,
            "prompts_per_step": len(held_out.samples) * repeats,
            "zero_variance": "keep",
        }
        own = replace(
            collector,
            config=plan.config.model_copy(update=settings),
            order=_HeldOutOrder(held_out, repeats),
            watch=watch,
        )
        return cls(plan, held_out, training_run, store, own)

    async def evaluate(self, step: int) -> EvalStep:
        """Evaluate the weights, which are those after `step`.

        Rollouts that an earlier process recorded are not made again. Raises `StepInterrupted` if
        it was stopped, and `EveryRolloutFailed`.
        """
        started, run = time.perf_counter(), self._open_run(step)
        status: RunStatus = "failed"
        try:
            async with self.collector.record_in(run, resumed=True):
                await self.collector.collect(step, 0)
            status = "completed"
        except (StepInterrupted, asyncio.CancelledError):
            status = "interrupted"
            raise
        finally:
            # A broken store cannot record the status; its own error is already being raised.
            with suppress(StoreError):
                run.finish(status)
        return _measure_run(run, step, time.perf_counter() - started)

    def _open_run(self, step: int) -> Run:
        description = {
            **self.plan.evaluation.describe(),
            "training_run": self.training_run,
            "training_step": step,
        }
        spec = RunSpec(
            id=build_evaluation_id(self.training_run, step),
            name=f"{self.plan.config.name} step {step}",
            config=description,
            config_fingerprint=stable_id(description),
            dataset=self.held_out.dataset,
            dataset_fingerprint=self.held_out.file_digest,
            total=len(self.held_out.samples),
            repeats=self.plan.config.eval_repeats,
        )
        try:
            self.store.run(spec.id)
        except ConfigError:
            return self.store.start_run(spec)
        # The training is claimed by this process: no other one evaluates for it. Its scorer may
        # have been fixed, as long as it has scored nothing.
        return self.store.resume_run(spec.id, spec, allow_changed_scorer=True, take_over=True)


def _measure_run(run: Run, step: int, seconds: float) -> EvalStep:
    summary = summarise_recorded(run.results(), run.spec.config)
    interval = summary.score.interval
    return EvalStep(
        step=step,
        run_id=run.id,
        score=interval.mean,
        score_low=interval.low,
        score_high=interval.high,
        samples=summary.samples,
        judged=summary.judged_samples,
        failed=summary.failed,
        invalid=summary.invalid,
        seconds=seconds,
    )
