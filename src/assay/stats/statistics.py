"""Means with confidence intervals, for small sets and for millions of scores."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from assay.errors import ConfigError
from assay.types import NOISE

from .distributions import compute_beta_quantile, compute_student_quantile
from .percentiles import RunningPercentiles
from .result_types import check_all_finite, check_finite

SMALLEST_T = 30
"""The fewest scores without known bounds for an interval: with fewer it would be a guess."""

BINS = 10
# Chunks are counted by C code, several times as fast as single scores.
_SCORES_AT_ONCE = 1000

Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its confidence interval."""

    mean: float | None
    """None without scores: never 0.0, which would be a measurement."""

    low: float | None
    high: float | None
    n: int
    """The number of samples, not of repeats."""

    confidence: float = 0.95
    method: Literal["beta", "t"] | None = None
    """`beta` for scores with bounds, `t` for others; None without an interval."""

    at_least: float | None = None
    """The one-sided lower bound: the mean is at least this, with the same confidence."""

    reason: str | None = None
    """Why the interval is missing."""


def mean_interval(
    scores: Iterable[float], *, confidence: float = 0.95, bounds: Bounds | None = None
) -> Interval:
    """Compute the mean of one score for each sample, with a two-sided confidence interval.

    `bounds` are the lowest and highest score possible. Without them, scores that are all within
    0..1 are assumed to be on that scale; others need 30 samples for an (approximate) interval.
    """
    stats = RunningStats()
    scores = iter(scores)
    while some := list(islice(scores, _SCORES_AT_ONCE)):
        stats.extend(some)
    return stats.interval(confidence=confidence, bounds=bounds)


def samples_to_prove(minimum: float, *, confidence: float = 0.95) -> int | None:
    """Return how many perfect samples prove a mean of `minimum` within 0..1; None if none can."""
    alpha = 1 - check_confidence(confidence)
    if minimum >= 1:
        return None
    if minimum <= 0:
        return 1
    # Count down from a safe start: rounding makes the logarithm off by one near integers.
    needed = math.ceil(math.log(alpha) / math.log(minimum)) + 1
    while needed > 1 and minimum ** (needed - 1) <= alpha * (1 + NOISE):
        needed -= 1
    return needed


class RunningSum:
    """The compensated sum of a stream."""

    def __init__(self) -> None:
        self._total = 0.0
        self._correction = 0.0

    def add(self, value: float) -> None:
        # Neumaier's algorithm: a plain sum drifts over a million values.
        total = self._total + value
        if abs(self._total) >= abs(value):
            self._correction += (self._total - total) + value
        else:
            self._correction += (value - total) + self._total
        self._total = total

    @property
    def total(self) -> float:
        return self._total + self._correction


class RunningStats:
    """Mean, spread, extremes and distribution of a stream of scores, in constant memory."""

    def __init__(self) -> None:
        self.n = 0
        self.minimum: float | None = None
        self.maximum: float | None = None
        self.binary = True
        """Whether every score so far was exactly 0 or 1."""

        self.percentiles = RunningPercentiles()
        self._bins = [0] * BINS
        self._sum = RunningSum()
        self._middle = 0.0
        self._squares = 0.0

    def extend(self, scores: Sequence[float]) -> None:
        """Count scores: many at once cost much less than one by one.

        Raises `ConfigError` for NaN and infinities.
        """
        scores = check_all_finite(scores, "a score")
        if not scores:
            return
        lowest, highest, total = min(scores), max(scores), math.fsum(scores)
        self.minimum = lowest if self.minimum is None else min(self.minimum, lowest)
        self.maximum = highest if self.maximum is None else max(self.maximum, highest)
        self.percentiles.extend(scores)
        self._sum.add(total)
        # Most scorers return few different numbers, so counting first saves work.
        counted = Counter(scores)
        self.binary = self.binary and counted.keys() <= {0.0, 1.0}
        for score, count in counted.items():
            if -NOISE <= score <= 1 + NOISE:
                self._bins[min(max(int(score * BINS + NOISE), 0), BINS - 1)] += count
        middle, added = total / len(scores), len(scores)
        # Chan's parallel update of the sum of squared deviations. Sums of squares minus the
        # squared mean would cancel for scores far from 0.
        away = middle - self._middle
        self._squares += math.fsum(n * (score - middle) ** 2 for score, n in counted.items())
        self._squares += away * away * (self.n * added / (self.n + added))
        self.n += added
        self._middle += away * added / self.n

    @property
    def total(self) -> float:
        return self._sum.total

    @property
    def mean(self) -> float | None:
        if self.minimum is None or self.maximum is None:
            return None
        # Rounding can put the mean of equal scores a little outside of them.
        return min(max(self.total / self.n, self.minimum), self.maximum)

    @property
    def stdev(self) -> float | None:
        """The root of the unbiased variance; None below two scores."""
        return math.sqrt(max(self._squares, 0.0) / (self.n - 1)) if self.n > 1 else None

    @property
    def bins(self) -> tuple[int, ...] | None:
        """Counts in ten equal parts of 0..1, or None when a score is outside."""
        return tuple(self._bins) if self.n and sum(self._bins) == self.n else None

    def interval(self, *, confidence: float = 0.95, bounds: Bounds | None = None) -> Interval:
        """Compute the mean with its interval, as `mean_interval` does."""
        check_confidence(confidence)
        low, high = (0.0, 1.0) if bounds is None else check_bounds(bounds)
        if self.mean is None or self.minimum is None or self.maximum is None:
            return Interval(None, None, None, 0, confidence, reason="no sample was judged")
        if is_within(self.minimum, self.maximum, (low, high)):
            interval = compute_beta_interval(self.total, self.n, confidence, (low, high))
            return replace(interval, mean=self.mean)
        if bounds is not None:
            raise ConfigError(
                f"scores from {self.minimum!r} to {self.maximum!r} are outside the bounds {bounds}",
                where="bounds",
                hint="give the lowest and highest score that is possible",
            )
        return compute_t_interval(self.mean, self.stdev, self.n, confidence)


def estimate_interval(
    n: int, total: float, square_total: float, *, bounds: Bounds | None = None
) -> Interval:
    """Compute the interval of a mean from sums alone, for runs whose scores are not read.

    Scores whose squares add up to no more than the scores are taken to be within 0..1.
    """
    if not n:
        return Interval(None, None, None, 0, reason="no sample was judged")
    if bounds is not None or 0 <= square_total <= total * (1 + NOISE):
        return compute_beta_interval(total, n, 0.95, bounds or (0.0, 1.0))
    variance = max(square_total - total * total / n, 0.0) / (n - 1) if n > 1 else 0.0
    return compute_t_interval(total / n, math.sqrt(variance), n, 0.95)


def compute_beta_interval(
    total: float, n: int, confidence: float, bounds: Bounds = (0.0, 1.0)
) -> Interval:
    """Compute the interval for the mean of `n` scores within `bounds` with the sum `total`."""
    low, width = bounds[0], bounds[1] - bounds[0]
    share = min(max((total - n * low) / width, 0.0), float(n))
    limits = compute_beta_limits(share, n, confidence)
    # A one-sided bound of confidence c is the lower limit of a two-sided 2c - 1.
    one_sided = compute_beta_limits(share, n, 2 * confidence - 1)[0]
    first, last, at_least = (low + width * part for part in (*limits, one_sided))
    return Interval(total / n, first, last, n, confidence, "beta", at_least)


def compute_beta_limits(total: float, n: int, confidence: float) -> Bounds:
    """Compute Clopper and Pearson's limits for the mean of `n` scores within 0..1.

    `total` is the sum of the scores. Exact for scores of 0 and 1. For fractions the sum takes the
    place of the count, which kept its confidence on every distribution it was measured on.
    """
    alpha = (1 - confidence) / 2
    low = compute_beta_quantile(alpha, total, n - total + 1) if total > NOISE else 0.0
    high = compute_beta_quantile(1 - alpha, total + 1, n - total) if total < n - NOISE else 1.0
    return low, high


def compute_t_interval(mean: float, stdev: float | None, n: int, confidence: float) -> Interval:
    """Compute Student's interval, or the reason why it is missing."""
    if n < SMALLEST_T:
        why = f"{n} scores without bounds: {SMALLEST_T} are needed, or bounds"
        return Interval(mean, None, None, n, confidence, reason=why)
    if not stdev:
        # The width would be 0, a certainty that no set of samples supports.
        return Interval(mean, None, None, n, confidence, reason="all scores are equal: no spread")
    error = stdev / math.sqrt(n)
    away = compute_student_quantile((1 + confidence) / 2, n - 1) * error
    at_least = mean - compute_student_quantile(confidence, n - 1) * error
    return Interval(mean, mean - away, mean + away, n, confidence, "t", at_least)


def is_within(lowest: float, highest: float, bounds: Bounds) -> bool:
    """Whether scores are within bounds, up to rounding errors of weighted sums."""
    slack = NOISE * (bounds[1] - bounds[0])
    return bounds[0] - slack <= lowest and highest <= bounds[1] + slack


def check_confidence(confidence: float) -> float:
    """Raise `ConfigError` for a confidence that is not between 0.5 and 1."""
    # A one-sided bound is a limit of the two-sided interval of 2c - 1, which must be above 0.
    if not 0.5 < confidence < 1:
        raise ConfigError(
            f"confidence is {confidence!r}, not between 0.5 and 1", hint="0.95 is usual"
        )
    return confidence


def check_bounds(bounds: Bounds) -> Bounds:
    """Raise `ConfigError` for bounds that are not finite and ascending."""
    low, high = (check_finite(bound, "a bound") for bound in bounds)
    if not low < high:
        raise ConfigError(f"bounds are {bounds}: the first must be below the second")
    return low, high
