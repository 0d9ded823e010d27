"""The sections of reports, and their text."""

from pydantic import BaseModel, ConfigDict

from .number_format import WIDTH, format_labelled, format_number, format_percent, format_plural
from .statistics import BINS, Interval, RunningStats


class ReportSection(BaseModel):
    """A frozen model of a report. Infinities survive JSON as strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Distribution(ReportSection):
    """Where scores lie: ten equal parts of 0..1, or quartiles for scores on another scale."""

    lowest: float
    highest: float
    bins: tuple[int, ...] | None
    """Samples in 0.0-0.1, 0.1-0.2 ... 0.9-1.0; None when a score is outside 0..1."""

    quartiles: tuple[float, float, float]
    exact: bool
    """False when the quartiles are within 0.5 % only, as for large sets."""


class ScoreStatistics(ReportSection):
    """One number of a result, over the samples that have it."""

    interval: Interval
    stdev: float | None
    distribution: Distribution | None
    left_out: int
    """Samples without it, not judged ones included."""

    @property
    def mean(self) -> float | None:
        return self.interval.mean


class Total(ReportSection):
    """A sum over all results, known only if each part is."""

    value: float | None
    at_least: float
    """The sum of the parts that are known."""

    unknown: int
    """Results without the number."""


class Latency(ReportSection):
    """Percentiles of the seconds per result, by nearest rank, without cached results."""

    measured: int
    cached: int
    unknown: int
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    exact: bool
    """False when within 0.5 % only, as for large sets."""


def build_distribution(stats: RunningStats) -> Distribution | None:
    first, middle, third = (stats.percentiles.at(percent) for percent in (25, 50, 75))
    if stats.minimum is None or stats.maximum is None:
        return None
    if first is None or middle is None or third is None:
        return None
    return Distribution(
        lowest=stats.minimum,
        highest=stats.maximum,
        bins=stats.bins,
        quartiles=(first, middle, third),
        exact=stats.percentiles.exact,
    )


def format_interval(interval: Interval, *, brief: bool = False, signed: bool = False) -> str:
    """Format a mean with its limits, or the reason why they are missing."""
    if interval.mean is None:
        return f"none: {interval.reason}"
    words = format_number(interval.mean, signed=signed)
    if interval.low is None or interval.high is None:
        return f"{words}, no interval" if brief else f"{words}, no interval: {interval.reason}"
    low, high = (format_number(limit, signed=signed) for limit in (interval.low, interval.high))
    words += f" [{low}, {high}]"
    return words if brief else f"{words} {format_percent(interval.confidence)} confidence"


def format_p_value(p_value: float | None) -> str:
    """Format a p-value with four decimals, or as less than 0.0001."""
    if p_value is None:
        return "unknown"
    return "less than 0.0001" if p_value < 0.0001 else f"{p_value:.4f}"


def format_distribution(distribution: Distribution | None, *, width: int = WIDTH) -> list[str]:
    if distribution is None:
        return []
    if distribution.bins is None:
        first, middle, third = map(format_number, distribution.quartiles)
        lowest, highest = format_number(distribution.lowest), format_number(distribution.highest)
        words = f"{lowest} to {highest}, quartiles {first}, {middle}, {third}"
        return format_labelled("distribution", words, width=width)
    parts = [
        f"{part / BINS:.1f}-{(part + 1) / BINS:.1f}: {count}"
        for part, count in enumerate(distribution.bins)
        if count
    ]
    return format_labelled("distribution", ", ".join(parts), width=width)


def format_total(total: Total, sign: str = "") -> str:
    # With a sign it is money, often less than a cent; without one it is a count.
    digits = 4 if sign else 0
    if total.value is not None:
        return f"{sign}{total.value:.{digits}f}"
    if not total.at_least:
        return "unknown"
    least = f"at least {sign}{total.at_least:.{digits}f}"
    return f"unknown ({least}; {format_plural(total.unknown, 'result')} unknown)"
