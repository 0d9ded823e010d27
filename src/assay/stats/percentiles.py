"""Percentiles by nearest rank: always a value that occurred, never one between two."""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

from assay.errors import ConfigError

MAX_EXACT_VALUES = 4096
"""How many values `RunningPercentiles` keeps before it counts them in buckets."""

# Buckets that grow by 1 % put every value within 0.5 % of the middle of its bucket.
_GROWTH = math.log(1.01)
# Smaller values share the bucket of 0, which has no logarithm.
_SMALLEST = 1e-9


def percentile(values: Iterable[float], percent: float) -> float | None:
    """Return the smallest value that at least `percent` of 100 do not exceed; None if empty.

    `math.inf` is a value like any other: a call that never returned. Raises `ConfigError` for NaN.
    """
    ordered = sorted(_check_not_nan(value) for value in values)
    return ordered[_compute_rank(percent, len(ordered)) - 1] if ordered else None


class RunningPercentiles:
    """Percentiles of a stream in constant memory: exact up to 4096 values, within 0.5 % beyond."""

    def __init__(self) -> None:
        self.n = 0
        self._values: array[float] | None = array("d")
        self._buckets: Counter[tuple[int, int]] = Counter()
        self._low = math.inf
        self._high = -math.inf

    @property
    def exact(self) -> bool:
        return self._values is not None

    def extend(self, values: Sequence[float]) -> None:
        """Add many at once, which costs much less than one by one."""
        if not values:
            return
        # A sum finds a NaN faster than a check of each value. Opposite infinities also sum to NaN.
        if math.isnan(sum(values)):
            values = [_check_not_nan(value) for value in values]
        self.n += len(values)
        self._low = min(self._low, float(min(values)))
        self._high = max(self._high, float(max(values)))
        if self._values is not None:
            self._values.extend(values)
            if self.n <= MAX_EXACT_VALUES:
                return
            values, self._values = self._values, None
        # Equal values are common: compute the logarithm once for each.
        for value, count in Counter(values).items():
            # Tuples of sign and exponent sort like the values in the buckets.
            bucket = (0, 0)
            if math.isinf(value):
                bucket = (2, 0) if value > 0 else (-2, 0)
            elif abs(value) >= _SMALLEST:
                place = math.ceil(math.log(abs(value)) / _GROWTH)
                bucket = (1, place) if value > 0 else (-1, -place)
            self._buckets[bucket] += count

    def at(self, percent: float) -> float | None:
        """The percentile, or None when nothing was added."""
        if self._values is not None:
            ordered = sorted(self._values)
            return ordered[_compute_rank(percent, self.n) - 1] if ordered else None
        rank, seen = _compute_rank(percent, self.n), 0
        # The smallest and the largest value are kept exactly.
        if rank == 1 or rank == self.n:
            return self._low if rank == 1 else self._high
        for sign, place in sorted(self._buckets):
            seen += self._buckets[sign, place]
            if seen >= rank:
                middle = sign * math.exp((sign * place - 0.5) * _GROWTH) if sign else 0.0
                middle = math.copysign(math.inf, sign) if abs(sign) == 2 else middle
                return min(max(middle, self._low), self._high)
        raise AssertionError("the buckets hold fewer values than were added")


def _check_not_nan(value: float) -> float:
    if math.isnan(value):
        raise ConfigError("nan has no rank among values", where="percentile()")
    return float(value)


def _compute_rank(percent: float, n: int) -> int:
    if not 0 <= percent <= 100:
        raise ConfigError(f"percent is {percent!r}, not within 0..100", where="percentile()")
    # Multiply first: 95 / 100 * 100 could be above 95, and `ceil` would return 96.
    return max(1, math.ceil(percent * n / 100))
