"""The metrics of a training step."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from assay.stats import mean_interval
from assay.types import Sample

from .batches import TrainedRollout, is_truncated
from .output_folder import TrainingStep
from .policy import UpdateStats
from .rollout_collector import StepRollouts
from .token_spans import is_sampled_turn


class StepMetrics(TrainingStep):
    """The metrics of one step. Values that were not measured are None."""

    reward: float | None
    """Mean of the judged rollouts, prompts weighing the same; None if none was judged."""

    reward_low: float | None
    reward_high: float | None
    """The 95 % interval of that mean, over prompts; None where it cannot be given."""

    rollouts: int
    valid: int
    invalid: int
    """Unscored without a failure. Excluded from means and loss, as failed ones are."""

    failed: dict[str, int]
    """Rollouts by the boundary that failed."""

    groups: int
    zero_variance: float | None
    """Share of the groups without two different rewards: they teach nothing."""

    resampled: int
    found: int
    """Rollouts that an interrupted run had recorded."""

    stale: int = 0
    """Rollouts that were dropped because older weights than allowed had sampled them."""

    staleness: float | None = None
    """Steps between sampling and learning, on average; None without a server that samples."""

    staleness_max: int | None = None
    weight_versions: dict[str, int] | None = None
    """Rollouts by the oldest weights that sampled them; None without a server that samples."""

    trained_rollouts: int
    trained_tokens: int
    updated: bool
    """False when there was nothing to learn from: the weights are as before."""

    loss: float | None = None
    kl: float | None = None
    """Divergence from the model before training; None where it is not measured."""

    entropy: float | None = None
    ratio: float | None = None
    """Mean of new over old probability of the trained tokens."""

    ratio_max: float | None = None
    clip_fraction: float | None = None
    importance_weight: float | None = None
    """Mean of the weights that correct for the sampling engine."""

    importance_capped: float | None = None
    grad_norm: float | None = None
    weights_changed: float | None = None
    """Share of the weights with a gradient that the update changed."""

    learning_rate: float
    response_tokens: float | None
    """Sampled tokens of a rollout, on average."""

    truncated: float | None
    """Share of the rollouts that a limit cut short, or one of their answers."""

    turns: float | None
    tokens_per_s: float | None
    """Sampled tokens a second, while rollouts were made."""

    rollout_s: float
    update_s: float


@dataclass(frozen=True)
class Update:
    """The update of a step."""

    rollouts: Sequence[TrainedRollout]
    stats: UpdateStats | None
    """None when there was nothing to learn from."""

    learning_rate: float
    seconds: float


def compute_step_metrics(step: int, collected: StepRollouts, update: Update) -> StepMetrics:
    """Compute the metrics of one step."""
    samples = [sample for group in collected.groups for sample in group.samples]
    # The mean of each group first: prompts weigh the same, however many rollouts were judged.
    judged = ([each for each in group.rewards if each is not None] for group in collected.groups)
    interval = mean_interval([fmean(rewards) for rewards in judged if rewards])
    failed = Counter(str(each.failure.boundary) for each in samples if each.failure is not None)
    valid = sum(reward is not None for group in collected.groups for reward in group.rewards)
    without = sum(not group.has_signal for group in collected.groups)
    return StepMetrics(
        step=step,
        reward=interval.mean,
        reward_low=interval.low,
        reward_high=interval.high,
        rollouts=len(samples),
        valid=valid,
        invalid=len(samples) - valid - failed.total(),
        failed=dict(failed),
        groups=len(collected.groups),
        zero_variance=without / len(collected.groups),
        resampled=collected.resampled,
        found=collected.found,
        stale=collected.stale,
        staleness=fmean(collected.staleness) if collected.staleness else None,
        staleness_max=max(collected.staleness, default=None),
        weight_versions=(
            None if collected.weight_versions is None else dict(collected.weight_versions)
        ),
        trained_rollouts=len(update.rollouts),
        trained_tokens=sum(rollout.trained_tokens for rollout in update.rollouts),
        updated=update.stats is not None,
        learning_rate=update.learning_rate,
        rollout_s=collected.seconds,
        update_s=update.seconds,
        **_measure_rollouts(samples, collected),
        **_measure_update(update.stats),
    )


def _measure_rollouts(
    samples: Sequence[Sample], collected: StepRollouts
) -> dict[str, float | None]:
    whole = [each for each in samples if each.trajectory is not None and each.failure is None]
    # Titles, summaries, retries and failed calls of an agent are not trained on.
    calls = [
        call
        for each in whole
        if each.trajectory
        for call in each.trajectory.calls
        if is_sampled_turn(call)
    ]
    tokens = sum(len(call.completion_ids or ()) for call in calls)
    # Rollouts from before a resume took no time in this process: no rate can be given.
    made = tokens if not collected.found else 0
    return {
        "response_tokens": tokens / len(whole) if whole else None,
        "truncated": fmean(map(is_truncated, whole)) if whole else None,
        "turns": len(calls) / len(whole) if whole else None,
        "tokens_per_s": made / collected.seconds if made and collected.seconds else None,
    }


def _measure_update(stats: UpdateStats | None) -> dict[str, float | None]:
    if stats is None:
        return {}
    sums = stats.sums
    return {
        "loss": stats.loss,
        "kl": None if sums.kl is None else sums.kl / sums.tokens,
        "entropy": stats.entropy,
        "ratio": sums.ratio / sums.tokens,
        "ratio_max": sums.ratio_max,
        "clip_fraction": sums.clipped / sums.tokens,
        "importance_weight": sums.weight / sums.tokens,
        "importance_capped": sums.weight_capped / sums.tokens,
        "grad_norm": stats.grad_norm,
        "weights_changed": stats.changed,
    }
