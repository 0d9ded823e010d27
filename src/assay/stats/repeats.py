"""pass@k and pass^k: the chances that one of k repeats succeeds, and that all do."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from assay.errors import ConfigError
from assay.types import NOISE

from .bounds import Direction
from .result_types import check_finite
from .statistics import Interval, check_confidence, compute_beta_interval

PassRateKind = Literal["pass@k", "pass^k"]

_USUAL_REPEATS = (1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100)


@dataclass(frozen=True, slots=True)
class PassRate:
    """pass@k or pass^k over the samples that have k judged repeats."""

    kind: PassRateKind
    k: int
    threshold: float
    """A repeat succeeds when its score is at least this."""

    interval: Interval
    """Its mean is the rate, its n the number of samples."""

    left_out: int
    """Samples with fewer than k judged repeats."""

    unjudged: int
    """Repeats that were not judged, over all samples: neither successes nor failures."""

    reason: str | None = None
    """Why the rate is None."""

    @property
    def value(self) -> float | None:
        return self.interval.mean


def pass_at_k(
    samples: Iterable[Sequence[float | None]], k: int, *, threshold: float = 1.0
) -> PassRate:
    """Estimate the chance that one of k repeats succeeds, without bias: 1 - C(n-c,k)/C(n,k).

    Each sample is a list of the scores of its repeats, None for an unscored one.
    """
    return _count_repeats(samples, threshold).rate("pass@k", k)


def pass_hat_k(
    samples: Iterable[Sequence[float | None]], k: int, *, threshold: float = 1.0
) -> PassRate:
    """Estimate the chance that all of k repeats succeed, without bias: C(c,k)/C(n,k).

    Each sample is a list of the scores of its repeats, None for an unscored one.
    """
    return _count_repeats(samples, threshold).rate("pass^k", k)


def _count_repeats(samples: Iterable[Sequence[float | None]], threshold: float) -> "RepeatCounts":
    counts = RepeatCounts(threshold)
    for scores in samples:
        counts.add(scores)
    return counts


class RepeatCounts:
    """Counts of samples by judged repeats and successes: sufficient for both rates."""

    def __init__(self, threshold: float = 1.0, direction: Direction = "max") -> None:
        self.threshold = check_finite(threshold, "the threshold of a success")
        self._sign = 1 if direction == "max" else -1
        self.unjudged = 0
        self.most = 0
        """The most repeats, judged or not, that a sample had."""

        self._samples: Counter[tuple[int, int]] = Counter()

    def add(self, scores: Sequence[float | None]) -> None:
        judged = successes = 0
        # Weighted metrics may sum to 0.9999999999999999, which must count as 1.0.
        sign, enough = self._sign, self._sign * self.threshold - NOISE
        for score in scores:
            if score is not None:
                judged += 1
                successes += sign * check_finite(score, "a score") >= enough
        self.unjudged += len(scores) - judged
        self.most = max(self.most, len(scores))
        self._samples[judged, successes] += 1

    def add_singles(self, scores: Sequence[float]) -> None:
        """Add samples with one judged result each. The scores must be finite."""
        sign, enough = self._sign, self._sign * self.threshold - NOISE
        successes = len([score for score in scores if sign * score >= enough])
        self.most = max(self.most, 1)
        self._samples[1, 1] += successes
        self._samples[1, 0] += len(scores) - successes

    def choose_ks(self) -> tuple[int, ...]:
        """Return the usual values of k up to the most repeats of a sample, and that number."""
        return tuple(sorted({k for k in _USUAL_REPEATS if k < self.most} | {self.most} - {0}))

    def rate(self, kind: PassRateKind, k: int, *, confidence: float = 0.95) -> PassRate:
        """Compute the rate with its interval. It is None when no sample has k judged repeats."""
        if k < 1:
            raise ConfigError(f"k is {k!r}, but at least one repeat is needed", where=kind)
        check_confidence(confidence)
        terms, counted, left_out = [], 0, 0
        for (judged, successes), samples in self._samples.items():
            if judged < k:
                left_out += samples
                continue
            counted += samples
            # Integers until the division: Python divides integers of any size with correct
            # rounding.
            if kind == "pass@k":
                chance = 1 - math.comb(judged - successes, k) / math.comb(judged, k)
            else:
                chance = math.comb(successes, k) / math.comb(judged, k)
            terms.append(samples * chance)
        if counted:
            interval, reason = compute_beta_interval(math.fsum(terms), counted, confidence), None
        else:
            most = max((judged for judged, _ in self._samples), default=None)
            reason = f"no sample has {k} judged repeats (the most is {most})"
            if most is None:
                reason = "the run has no samples"
            interval = Interval(None, None, None, 0, confidence, reason=reason)
        return PassRate(kind, k, self.threshold, interval, left_out, self.unjudged, reason)
