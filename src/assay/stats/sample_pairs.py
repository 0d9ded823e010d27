"""The paired scores and metrics of two runs."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Literal

from assay.errors import ConfigError
from assay.types import NOISE

from .paired_tests import SignFlipTest, difference_interval, sign_flip_test
from .permutation import RepeatPools
from .power import BinaryScores, find_detectable
from .result_types import average
from .statistics import Bounds, Interval, is_within


class PairedScores:
    """The score, or one metric, of the samples that have it in both runs."""

    def __init__(self) -> None:
        self.a, self.b = array("d"), array("d")
        """The means of each pair."""

        self.unequal = 0
        """Pairs with more repeats on one side."""

        self._equal = array("d")
        self._pools = RepeatPools()
        self._values: set[float] | None = set()
        # Samples by their numbers of repeats in a and in b.
        self._counts: Counter[tuple[int, int]] = Counter()

    def add(self, a: Sequence[float], b: Sequence[float]) -> None:
        """Add one sample by the scores of its repeats, at least one on each side."""
        in_a, in_b = len(a), len(b)
        # Without repeats, which is the usual case, the score is its own mean.
        mean_a = a[0] if in_a == 1 else average(a)
        mean_b = b[0] if in_b == 1 else average(b)
        if mean_a is None or mean_b is None:
            raise ValueError("a pair needs a score on both sides")
        self.a.append(mean_a)
        self.b.append(mean_b)
        self._counts[in_a, in_b] += 1
        if self._values is not None:
            # More than two different scores: the power is not computed for binary scores.
            self._values.update(a, b)
            if len(self._values) > 2:
                self._values = None
        if in_a == in_b:
            self._equal.append(round_noise(mean_b - mean_a))
        else:
            self.unequal += 1
            self._pools.add(a, b)

    @cached_property
    def differences(self) -> "array[float]":
        """b minus a of each pair. Cached: read it after the last pair is added."""
        return array("d", (round_noise(b - a) for a, b in zip(self.a, self.b, strict=True)))

    @property
    def mean_a(self) -> float | None:
        return average(self.a)

    @property
    def mean_b(self) -> float | None:
        return average(self.b)

    def find_repeats(self, side: Literal[0, 1]) -> tuple[int, int] | None:
        """Return the fewest and the most scored repeats of a sample, in a or in b."""
        counts = [each[side] for each in self._counts]
        return (min(counts), max(counts)) if counts else None

    @property
    def movable(self) -> int:
        """Samples that can differ: no test can show more than if all of them fell."""
        return sum(d != 0 for d in self._equal) + self._pools.varied

    def test(self, seed: int) -> SignFlipTest:
        """Test whether the difference is chance.

        With more repeats on one side the larger p-value of two tests is used. Flipped signs alone
        mistake the longer tail of the side with fewer repeats for a change; permuted repeats alone
        ignore that other samples could have been drawn.
        """
        flipped = sign_flip_test(self.differences, seed=seed)
        if not self.unequal or flipped.p_value is None:
            return flipped
        dealt = self._pools.test(self._equal, seed=seed)
        return max(flipped, dealt, key=lambda test: test.p_value or 0.0)

    def interval(self, confidence: float, bounds: Bounds | None) -> Interval:
        """Compute the mean difference with its interval."""
        low, high = bounds or (0.0, 1.0)
        # The largest difference possible, None when the scale is unknown.
        scale: float | None = high - low
        lowest = min(chain(self.a, self.b), default=low)
        highest = max(chain(self.a, self.b), default=high)
        if not is_within(lowest, highest, (low, high)):
            if bounds is not None:
                raise ConfigError(
                    f"scores from {lowest!r} to {highest!r} are outside the bounds {bounds}",
                    where="bounds",
                    hint="give the lowest and highest score that is possible",
                )
            scale = None
        return difference_interval(self.differences, confidence=confidence, scale=scale)

    def detectable(self, confidence: float) -> float | None:
        """Compute the smallest true difference that this set detects with 80 % power."""
        scores = None
        if self._values is not None and len(self._values) == 2:
            scores = BinaryScores(
                low=min(self._values),
                high=max(self._values),
                mean_b=self.b,
                repeats=(self._average_repeats(0), self._average_repeats(1)),
                equal=not self.unequal,
            )
        return find_detectable(self.differences, scores, confidence=confidence)

    def _average_repeats(self, side: int) -> float:
        """Return the harmonic mean of the numbers of repeats on one side."""
        return len(self.a) / sum(count / each[side] for each, count in self._counts.items())


class PairedMetrics:
    """The metrics of two runs, in bounded memory."""

    # Metric names come from scorers: a name with a counter in it would fill the memory.
    MOST_NAMES = 50
    MOST_VALUES = 4_000_000

    def __init__(self) -> None:
        self.left_out = 0
        """Values of metrics beyond the first names, or of all where there are too many values."""

        self.pairs: dict[str, PairedScores] = {}
        """The metrics that samples have in both runs, by name."""

        self._names: dict[str, int] = {}
        self._only_b: set[str] = set()
        self._values = 0

    def keep(self, values: Mapping[str, Sequence[float]]) -> list[float]:
        """Encode the metrics of a sample of a as plain numbers, for `add` to decode."""
        kept: list[float] = []
        for name, found in values.items():
            self._count(len(found))
            if name not in self._names and len(self._names) == self.MOST_NAMES:
                self.left_out += len(found)
            elif not self.are_too_many:
                place = self._names.setdefault(name, len(self._names))
                kept += [place, len(found), *found]
        return kept

    def add(self, kept: Sequence[float], values: Mapping[str, Sequence[float]]) -> None:
        """Pair the metrics of a sample of b with the encoded ones of the same sample in a."""
        # For each metric: the index of its name, the number of values, the values.
        before, start = {}, 0
        while start < len(kept):
            first, count = start + 2, int(kept[start + 1])
            before[int(kept[start])] = kept[first : first + count]
            start = first + count
        for name, found in values.items():
            self._count(len(found))
            place = self._names.get(name)
            if place is None and len(self._only_b) < self.MOST_NAMES:
                self._only_b.add(name)
            if place in before and not self.are_too_many:
                if name not in self.pairs:
                    self.pairs[name] = PairedScores()
                self.pairs[name].add(before[place], found)

    def _count(self, values: int) -> None:
        self._values += values
        if self.are_too_many:
            # Drop all: metrics of the first samples only would be biased towards those.
            self.pairs.clear()
            self.left_out = self._values

    @property
    def are_too_many(self) -> bool:
        return self._values > self.MOST_VALUES

    @property
    def unpaired(self) -> list[str]:
        """Names of metrics that no sample has in both runs."""
        if self.are_too_many:
            return []
        return sorted((self._names.keys() | self._only_b) - self.pairs.keys())


def round_noise(difference: float) -> float:
    """Round rounding errors of float sums to 0.0."""
    return 0.0 if abs(difference) <= NOISE else difference
