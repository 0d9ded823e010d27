"""One-sided bounds for means and percentiles, and the sample sizes that they need."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from assay.errors import ConfigError

from .distributions import compute_binomial_cdf
from .result_types import check_finite
from .statistics import (
    Bounds,
    check_bounds,
    check_confidence,
    compute_beta_limits,
    is_within,
    samples_to_prove,
)

Direction = Literal["max", "min"]
"""Whether high or low values are good."""

# Beyond any dataset: report "no number is enough" instead of a number of 12 digits.
_MAX_SAMPLES_TO_PROVE = 10_000_000


@dataclass(frozen=True, slots=True)
class ScoreBounds:
    """Confidence bounds for a mean score."""

    mean: float
    lower: float
    upper: float
    """Two-sided: the mean is between the two with the stated confidence."""

    at_least: float
    at_most: float
    """One-sided: each of the two holds with the stated confidence."""


def score_bounds(
    scores: Sequence[float], *, bounds: Bounds = (0.0, 1.0), confidence: float = 0.95
) -> ScoreBounds:
    """Compute bounds for the mean of scores within `bounds`, one score for each sample.

    Clopper and Pearson's, with the sum of the scores in the place of a count: exact for scores
    at the two ends, and never too narrow for others in simulations. Raises `ConfigError` for an
    empty list, or for a score out of bounds.
    """
    check_confidence(confidence)
    low, high = check_bounds(bounds)
    if not scores:
        raise ConfigError("`scores` is empty", where="score_bounds()")
    values = [check_finite(score, "a score") for score in scores]
    if not is_within(min(values), max(values), (low, high)):
        raise ConfigError(
            f"scores from {min(values)!r} to {max(values)!r} are outside {low:g} to {high:g}",
            where="score_bounds()",
        )
    n, width = len(values), high - low
    mean = math.fsum(values) / n
    share = min(max(math.fsum((value - low) / width for value in values), 0.0), float(n))
    # A one-sided limit of confidence c is that of a two-sided interval of 2c - 1.
    limits = (
        *compute_beta_limits(share, n, confidence),
        *compute_beta_limits(share, n, 2 * confidence - 1),
    )
    return ScoreBounds(mean, *(low + width * limit for limit in limits))


def percentile_bounds(
    least: Sequence[float], most: Sequence[float], *, percent: float, confidence: float = 0.95
) -> tuple[float | None, float | None]:
    """Compute one-sided lower and upper bounds for a percentile, each a value that occurred.

    `least` and `most` are the smallest and the largest value of each sample; the same list twice
    when samples were measured once. None where there are too few samples for a bound.
    """
    check_confidence(confidence)
    share, n = _to_share(percent), len(least)
    if n != len(most):
        raise ConfigError("`least` and `most` differ in length", where="percentiles")
    if n == 0:
        return None, None
    # How many of n values fall below the percentile is binomial. Its quantiles are the smallest
    # counts that are exceeded with a chance of at most `confidence`, and of the rest.
    first, last = (
        bisect_left(range(n), level, key=lambda count: compute_binomial_cdf(count, n, share))
        for level in (1 - confidence, confidence)
    )
    last += 1
    lower = sorted(least)[first - 1] if first >= 1 else None
    upper = sorted(most)[last - 1] if last <= n else None
    return lower, upper


def rows_to_prove(
    threshold: float,
    *,
    direction: Direction = "max",
    bounds: Bounds = (0.0, 1.0),
    confidence: float = 0.95,
) -> int | None:
    """Return how many perfect samples prove that the mean meets a threshold; None if none do."""
    low, high = check_bounds(bounds)
    share = (threshold - low) / (high - low)
    return samples_to_prove(share if direction == "max" else 1 - share, confidence=confidence)


def rows_for_percentile(percent: float, *, confidence: float = 0.95) -> int | None:
    """Return how many samples an upper bound for a percentile needs; None if none are enough."""
    # The largest of n values is an upper bound unless all n fall below the percentile.
    needed = samples_to_prove(_to_share(percent), confidence=confidence)
    return needed if needed is None or needed <= _MAX_SAMPLES_TO_PROVE else None


def _to_share(percent: float) -> float:
    if not 0 < percent < 100:
        raise ConfigError(f"percent is {percent!r}, not between 0 and 100", where="percentiles")
    return percent / 100
