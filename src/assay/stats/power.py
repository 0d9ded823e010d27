"""The power of a comparison: the true difference that its test finds with a chance of 80 %.

Computed for the test that is used. Where scores are 0 or 1 a true fall also adds noise: some of
the samples that passed now fail at random. Elsewhere all scores are assumed to fall alike.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from assay.types import NOISE

from .distributions import compute_student_quantile
from .paired_tests import compute_stdev, find_fewest_pairs
from .statistics import check_confidence

_POWER = 0.8
# Up to this many pairs the power of the sign test is summed exactly; above it the normal
# approximation is close.
_MOST_EXACT = 2_000


@dataclass(frozen=True, slots=True)
class BinaryScores:
    """Scores that are all either `low` or `high`, such as 0 and 1."""

    low: float
    high: float
    mean_b: Sequence[float]
    """The mean of each sample in the second run."""

    repeats: tuple[float, float]
    """The harmonic mean of the numbers of repeats of the samples, for each run."""

    equal: bool
    """Whether every sample has equally many repeats on both sides."""


def detectable_difference(
    differences: Sequence[float], *, confidence: float = 0.95
) -> float | None:
    """Return the smallest true mean difference that a set like this detects with 80 % power.

    Estimated from the observed differences. None when nothing differs, or with too few pairs to
    detect any difference.
    """
    return find_detectable(differences, None, confidence=confidence)


def find_detectable(
    differences: Sequence[float], scores: BinaryScores | None, *, confidence: float
) -> float | None:
    """Return the detectable difference, using the scores where they have two values only."""
    check_confidence(confidence)
    n = len(differences)
    sizes = [abs(d) for d in differences if abs(d) > NOISE]
    if n < find_fewest_pairs(confidence) or not sizes:
        return None
    largest = max(sizes)
    single = scores is None or (scores.equal and scores.repeats == (1.0, 1.0))
    if single and largest - min(sizes) <= NOISE * largest:
        # The share that differs is uncertain in a small set: shrink it a little towards one half.
        noise = (len(sizes) + 1) / (n + 2)
        falling = rising = 1 - noise / 2
        if scores is not None:
            # The share of high scores in the second run.
            mean = math.fsum(scores.mean_b) / len(scores.mean_b)
            falling = min(max((mean - scores.low) / (scores.high - scores.low), 0.0), 1.0)
            rising = 1 - falling
        turns = (_find_detectable_turn(n, noise, part, confidence) for part in (falling, rising))
        return max((turn * largest for turn in turns if turn is not None), default=None)
    # Where few samples differ, the spread alone suggests more power than the test has.
    floor = find_fewest_pairs(confidence) * math.fsum(sizes) / len(sizes) / n
    by_spread = _find_by_spread(differences, scores, confidence)
    return None if by_spread is None else max(by_spread, floor)


def _find_detectable_turn(n: int, noise: float, turning: float, confidence: float) -> float | None:
    """Return the detectable fall of the share `turning`, when a part of it changes sides."""
    noise = min(noise, 2 * turning, 2 * (1 - turning))
    if turning <= 0:
        return None
    both = turning - noise / 2

    def is_shown(part: float) -> bool:
        against = noise / 2 + both * part
        return _compute_sign_test_power(n, against, noise / 2 * (1 - part), confidence) >= _POWER

    part = _find_smallest(is_shown)
    return None if part is None else part * turning


def _compute_sign_test_power(n: int, losses: float, wins: float, confidence: float) -> float:
    """Return the power of the exact sign test for these shares of losses and wins in n pairs."""
    differing = min(losses + wins, 1.0)
    alpha = 1 - confidence
    if n > _MOST_EXACT:
        from statistics import NormalDist

        critical = NormalDist().inv_cdf(1 - alpha / 2)
        away = (losses - wins) * math.sqrt(n) - critical * math.sqrt(differing)
        return NormalDist().cdf(away / math.sqrt(max(differing - (losses - wins) ** 2, NOISE)))
    tail = _WinTail(wins / differing)
    power = 0.0
    for most in _list_most_wins(n, alpha):
        tail.add_pair()
        if most > tail.most:
            tail.allow_win()
        pairs = tail.pairs
        # By logarithms: the binomial coefficients of n = 2000 overflow a float.
        chance = math.lgamma(n + 1) - math.lgamma(pairs + 1) - math.lgamma(n - pairs + 1)
        chance += pairs * math.log(differing)
        if pairs < n:
            chance += (n - pairs) * math.log1p(-differing) if differing < 1 else -math.inf
        power += math.exp(chance) * tail.chance
    return power


class _WinTail:
    """The chance of at most `most` wins in a growing number of pairs.

    Each step takes a few operations: the chances follow from those of one pair or one win fewer.
    """

    def __init__(self, share: float) -> None:
        self.pairs = 0
        self.most = -1
        self.chance = 0.0
        self._share = share
        self._exactly = 0.0

    def add_pair(self) -> None:
        self.pairs += 1
        if self.most >= 0:
            self.chance -= self._share * self._exactly
            self._exactly *= (1 - self._share) * self.pairs / (self.pairs - self.most)

    @property
    def next_chance(self) -> float:
        """The chance of exactly one win more than `most`."""
        if self.most < 0:
            return (1 - self._share) ** self.pairs
        odds = self._share / (1 - self._share)
        return self._exactly * odds * (self.pairs - self.most) / (self.most + 1)

    def allow_win(self) -> None:
        self._exactly = self.next_chance
        self.chance += self._exactly
        self.most += 1


@lru_cache(maxsize=8)
def _list_most_wins(n: int, alpha: float) -> list[int]:
    """Return the most wins with which the test is significant, for 1 to n differing pairs.

    -1 where not even 0 wins are few enough.
    """
    listed = []
    tail = _WinTail(0.5)
    for _ in range(n):
        tail.add_pair()
        # One more pair allows at most one more win, so each step continues from the last.
        if 2 * (tail.chance + tail.next_chance) <= alpha + NOISE:
            tail.allow_win()
        listed.append(tail.most)
    return listed


def _find_smallest(is_shown: Callable[[float], bool]) -> float | None:
    """Return the smallest number up to 1 for which it is shown, by bisection; None for none."""
    if not is_shown(1.0):
        return None
    low, high = 0.0, 1.0
    # 12 halvings are within 1/4096, finer than any report shows.
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if is_shown(middle) else (middle, high)
    return high


def _find_by_spread(
    differences: Sequence[float], scores: BinaryScores | None, confidence: float
) -> float | None:
    n = len(differences)
    significant = compute_student_quantile((1 + confidence) / 2, n - 1) / math.sqrt(n)
    powerful = compute_student_quantile(_POWER, n - 1) / math.sqrt(n)
    if scores is None:
        return (significant + powerful) * compute_stdev(differences)
    width = scores.high - scores.low
    # One repeat more or less is the smallest step that the mean difference can take.
    step = 1 / (n * max(scores.repeats))
    found = []
    for end, sign in ((scores.low, 1), (scores.high, -1)):
        b = [sign * (mean - end) / width for mean in scores.mean_b]
        a = [y - sign * d / width for y, d in zip(b, differences, strict=True)]
        fall = _Fall(a, b, scores)

        def is_shown(part: float, fall: _Fall = fall) -> bool:
            error = significant * fall.compute_assumed_spread(
                part
            ) + powerful * fall.compute_spread(part)
            return part * fall.mean_b >= error + step

        part = _find_smallest(is_shown)
        if part is not None:
            found.append(part * fall.mean_b * width)
    return max(found, default=None)


class _Fall:
    """The spread of the differences when each passing repeat of b fails with some chance."""

    def __init__(self, a: list[float], b: list[float], scores: BinaryScores) -> None:
        n = len(b)
        self._scores = scores
        self._mean_a, self.mean_b = math.fsum(a) / n, math.fsum(b) / n
        self._squares_a = math.fsum(x * x for x in a) / n
        self._squares_b = math.fsum(y * y for y in b) / n
        self._products = math.fsum(x * y for x, y in zip(a, b, strict=True)) / n
        self._whole = n / (n - 1)

    def compute_spread(self, part: float) -> float:
        """Return the spread of the differences when this part of the passes fails."""
        stays = 1 - part
        squares = stays**2 * self._squares_b - 2 * stays * self._products + self._squares_a
        mean = stays * self.mean_b - self._mean_a
        noise = self.mean_b * part * stays / self._scores.repeats[1]
        return math.sqrt(max((squares - mean * mean) * self._whole + noise, 0.0))

    def compute_assumed_spread(self, part: float) -> float:
        """Return the spread that the test assumes: with unequal repeats, of pooled repeats."""
        if self._scores.equal:
            return self.compute_spread(part)
        in_a, in_b = self._scores.repeats
        both, stays = in_a + in_b, 1 - part
        mean = (in_a * self._mean_a + in_b * stays * self.mean_b) / both
        squares = (
            in_a**2 * self._squares_a
            + 2 * in_a * in_b * stays * self._products
            + in_b**2 * stays**2 * self._squares_b
            + in_b * self.mean_b * part * stays
        ) / both**2
        pooled = max(mean - squares, 0.0) * both / (both - 1)
        return max(math.sqrt(pooled * both / (in_a * in_b)), self.compute_spread(part))
