"""The report of a recorded training: rollouts and updates, step by step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.stats import Interval, average, mean_interval
from assay.store import ResultRow, Run

from .output import format_field

# A long training is shown in groups of steps, so that the table fits a screen.
_MAX_TABLE_LINES = 12
_ROLLOUT_COLUMNS = "  {:<11}{:>9}{:>9}  {:<16}{:>8}{:>12}{:>9}"
_UPDATE_COLUMNS = "  {:<11}{:>9}{:>12}{:>11}{:>11}{:>11}{:>11}"
# The metrics of a step in the table of updates, in the order of its columns.
_UPDATE_METRICS = ("loss", "kl", "entropy", "clip_fraction", "grad_norm")

_STEP_METADATA_KEY = "training_step"


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
class Training:
    """The completed steps, and the number of rollouts of an unfinished one."""

    steps: Sequence[Steps]
    unfinished: int


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
    return Training(whole, made - used)


def format_training(training: Training) -> list[str]:
    """Format the first and the last reward, and tables of the steps between them."""
    steps = training.steps
    more = f", and {training.unfinished} rollouts of another" if training.unfinished else ""
    lines = [format_field("steps", f"{len(steps)}{more}")]
    if not steps:
        return lines
    together, first, last = _merge_steps(steps), steps[0].reward, steps[-1].reward
    failed, unjudged = together.failed, together.not_judged
    # Rounded up, so that the tables never have more lines.
    size = -(-len(steps) // _MAX_TABLE_LINES)
    groups = [_merge_steps(steps[at : at + size]) for at in range(0, len(steps), size)]
    return [
        *lines,
        format_field("first reward", format_reward(first.mean, first.low, first.high)),
        format_field("last reward", format_reward(last.mean, last.low, last.high)),
        format_field("rollouts", f"{together.rollouts}, {failed} failed, {unjudged} not judged"),
        *_format_rollout_table(groups),
        *_format_update_table(groups),
    ]


def format_reward(mean: float | None, low: float | None, high: float | None) -> str:
    """Format a mean reward, with its interval if there is one."""
    if mean is None:
        return "no rollout was judged"
    if low is None or high is None:
        return f"{mean:.3f}"
    return f"{mean:.3f} (95 % from {low:.3f} to {high:.3f})"


def _format_rollout_table(groups: Sequence[Steps]) -> Iterator[str]:
    heads = ("step", "rollouts", "reward", "95 %", "failed", "not judged", "tokens")
    yield _ROLLOUT_COLUMNS.format(*heads)
    for group in groups:
        reward = group.reward
        known = reward.low is not None and reward.high is not None
        yield _ROLLOUT_COLUMNS.format(
            group.range,
            group.rollouts,
            "none" if reward.mean is None else f"{reward.mean:.3f}",
            f"{reward.low:.3f} to {reward.high:.3f}" if known else "unknown",
            group.failed,
            group.not_judged,
            "unknown" if group.tokens is None else f"{group.tokens:.1f}",
        ).rstrip()


def _format_update_table(groups: Sequence[Steps]) -> Iterator[str]:
    if not any(group.metrics for group in groups):
        yield "loss, KL and entropy: see metrics.jsonl in the output folder"
        return
    yield _UPDATE_COLUMNS.format("step", "updated", "loss", "KL", "entropy", "clipped", "grad norm")
    for group in groups:
        updated = group.read_metric("updated")
        values = map(group.read_metric, _UPDATE_METRICS)
        means = ("-" if mean is None else f"{mean:.3g}" for mean in map(average, values))
        yield _UPDATE_COLUMNS.format(group.range, sum(updated) if updated else "-", *means)


def _merge_steps(steps: Sequence[Steps]) -> Steps:
    made = Steps(steps[0].first, steps[-1].last)
    for each in steps:
        made.rollouts += each.rollouts
        made.failed += each.failed
        made.judged += each.judged
        made.output_tokens += each.output_tokens
        made.tokens_known += each.tokens_known
        # Keys are positions in the order of prompts: a repeated prompt replaces nothing.
        made.rewards.update(each.rewards)
        made.metrics.extend(each.metrics)
    return made


def training_to_dict(training: Training) -> dict[str, Any]:
    """Return the training as plain values, one entry for each step."""
    return {
        "unfinished_rollouts": training.unfinished,
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
            for each in training.steps
        ],
    }
