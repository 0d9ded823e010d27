"""A training: rewards and updates by step as curves, and the rollouts of a step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from starlette.exceptions import HTTPException
from starlette.requests import Request

from assay.runner import RecordedTraining, Training, read_training
from assay.stats import Comparison, compare, format_number, mean_interval
from assay.store import ResultRow, Run, RunStatus, Store
from assay.train import compute_advantages
from assay.types import Sample, build_label

from .curves import CurvePoint
from .page import PageModel, build_page_routes, encode_segment, find_run, read_number, read_segment
from .render import format_json, read_finite_number, shorten_line
from .value_cache import ValueCache, build_run_key

CURVES = {
    "kl": "KL divergence",
    "entropy": "Entropy",
    "clip_fraction": "Clipped tokens, share",
    "tokens_per_s": "Sampled tokens a second",
    "loss": "Loss",
    "grad_norm": "Gradient norm",
}
"""The metrics of a step that are drawn, with their titles."""

_MAX_POINTS = 300
_MAX_ROLLOUTS = 64
_MAX_ANSWER_CHARS = 2_000
_TRAININGS = ValueCache(max_results=2_000_000)


class StepFigures(PageModel):
    """One step, as `assay show RUN --json` prints it."""

    step: int
    rollouts: int
    judged: int
    failed: int
    not_judged: int
    reward: float | None
    reward_low: float | None
    reward_high: float | None
    output_tokens: float | None
    metrics: dict[str, Any] | None

    def format_metric(self, name: str) -> str:
        """Format a metric for a table: a step may record any JSON value."""
        value = (self.metrics or {}).get(name)
        if value is None:
            return "unknown"
        number = read_finite_number(value)
        return shorten_line(format_json(value), 40) if number is None else f"{number:.4g}"


class EvaluationFigures(PageModel):
    """One evaluation of the held-out dataset, as `assay show RUN --json` prints it."""

    step: int
    run: str
    status: RunStatus
    samples: int
    judged: int
    score: float | None
    score_low: float | None
    score_high: float | None


class TrainedRolloutView(PageModel):
    """One rollout of a step."""

    key: str
    id: str
    prompt: int
    """Rollouts of one group are answers to the same prompt."""

    label: str
    answer: str
    left_out: int
    """Characters at the end of the answer that are left out."""

    reward: float | None
    advantage: float | None
    """Against the other rollouts of its prompt; None if its reward is unknown."""

    failed: str | None


class RewardChange(PageModel):
    """The first steps of a training against the last ones."""

    steps: int
    """How many steps are on each side."""

    before: float | None
    before_low: float | None
    before_high: float | None
    after: float | None
    after_low: float | None
    after_high: float | None
    pairs: int
    """Prompts on both sides; the figures below are over them."""

    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None
    conclusion: str


class TrainingView(PageModel):
    """The page of one training."""

    id: str
    name: str
    dataset: str
    status: RunStatus
    created_at: str
    steps: tuple[StepFigures, ...]
    evaluations: tuple[EvaluationFigures, ...]
    unfinished_rollouts: int
    change: RewardChange | None
    """None with fewer than two steps."""

    step: int | None
    """The step whose rollouts are listed."""

    rollouts: tuple[TrainedRolloutView, ...]
    rollouts_left_out: int

    @property
    def reward_curve(self) -> list[CurvePoint]:
        """The mean reward by step; a point leads to the rollouts of its step."""
        return [
            CurvePoint(
                value=each.reward,
                low=each.reward_low,
                high=each.reward_high,
                name=str(each.step),
                title=f"step {each.step}: reward {format_number(each.reward)}",
                link=f"/training/{encode_segment(self.id)}?step={each.step}#rollouts",
            )
            for each in _thin_out(self.steps)
        ]

    @property
    def evaluation_curve(self) -> list[CurvePoint]:
        """The mean score on the held-out dataset; a point leads to the run of its evaluation."""
        return [
            CurvePoint(
                value=each.score,
                low=each.score_low,
                high=each.score_high,
                name=str(each.step),
                title=f"step {each.step}: score {format_number(each.score)}",
                link=f"/run/{encode_segment(each.run)}",
            )
            for each in self.evaluations
        ]

    @property
    def curves(self) -> dict[str, list[CurvePoint]]:
        """The metrics that any step has, by title."""
        shown = _thin_out(self.steps)
        found = {
            title: [_build_metric_point(each, name) for each in shown]
            for name, title in CURVES.items()
        }
        return {
            title: points
            for title, points in found.items()
            if any(point.value is not None for point in points)
        }


def read_training_page(store: Store, request: Request) -> TrainingView:
    """Read a training, with the rollouts of the step that is asked for."""
    run = find_run(store, read_segment(request, "run_id"))
    row = run.row()
    key = build_run_key(store, row)
    found = _TRAININGS.get(
        key._replace(state=(key.state, len(run.steps()))),
        lambda: read_training(run),
        results=1 + row.totals.recorded,
    )
    if found is None:
        raise HTTPException(404, f"run {run.id!r} is not a training")
    step = read_number(request, "step")
    listed = [] if step is None else _read_rollouts(run, step, found.settings)
    plain = found.plain()
    steps = tuple(StepFigures(**each) for each in plain["steps"])
    return TrainingView(
        id=run.id,
        name=run.spec.name,
        dataset=run.spec.dataset,
        status=row.status,
        created_at=run.spec.created_at,
        steps=steps,
        evaluations=tuple(EvaluationFigures(**each) for each in plain["evaluations"]),
        unfinished_rollouts=found.unfinished,
        change=_compare_ends(run, found),
        step=step,
        rollouts=tuple(_describe_rollouts(listed, found.settings.advantage))[:_MAX_ROLLOUTS],
        rollouts_left_out=max(len(listed) - _MAX_ROLLOUTS, 0),
    )


@dataclass(frozen=True)
class _RecordedRollout:
    row: ResultRow
    sample: Sample | None


def _read_rollouts(run: Run, step: int, settings: RecordedTraining) -> list[_RecordedRollout]:
    if settings.is_resampled:
        # Only the samples record their steps: see `read_training`.
        return [
            _RecordedRollout(row, sample)
            for row, sample in run.results_with_samples()
            if sample.metadata.get("training_step") == step
        ]
    rows = [row for row in run.results() if settings.find_step(row) == step]
    found: list[_RecordedRollout] = []
    for row in rows:
        sample = None
        if len(found) < _MAX_ROLLOUTS:
            body = run.find_result(row.key)
            sample = None if body is None else body[1]
        found.append(_RecordedRollout(row, sample))
    return found


def _describe_rollouts(
    listed: Sequence[_RecordedRollout], scaling: Literal["std", "mean"]
) -> Iterator[TrainedRolloutView]:
    groups: dict[int, list[_RecordedRollout]] = {}
    for each in listed:
        groups.setdefault(each.row.group_index or 0, []).append(each)
    for prompt, group in groups.items():
        rewards = [each.row.score if each.row.valid else None for each in group]
        advantages = compute_advantages(rewards, scaling=scaling)
        for each, reward, advantage in zip(group, rewards, advantages, strict=True):
            answer = "" if each.sample is None else each.sample.response
            yield TrainedRolloutView(
                key=each.row.key,
                id=each.row.sample_id,
                prompt=prompt,
                label="" if each.sample is None else build_label(each.sample),
                answer=answer[:_MAX_ANSWER_CHARS],
                left_out=max(len(answer) - _MAX_ANSWER_CHARS, 0),
                reward=reward,
                advantage=advantage,
                failed=each.row.boundary,
            )


def _compare_ends(run: Run, training: Training) -> RewardChange | None:
    steps, settings = training.steps, training.settings
    if len(steps) < 2:
        return None
    # A fifth on each side: many prompts, and still far apart.
    size = max(len(steps) // 5, 1)
    ends = (steps[:size], steps[-size:])
    before, after = (
        mean_interval(total / count for step in part for total, count in step.rewards.values())
        for part in ends
    )
    paired: Comparison | None = None
    # The prompts of resampled steps are in no fixed order: see `read_training`.
    if not settings.is_resampled:
        sides: list[list[ResultRow]] = []
        for part in ends:
            wanted = {each.first for each in part}
            rows = [row for row in run.results() if settings.find_step(row) in wanted]
            # Sorted by sample: a prompt may be in several steps, and pairs are made by sample.
            sides.append(sorted(rows, key=lambda row: row.sample_id))
        paired = compare(*sides, limit=0)
    return RewardChange(
        steps=size,
        before=before.mean,
        before_low=before.low,
        before_high=before.high,
        after=after.mean,
        after_low=after.low,
        after_high=after.high,
        pairs=0 if paired is None else paired.pairs,
        difference=None if paired is None else paired.difference.mean,
        low=None if paired is None else paired.difference.low,
        high=None if paired is None else paired.difference.high,
        p_value=None if paired is None else paired.p_value,
        conclusion="not compared" if paired is None else str(paired.conclusion),
    )


def _thin_out(steps: Sequence[StepFigures]) -> Sequence[StepFigures]:
    # More points than a screen has columns only make the page large.
    every = -(-len(steps) // _MAX_POINTS) or 1
    return steps[::every]


def _build_metric_point(step: StepFigures, name: str) -> CurvePoint:
    return CurvePoint(
        value=read_finite_number((step.metrics or {}).get(name)),
        name=str(step.step),
        title=f"step {step.step}: {step.format_metric(name)}",
    )


ROUTES = build_page_routes("/training/{run_id}", "training.html", read_training_page)
