"""The steps of a recorded training: their rollouts, rewards and metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.stats import Interval, mean_interval, summarise_recorded
from assay.store import ResultRow, Run, RunStatus

_STEP_METADATA_KEY = "training_step"


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
    settings = run.spec.config.get("training")
    if not isinstance(settings, Mapping) or "prompts_per_step" not in settings:
        return None
    found: dict[int, Steps] = {}
    if settings["zero_variance"] != "resample":
        numbered = (
            ((row.group_index or 0) // settings["prompts_per_step"] + 1, row)
            for row in run.results()
        )
    else:
        # With resampling, steps use different numbers of prompts: only the sample records its step.
        numbered = (
            (int(sample.metadata[_STEP_METADATA_KEY]), row)
            for row, sample in zip(run.results(), run.samples(), strict=True)
        )
    for step, row in numbered:
        found.setdefault(step, Steps(step, step)).add(row)
    for each in run.steps():
        found.setdefault(each.step, Steps(each.step, each.step)).metrics.append(each.metrics)
    size = settings["prompts_per_step"] * settings["group_size"]
    steps = [found[step] for step in sorted(found)]
    whole = [some for some in steps if some.rollouts >= size or some.metrics]
    made, used = (sum(some.rollouts for some in part) for part in (steps, whole))
    evaluations = _read_evaluations(run) if settings.get("eval_every") else []
    return Training(whole, made - used, evaluations)


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
