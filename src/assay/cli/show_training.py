"""The report of a recorded training: rollouts and updates, step by step."""

from collections.abc import Iterator, Sequence

from assay.runner import RecordedEvaluation, Steps, Training
from assay.stats import average

from .output import format_field, measure_line_width

# A long training is shown in groups of steps, so that the table fits a screen.
_MAX_TABLE_LINES = 12
# Widths of columns; in a narrow terminal the last ones are left out, --json has them all.
_ROLLOUT_COLUMNS = ("<13", ">9", ">9", "<18", ">8", ">12", ">9")
_EVALUATION_COLUMNS = ("<13", ">9", ">9", "<18", ">8", "<70")
_UPDATE_COLUMNS = ("<13", ">9", ">12", ">11", ">11", ">11", ">11")
# The metrics of a step in the table of updates, in the order of its columns.
_UPDATE_METRICS = ("loss", "kl", "entropy", "clip_fraction", "grad_norm")


def format_training(training: Training) -> list[str]:
    """Format the first and the last reward, and tables of the steps between them."""
    steps = training.steps
    more = f", and {training.unfinished} rollouts of another" if training.unfinished else ""
    lines = [format_field("steps", f"{len(steps)}{more}")]
    if not steps:
        return [*lines, *_format_evaluation_table(training.evaluations)]
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
        *([format_field("staleness", stale)] if (stale := format_staleness(together)) else ()),
        *_format_rollout_table(groups),
        *_format_update_table(groups),
        *_format_evaluation_table(training.evaluations),
    ]


def format_reward(mean: float | None, low: float | None, high: float | None) -> str:
    """Format a mean reward, with its interval if there is one."""
    if mean is None:
        return "no rollout was judged"
    if low is None or high is None:
        return f"{mean:.3f}"
    return f"{mean:.3f} (95 % from {low:.3f} to {high:.3f})"


def format_staleness(steps: Steps) -> str | None:
    """Format how old the weights were that sampled; None without a server that samples."""
    lags, dropped = steps.read_metric("staleness"), int(sum(steps.read_metric("stale")))
    words = []
    if lags:
        most = max(steps.read_metric("staleness_max"), default=0)
        words.append(f"{average(lags):.1f} steps on average, at most {most:.0f}")
    if dropped:
        words.append(f"{dropped} rollouts were older than allowed and dropped")
    return "; ".join(words) or None


def _format_rollout_table(groups: Sequence[Steps]) -> Iterator[str]:
    heads = ("step", "rollouts", "reward", "  95 %", "failed", "not judged", "tokens")
    yield _format_row(_ROLLOUT_COLUMNS, *heads)
    for group in groups:
        reward = group.reward
        known = reward.low is not None and reward.high is not None
        yield _format_row(
            _ROLLOUT_COLUMNS,
            group.range,
            group.rollouts,
            "none" if reward.mean is None else f"{reward.mean:.3f}",
            f"  {reward.low:.3f} to {reward.high:.3f}" if known else "  unknown",
            group.failed,
            group.not_judged,
            "unknown" if group.tokens is None else f"{group.tokens:.1f}",
        )


def _format_update_table(groups: Sequence[Steps]) -> Iterator[str]:
    if not any(group.metrics for group in groups):
        yield "loss, KL and entropy: see metrics.jsonl in the output folder"
        return
    heads = ("step", "updated", "loss", "KL", "entropy", "clipped", "grad norm")
    yield _format_row(_UPDATE_COLUMNS, *heads)
    for group in groups:
        updated = group.read_metric("updated")
        values = map(group.read_metric, _UPDATE_METRICS)
        means = ("-" if mean is None else f"{mean:.3g}" for mean in map(average, values))
        yield _format_row(_UPDATE_COLUMNS, group.range, sum(updated) if updated else "-", *means)


def _format_evaluation_table(evaluations: Sequence[RecordedEvaluation]) -> Iterator[str]:
    if not evaluations:
        return
    best = max((each.score.mean for each in evaluations if each.score.mean is not None), default=0)
    yield _format_row(_EVALUATION_COLUMNS, "evaluated", "judged", "score", "  95 %", "", "run")
    for each in evaluations:
        score = each.score
        known = score.low is not None and score.high is not None
        yield _format_row(
            _EVALUATION_COLUMNS,
            f"step {each.step}",
            each.judged,
            "none" if score.mean is None else f"{score.mean:.3f}",
            f"  {score.low:.3f} to {score.high:.3f}" if known else "  unknown",
            "best  " if score.mean == best else "",
            each.run_id,
        )


def _format_row(columns: Sequence[str], *cells: object) -> str:
    width, line = measure_line_width(), ""
    for cell, column in zip((f"  {cells[0]}", *map(str, cells[1:])), columns, strict=True):
        if len(line) + int(column[1:]) > width:
            break
        line += f"{cell:{column}}"
    return line.rstrip()


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
