"""The steps of a recorded training: their rollouts, rewards and metrics."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.stats import Interval, mean_interval, summarise_recorded
from assay.store import ResultRow, Run, RunStatus
from assay.types import Sample

_STEP_METADATA_KEY = "training_step"


@dataclass(frozen=True)
class RecordedTraining:
    """The settings of a recorded training that its steps are found with."""

    prompts_per_step: int
    group_size: int
    is_resampled: bool
    """Whether prompts whose rewards are all equal were replaced by others."""

    is_evaluated: bool
    advantage: Literal["std", "mean"]
    """How advantages are scaled."""

    def find_step(self, row: ResultRow) -> int:
        """Return the step of a rollout by its place; not for a resampled training."""
        return (row.group_index or 0) // self.prompts_per_step + 1


def _find_settings(config: Mapping[str, Any]) -> RecordedTraining | None:
    """Return the settings of a training; None for any other run.

    Other versions may have recorded fewer settings.
    """
    settings = config.get("training")
    if not isinstance(settings, Mapping):
        return None
    prompts, group_size = settings.get("prompts_per_step"), settings.get("group_size", 1)
    if type(prompts) is not int or type(group_size) is not int or min(prompts, group_size) < 1:
        return None
    return RecordedTraining(
        prompts_per_step=prompts,
        group_size=group_size,
        is_resampled=settings.get("zero_variance") == "resample",
        is_evaluated=bool(settings.get("eval_every")),
        advantage="mean" if settings.get("advantage") == "mean" else "std",
    )


def _find_recorded_step(sample: Sample) -> int | None:
    """Return the step that a sample records; None if it records none."""
    # Rows of datasets may have the same key.
    step = sample.metadata.get(_STEP_METADATA_KEY)
    return step if type(step) is int else None


def build_evaluation_id(run_id: str, step: int) -> str:
    """Return the id of the run that evaluates the weights of a training after a step."""
    # The id of the training is at the end: as a prefix, it must stay unique.
    return f"step-{step}-of-{run_id}"


@dataclass
class Steps:
    """Some consecutive steps of a training, and their rollouts."""

    first: int
    last: int
    rollouts: int = 0
    failed: int = 0
    judged: int = 0
    output_tokens: int = 0
    tokens_known: int = 0
    rewards: dict[int, tuple[float, int]] = field(default_factory=dict)
    """The sum and the number of the judged rewards, by prompt."""

    metrics: list[dict[str, Any]] = field(default_factory=list)
    """The metrics of the steps that have them recorded."""

    def add(self, row: ResultRow) -> None:
        self.rollouts += 1
        if row.boundary is not None:
            self.failed += 1
        elif row.valid and row.score is not None:
            self.judged += 1
            prompt = row.group_index or 0
            total, count = self.rewards.get(prompt, (0.0, 0))
            self.rewards[prompt] = (total + row.score, count + 1)
        if row.output_tokens is not None:
            self.output_tokens += row.output_tokens
            self.tokens_known += 1

    @property
    def not_judged(self) -> int:
        return self.rollouts - self.judged - self.failed

    @property
    def reward(self) -> Interval:
        """The mean over prompts, as in the metrics of a step."""
        return mean_interval(total / count for total, count in self.rewards.values())

    @property
    def tokens(self) -> float | None:
        """The mean number of sampled tokens of a rollout."""
        return self.output_tokens / self.tokens_known if self.tokens_known else None

    def read_metric(self, name: str) -> list[float]:
        """Return a metric of the steps that have it; True and False count as 1 and 0."""
        values = (each.get(name) for each in self.metrics)
        return [value for value in values if isinstance(value, int | float)]

    @property
    def range(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True)
class RecordedEvaluation:
    """The run that evaluated the weights of a training after a step."""

    step: int
    """0: before the training."""

    run_id: str
    status: RunStatus
    samples: int
    judged: int
    score: Interval

    def plain(self) -> dict[str, Any]:
        """Return the evaluation as plain values."""
        return {
            "step": self.step,
            "run": self.run_id,
            "status": self.status,
            "samples": self.samples,
            "judged": self.judged,
            "score": self.score.mean,
            "score_low": self.score.low,
            "score_high": self.score.high,
        }


@dataclass(frozen=True)
class Training:
    """The completed steps, and the number of rollouts of an unfinished one."""

    settings: RecordedTraining
    steps: Sequence[Steps]
    unfinished: int
    evaluations: Sequence[RecordedEvaluation] = ()
    """Of the held-out dataset, in the order of steps."""

    def plain(self) -> dict[str, Any]:
        """Return the training as plain values, one entry for each step."""
        return {
            "unfinished_rollouts": self.unfinished,
            "steps": [
                {
                    "step": each.first,
                    "rollouts": each.rollouts,
                    "judged": each.judged,
                    "failed": each.failed,
                    "not_judged": each.not_judged,
                    "reward": each.reward.mean,
                    "reward_low": each.reward.low,
                    "reward_high": each.reward.high,
                    "output_tokens": each.tokens,
                    "metrics": each.metrics[0] if each.metrics else None,
                }
                for each in self.steps
            ],
            "evaluations": [each.plain() for each in self.evaluations],
        }


def read_training(run: Run) -> Training | None:
    """Read the steps of a recorded training; None for any other run."""
    settings = _find_settings(run.spec.config)
    if settings is None:
        return None
    found: dict[int, Steps] = {}
    numbered: Iterable[tuple[int | None, ResultRow]]
    if not settings.is_resampled:
        numbered = ((settings.find_step(row), row) for row in run.results())
    else:
        # With resampling, steps use different numbers of prompts: only the sample records its step.
        numbered = (
            (_find_recorded_step(sample), row) for row, sample in run.results_with_samples()
        )
    without_step = 0
    for step, row in numbered:
        if step is None:
            without_step += 1
        else:
            found.setdefault(step, Steps(step, step)).add(row)
    for each in run.steps():
        found.setdefault(each.step, Steps(each.step, each.step)).metrics.append(each.metrics)
    size = settings.prompts_per_step * settings.group_size
    steps = [found[step] for step in sorted(found)]
    whole = [some for some in steps if some.rollouts >= size or some.metrics]
    made, used = (sum(some.rollouts for some in part) for part in (steps, whole))
    evaluations = _read_evaluations(run) if settings.is_evaluated else []
    return Training(settings, whole, made - used + without_step, evaluations)


def _read_evaluations(run: Run) -> list[RecordedEvaluation]:
    found = []
    for each in run.find_runs(suffix=build_evaluation_id(run.id, 0).removeprefix("step-0")):
        step = each.spec.config.get("training_step")
        # Any run may have such an id.
        if each.spec.config.get("training_run") != run.id or not isinstance(step, int):
            continue
        summary = summarise_recorded(each.results(), each.spec.config)
        found.append(
            RecordedEvaluation(
                step=step,
                run_id=each.id,
                status=each.status,
                samples=summary.samples,
                judged=summary.judged_samples,
                score=summary.score.interval,
            )
        )
    return sorted(found, key=lambda each: each.step)
