"""Decisions from measurements to the outcomes of criteria, each with its reason. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.stats import (
    format_number,
    format_percent,
    format_plural,
    percentile,
    percentile_bounds,
    score_bounds,
)

from .criteria import (
    CriterionOutcome,
    CriterionStatus,
    EvidenceLevel,
    LatencyFigures,
    LatencyStatistic,
    ResolvedCriterion,
)

# Rounding errors of a mean: ten times 0.7 averages to 0.7000000000000001.
FLOAT_TOLERANCE = 1e-12

PERCENTILES: Mapping[str, float] = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}
"""The statistics that are percentiles, the only ones with a confidence bound."""


@dataclass(frozen=True)
class Counts:
    """Counts that belong to a value."""

    unscored: int = 0
    agent_errors: int = 0
    why_unscored: str | None = None
    """The reason for one of the unscored samples."""


@dataclass(frozen=True)
class Timings:
    """Seconds of the agent's calls, and how they were measured."""

    seconds: Sequence[Sequence[float]]
    """The calls of each sample, `math.inf` for failed ones."""

    cached: int = 0
    concurrency: int = 1
    warmup: int = 0


def decide_score(
    criterion: ResolvedCriterion, scores: Sequence[float], counts: Counts
) -> CriterionOutcome:
    """Compare one score per sample with the threshold. Unscored samples make it an error."""
    if criterion.range is None:
        raise ValueError(f"{criterion.name} is a latency, not a score")
    common: dict[str, Any] = {
        "samples": len(scores),
        "unscored": counts.unscored,
        "agent_errors": counts.agent_errors,
    }
    if not scores:
        return _build_error_outcome(
            criterion, counts.why_unscored or "no sample was scored", common
        )
    bounds = score_bounds(scores, bounds=criterion.range, confidence=criterion.confidence)
    names = ("lower", "upper", "at_least", "at_most")
    figures = {"value": bounds.mean, **{name: getattr(bounds, name) for name in names}}
    if counts.unscored:
        samples = format_plural(counts.unscored + len(scores), "sample")
        why = f": {counts.why_unscored}" if counts.why_unscored else ""
        reason = f"{counts.unscored} of {samples} could not be scored{why}"
        return _build_error_outcome(criterion, reason, {**common, **figures})
    good, bad = bounds.at_least, bounds.at_most
    if criterion.direction == "min":
        good, bad = bad, good
    return _build_outcome(criterion, bounds.mean, (good, bad), {**common, **figures})


def decide_latency(
    criterion: ResolvedCriterion, timings: Timings, *, agent_errors: int
) -> CriterionOutcome:
    """Compare a statistic of the times with the limit. Cached answers make it an error."""
    statistic = criterion.graded_by.name
    calls = [1000 * value for each in timings.seconds for value in each]
    common: dict[str, Any] = {
        "samples": len(timings.seconds),
        "unscored": timings.cached,
        "agent_errors": agent_errors,
    }
    if timings.cached or not calls:
        reason = "no call was measured"
        if timings.cached:
            answers = format_plural(timings.cached, "answer")
            reason = f"{answers} came from a cache, which has no response time"
        return _build_error_outcome(criterion, reason, common)
    value = _compute_latency_statistic(calls, statistic)
    lower, upper = _compute_latency_bounds(criterion, timings, value)
    figures = {"value": value, "at_least": lower, "at_most": upper}
    infinite = tuple(
        name for name, each in figures.items() if each is not None and each == math.inf
    )
    finite = {name: None if name in infinite else each for name, each in figures.items()}
    return _build_outcome(
        criterion, value, (upper, lower), {**common, **finite, "infinite": infinite}
    )


def compute_latency_figures(timings: Timings, statistic: LatencyStatistic) -> LatencyFigures:
    """Compute all latency figures."""
    calls = [1000 * value for each in timings.seconds for value in each]
    names: tuple[LatencyStatistic, ...] = ("p50", "p90", "p95", "p99", "max", "mean")
    values = {name: _compute_latency_statistic(calls, name) if calls else None for name in names}
    infinite = tuple(name for name in names if values[name] == math.inf)
    return LatencyFigures(
        statistic=statistic,
        **{name: None if name in infinite else values[name] for name in names},
        infinite=infinite,
        samples=len(calls),
        failed=sum(value == math.inf for value in calls),
        cached=timings.cached,
        concurrency=timings.concurrency,
        warmup=timings.warmup,
    )


def meets(criterion: ResolvedCriterion, value: float) -> bool:
    """Whether a value meets the threshold, within the rounding errors of a mean."""
    slack = FLOAT_TOLERANCE * max(1.0, abs(criterion.threshold))
    if criterion.direction == "max":
        return value >= criterion.threshold - slack
    return value <= criterion.threshold + slack


def _compute_latency_statistic(calls: Sequence[float], name: str) -> float:
    if name == "mean":
        return math.inf if math.inf in calls else math.fsum(calls) / len(calls)
    if name == "max":
        return max(calls)
    found = percentile(calls, PERCENTILES[name])
    assert found is not None  # there are calls
    return found


def _compute_latency_bounds(
    criterion: ResolvedCriterion, timings: Timings, value: float
) -> tuple[float | None, float | None]:
    """Return the lower and the upper confidence bound in milliseconds."""
    statistic = criterion.graded_by.name
    if statistic in ("max", "mean"):
        # The true maximum is at least the observed one; nothing bounds it from above.
        return (value if statistic == "max" or value == math.inf else None), None
    # Calls of one sample are correlated: it counts once, with the call that is worst for the
    # bound.
    least = [1000 * min(each) for each in timings.seconds if each]
    most = [1000 * max(each) for each in timings.seconds if each]
    return percentile_bounds(
        least, most, percent=PERCENTILES[statistic], confidence=criterion.confidence
    )


def _build_outcome(
    criterion: ResolvedCriterion,
    value: float,
    bounds: tuple[float | None, float | None],
    fields: dict[str, Any],
) -> CriterionOutcome:
    met, evidence = meets(criterion, value), EvidenceLevel.INCONCLUSIVE
    proves, refutes = bounds
    if proves is not None and meets(criterion, proves):
        evidence = EvidenceLevel.PROVEN
    elif refutes is not None and not meets(criterion, refutes):
        evidence = EvidenceLevel.REFUTED
    passed = met and (criterion.gate == "point" or evidence is EvidenceLevel.PROVEN)
    words = _describe_comparison(criterion, value, met=met)
    if evidence is EvidenceLevel.INCONCLUSIVE:
        words += f", which is not proven: {_describe_bound(criterion, proves)}"
    else:
        words += f"; {evidence}"
    return CriterionOutcome(
        **dict(criterion),
        **fields,
        evidence=evidence,
        status=CriterionStatus.PASSED if passed else CriterionStatus.FAILED,
        reason=words,
    )


def _build_error_outcome(
    criterion: ResolvedCriterion, reason: str, fields: dict[str, Any]
) -> CriterionOutcome:
    return CriterionOutcome(
        **dict(criterion),
        **{"value": None, **fields},
        evidence=None,
        status=CriterionStatus.ERROR,
        reason=reason,
    )


def _describe_comparison(criterion: ResolvedCriterion, value: float, *, met: bool) -> str:
    words = {
        ("max", True): "reaches",
        ("max", False): "is below",
        ("min", True): "is within",
        ("min", False): "is above",
    }[criterion.direction, met]
    what = "mean" if criterion.kind == "score" else criterion.graded_by.name
    found = _format_criterion_value(criterion, value, criterion.threshold)
    return (
        f"{what} {found} {words} {_format_criterion_value(criterion, criterion.threshold, value)}"
    )


def _describe_bound(criterion: ResolvedCriterion, bound: float | None) -> str:
    """Describe the bound that the samples do show."""
    sure = f"with {format_percent(criterion.confidence)} confidence"
    if bound is None:
        return f"the samples give no bound {sure}"
    side = "at least" if criterion.direction == "max" else "at most"
    return f"{sure} it is {side} {_format_criterion_value(criterion, bound, criterion.threshold)}"


def _format_criterion_value(criterion: ResolvedCriterion, value: float, beside: float) -> str:
    unit = "" if criterion.kind == "score" or math.isinf(value) else " ms"
    return f"{format_number(value, beside=beside)}{unit}"
