"""A permutation test for samples with unequal numbers of repeats.

The mean of one repeat varies more than the mean of twenty, even if nothing changed. So flipping
the sign of such a difference is not a valid test. Without a change, though, the repeats of a
sample are exchangeable between the sides: the test reassigns them at random.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.types import NOISE

from .paired_tests import SignFlipTest, choose_draws, draw_flipped_sums

if TYPE_CHECKING:
    import numpy

    from .paired_tests import FloatArray

# Random numbers for one test. Beyond this the normal approximation is used.
_MAX_PERMUTATION_STEPS = 20_000_000

_MIN_PERMUTATION_DRAWS = 1_000
_MAX_POOL_STEPS = _MAX_PERMUTATION_STEPS // _MIN_PERMUTATION_DRAWS
_DEALS_AT_ONCE = 1_000_000

# Repeats of a and of b, the lower and the higher score, and how many repeats have the higher.
# Samples of one kind have the same distribution, so they are drawn together.
_PoolKind = tuple[int, int, float, float, int]


class RepeatPools:
    """The pooled repeats of samples with more repeats on one side."""

    def __init__(self) -> None:
        self.varied = 0
        """Samples whose repeats are not all equal."""

        self._sum = 0.0
        self._variance = 0.0
        self._kinds: Counter[_PoolKind] = Counter()
        self._pools: list[tuple[tuple[float, ...], int]] | None = []
        self._steps = 0

    def add(self, a: Sequence[float], b: Sequence[float]) -> None:
        """Add one sample, with its scores in a and in b."""
        self._sum += math.fsum(b) / len(b) - math.fsum(a) / len(a)
        values = sorted((*a, *b))
        if values[-1] - values[0] <= NOISE:
            return
        self.varied += 1
        n = len(values)
        mean = math.fsum(values) / n
        spread = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
        self._variance += spread * n / (len(a) * len(b))
        if self._pools is None:
            return
        highs = values.count(values[-1])
        if values.count(values[0]) + highs == len(values):
            kind = (len(a), len(b), values[0], values[-1], highs)
            self._steps += (min(len(a), len(b)) + 1) if kind not in self._kinds else 0
            self._kinds[kind] += 1
        else:
            self._steps += min(len(a), len(b))
            # The side with fewer repeats comes first: drawing those takes fewer steps.
            few, many, sign = (a, b, 1) if len(a) <= len(b) else (b, a, -1)
            self._pools.append(((*few, *many), sign * len(few)))
        if self._steps > _MAX_POOL_STEPS:
            # Too many for the minimum of draws; the variance is enough for the approximation.
            self._pools = None
            self._kinds.clear()

    def test(self, equal: Sequence[float], *, seed: int = 0) -> SignFlipTest:
        """Test the sum of differences: the one-sided p-value of its side, doubled.

        `equal` are the differences of the samples with equal numbers of repeats, whose signs are
        flipped.
        """
        moved = [d for d in equal if abs(d) > NOISE]
        if not self.varied and not moved:
            return SignFlipTest(1.0, "no differences")
        observed = self._sum + math.fsum(moved)
        draws = min(choose_draws(moved), _MAX_PERMUTATION_STEPS // max(self._steps, 1))
        if self._pools is None or draws < _MIN_PERMUTATION_DRAWS:
            deviation = math.sqrt(self._variance + math.fsum(d * d for d in moved))
            p_value = math.erfc(abs(observed) / deviation / math.sqrt(2))
            return SignFlipTest(p_value, "permutation of repeats, normal approximation")
        import numpy

        generator = numpy.random.default_rng(seed)
        sums = numpy.zeros(draws)
        if moved:
            sums += draw_flipped_sums(moved, draws, generator)
        for kind, count in sorted(self._kinds.items()):
            sums += _draw_dealt_sums(kind, count, draws, generator)
        for values, few in self._pools:
            sums += _draw_differences(values, few, draws, generator)
        slack = NOISE * max(1.0, abs(observed))
        beyond = int((sums <= observed + slack if observed < 0 else sums >= observed - slack).sum())
        # The observed assignment is one of the possible draws: p is never 0.
        p_value = min(1.0, 2 * (beyond + 1) / (draws + 1))
        return SignFlipTest(p_value, f"permutation of repeats, {draws} draws, seed {seed}")


def _draw_dealt_sums(
    kind: _PoolKind, count: int, draws: int, generator: "numpy.random.Generator"
) -> "FloatArray":
    """Draw sums of the differences of `count` samples of one kind."""
    import numpy

    # The number of high scores on one side is hypergeometric.
    in_a, in_b, low, high, highs = kind
    everywhere = math.comb(in_a + in_b, in_a)
    differences, chances = [], []
    for highs_a in range(max(0, highs - in_b), min(in_a, highs) + 1):
        ways = math.comb(highs, highs_a) * math.comb(in_a + in_b - highs, in_a - highs_a)
        chances.append(ways / everywhere)
        differences.append((high - low) * ((highs - highs_a) / in_b - highs_a / in_a))
    # For many samples count the outcomes instead of drawing each sample.
    if count > len(differences):
        counts = generator.multinomial(count, chances, draws)
        return numpy.asarray(counts @ numpy.asarray(differences))
    sums = numpy.zeros(draws)
    for _ in range(count):
        sums += generator.choice(differences, draws, p=chances)
    return sums


def _draw_differences(
    values: tuple[float, ...], few: int, draws: int, generator: "numpy.random.Generator"
) -> "FloatArray":
    """Draw differences between the mean of `few` random values and the mean of the others."""
    import numpy

    size, count = len(values), abs(few)
    numbers = numpy.asarray(values)
    # Without replacement: a partial Fisher-Yates shuffle of many rows at once.
    drawn = numpy.zeros(draws)
    if count == 1:
        drawn = numbers[generator.integers(size, size=draws)]
    at_once = max(1, _DEALS_AT_ONCE // size)
    for start in range(0, draws if count > 1 else 0, at_once):
        part = min(at_once, draws - start)
        rows = numpy.arange(part)
        left = numpy.tile(numbers, (part, 1))
        for place in range(count):
            chosen = generator.integers(place, size, part)
            drawn[start : start + part] += left[rows, chosen]
            left[rows, chosen] = left[:, place]
    differences = (math.fsum(values) - drawn) / (size - count) - drawn / count
    return numpy.asarray(differences if few > 0 else -differences)
