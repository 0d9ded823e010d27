"""Statistics of paired differences: an interval, a test, and the fewest pairs it needs."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.types import NOISE

from .distributions import compute_binomial_cdf
from .statistics import Interval, check_confidence, compute_beta_limits, compute_t_interval

if TYPE_CHECKING:
    import numpy

    FloatArray = numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]

MAX_EXACT_DIFFERENCES = 20
"""Up to this many differences the test tries all 2**n combinations of signs."""

_DRAWS = 10_000
_MIN_FLIP_DRAWS = 1_000
# Random signs for one test, which bounds its time, and for one matrix, which bounds its memory.
_SIGNS_IN_ALL = 100_000_000
# From this many differences on, those of one size are drawn together if that is much less work.
_MANY_DIFFERENCES = 10_000
_MIN_SHARED = 10
# Digits in which sizes must agree: rounding errors of means are smaller.
_SIZE_DIGITS = 12
_SIGNS_AT_ONCE = 4_000_000


@dataclass(frozen=True, slots=True)
class SignFlipTest:
    """The two-sided p-value of a mean difference, and the method that computed it."""

    p_value: float | None
    """None without pairs."""

    method: str
    """The name of the test; with random signs also the number of draws and the seed."""


def difference_interval(
    differences: Sequence[float], *, confidence: float = 0.95, scale: float | None = 1.0
) -> Interval:
    """Compute the mean of paired differences with a confidence interval.

    `scale` is the largest difference possible (1.0 for scores within 0..1), None when unknown:
    then 30 pairs are needed.
    """
    check_confidence(confidence)
    n = len(differences)
    if n == 0:
        return Interval(None, None, None, 0, confidence, reason="no sample was judged on both")
    mean = math.fsum(differences) / n
    if scale is None:
        return compute_t_interval(
            mean, compute_stdev(differences) if n > 1 else None, n, confidence
        )
    gain = math.fsum(d for d in differences if d > 0) / scale
    loss = -math.fsum(d for d in differences if d < 0) / scale
    low, high = _compute_split_limits(gain, loss, n, confidence)
    at_least = _compute_split_limits(gain, loss, n, 2 * confidence - 1)[0]
    return Interval(mean, low * scale, high * scale, n, confidence, "beta", at_least * scale)


def _compute_split_limits(
    gain: float, loss: float, n: int, confidence: float
) -> tuple[float, float]:
    """Compute the limits for gain minus loss from the beta limits of each (MOVER)."""
    # A sample cannot gain and lose at once, so the two are correlated. The correlation is that of
    # wins and losses of a whole point, where it is strongest.
    gain, loss = min(gain, float(n)), min(loss, float(n))
    gain_low, gain_high = compute_beta_limits(gain, n, confidence)
    loss_low, loss_high = compute_beta_limits(loss, n, confidence)
    up, down = gain / n, loss / n
    rest = (1 - up) * (1 - down)
    together = min(math.sqrt(up * down / rest), 1.0) if rest > 0 else 0.0

    def apart(first: float, second: float) -> float:
        return math.sqrt(first**2 + second**2 + 2 * together * first * second)

    low = up - down - apart(up - gain_low, loss_high - down)
    high = up - down + apart(gain_high - up, down - loss_low)
    return max(low, -1.0), min(high, 1.0)


def sign_flip_test(differences: Sequence[float], *, seed: int = 0) -> SignFlipTest:
    """Test whether the mean difference is chance: without a change each sign is random.

    Exact for differences of one size (then it is the sign test) and for up to 20 of any size;
    else with random signs from `seed`, so that the p-value is reproducible.
    """
    if not differences:
        return SignFlipTest(None, "no pairs")
    # A difference of 0 has no sign to flip and changes no sum.
    moved = [d for d in differences if abs(d) > NOISE]
    if not moved:
        return SignFlipTest(1.0, "no differences")
    sizes = [abs(d) for d in moved]
    if max(sizes) - min(sizes) <= NOISE * max(sizes):
        fewer = min(sum(d > 0 for d in moved), sum(d < 0 for d in moved))
        p_value = min(1.0, 2 * compute_binomial_cdf(fewer, len(moved), 0.5))
        return SignFlipTest(p_value, "sign test, exact")
    # Sums that are equal on paper differ in the last digits; they must count as equal.
    observed = abs(math.fsum(moved)) - NOISE * math.fsum(sizes)
    if len(moved) <= MAX_EXACT_DIFFERENCES:
        p_value = _try_every_sign(moved, observed)
        return SignFlipTest(p_value, "permutation test, exact")
    import numpy

    draws = choose_draws(moved)
    sums = draw_flipped_sums(moved, draws, numpy.random.default_rng(seed))
    # The observed signs are one of the possible draws: p is never 0.
    p_value = (int((numpy.abs(sums) >= observed).sum()) + 1) / (draws + 1)
    return SignFlipTest(p_value, f"permutation test, {draws} draws, seed {seed}")


def _try_every_sign(moved: Sequence[float], observed: float) -> float:
    """Return the share of all combinations of signs whose sum is at least as far from 0."""
    middle = len(moved) // 2
    first, second = _list_signed_sums(moved[:middle]), sorted(_list_signed_sums(moved[middle:]))
    # Every sum is one of the first half plus one of the second: a million sums of 20 differences
    # are counted by a thousand searches.
    beyond = sum(
        len(second) - bisect_left(second, observed - part) + bisect_right(second, -observed - part)
        for part in first
    )
    return min(1.0, beyond / (1 << len(moved)))


def _list_signed_sums(values: Sequence[float]) -> list[float]:
    sums = [0.0]
    for value in values:
        sums = [total + sign for total in sums for sign in (value, -value)]
    return sums


def choose_draws(moved: Sequence[float]) -> int:
    """Return the number of draws for these differences."""
    drawn = len(moved) if (shared := _count_sizes(moved)) is None else len(shared)
    return min(_DRAWS, max(_MIN_FLIP_DRAWS, _SIGNS_IN_ALL // max(drawn, 1)))


def _count_sizes(moved: Sequence[float]) -> list[tuple[float, int]] | None:
    """Return the sizes of many differences and how often each occurs; None if most are alone."""
    if len(moved) < _MANY_DIFFERENCES:
        return None
    import numpy

    values = numpy.abs(numpy.asarray(moved, dtype=float))
    largest = values.max()
    sizes, counts = numpy.unique(numpy.round(values / largest, _SIZE_DIGITS), return_counts=True)
    if len(sizes) * _MIN_SHARED > len(values):
        return None
    return list(zip((sizes * largest).tolist(), counts.tolist(), strict=True))


def draw_flipped_sums(
    moved: Sequence[float], draws: int, generator: "numpy.random.Generator"
) -> "FloatArray":
    """Draw sums of the differences with random signs."""
    import numpy

    if (shared := _count_sizes(moved)) is not None:
        sums = numpy.zeros(draws)
        for size, alike in shared:
            # The number of positive signs among as many random ones.
            sums += size * (2.0 * generator.binomial(alike, 0.5, draws) - alike)
        return sums
    values = numpy.asarray(moved, dtype=float)
    at_once = max(1, _SIGNS_AT_ONCE // len(values))
    sums = numpy.empty(draws)
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        # One random bit for each sign is much faster than one random number.
        drawn = generator.bytes((count * len(values) + 7) // 8)
        bits = numpy.unpackbits(numpy.frombuffer(drawn, dtype=numpy.uint8))
        signs = bits[: count * len(values)].reshape(count, len(values)).astype(float)
        sums[start : start + count] = 2 * (signs @ values) - values.sum()
    return sums


def find_fewest_pairs(confidence: float = 0.95) -> int:
    """Return how many differences, all on one side, the test needs to be significant."""
    alpha = 1 - check_confidence(confidence)
    count = 1
    while 2 * 0.5**count > alpha + NOISE:
        count += 1
    return count


def compute_stdev(values: Sequence[float]) -> float:
    """Return the root of the unbiased variance of two or more values."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
