"""Two runs side by side, sample by sample: what got worse, and whether it could be chance."""

import heapq
import math
from array import array
from collections.abc import Iterable, Iterator
from enum import StrEnum

from assay.errors import ConfigError

from .figures import Figure, interval_words
from .paired import (
    detectable_difference,
    difference_interval,
    fewest_that_can_tell,
    sign_flip_test,
)
from .results import NOISE, ResultLike, SampleMean, per_sample_means
from .statistics import Bounds, Interval, checked_bounds, checked_confidence, within
from .wording import WIDTH, labelled, number, padded, plain, plural

_ID_WIDTH = 44


class Conclusion(StrEnum):
    """What a comparison shows about the second run."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE_SHOWN = "no difference shown"
    TOO_FEW = "too few to tell"


class Pair(Figure):
    """One sample on both sides, repeats averaged."""

    sample_id: str
    a: float
    b: float

    @property
    def difference(self) -> float:
        return self.b - self.a


class Listed(Figure):
    """Samples that could not be paired: how many, and the first of them."""

    count: int
    ids: tuple[str, ...]

    @property
    def cut_short(self) -> bool:
        return len(self.ids) < self.count


class Comparison(Figure):
    """Run `b` against run `a`, the baseline. Differences are b minus a: below 0 is worse."""

    samples_a: int
    samples_b: int
    pairs: int
    """Samples judged on both sides: all that the numbers below are made of."""

    missing_in_a: Listed
    missing_in_b: Listed
    not_judged_in_a: Listed
    """Samples on both sides without a judged result in a (some of them neither in b)."""

    not_judged_in_b: Listed
    unjudged_pairs: int
    """Samples on both sides that are not judged on at least one."""

    baseline_judged: int
    """Samples judged in a, paired or not."""

    wins: int
    losses: int
    ties: int
    mean_a: float | None
    mean_b: float | None
    difference: Interval
    p_value: float | None
    test: str
    confidence: float
    detectable: float | None
    """The smallest true mean difference that a set like this shows four times out of five."""

    regressions: tuple[Pair, ...]
    """Samples that got worse, the worst first; `losses` says how many there are in all."""

    improvements: tuple[Pair, ...]

    @property
    def conclusion(self) -> Conclusion:
        # The smallest p that so few pairs can give is already above the level asked for.
        if self.pairs < fewest_that_can_tell(self.confidence):
            return Conclusion.TOO_FEW
        mean, p_value = self.difference.mean, self.p_value
        if mean is None or p_value is None or p_value > 1 - self.confidence + NOISE:
            return Conclusion.NO_DIFFERENCE_SHOWN
        return Conclusion.WORSE if mean < 0 else Conclusion.BETTER

    def lines(self) -> list[str]:
        """The comparison in plain lines of at most 80 columns, worst regression first."""
        return [
            *labelled("conclusion", self._conclusion_words()),
            *labelled("difference", self._difference_words()),
            *labelled("pairs", self._pairs_words()),
            *self._unpaired_lines(),
            *_pair_lines("regressions", self.regressions, self.losses),
            *_pair_lines("improvements", self.improvements, self.wins),
        ]

    def _conclusion_words(self) -> str:
        words = str(self.conclusion)
        if self.conclusion is Conclusion.TOO_FEW:
            needed = fewest_that_can_tell(self.confidence)
            return f"{words}: {plural(self.pairs, 'pair')}, and at least {needed} are needed"
        words += f" (p = {_p_words(self.p_value)}, {self.test})"
        if self.conclusion is Conclusion.NO_DIFFERENCE_SHOWN and self.detectable is not None:
            words += f"; a difference below {number(self.detectable)} may go unseen in this set"
        return words

    def _difference_words(self) -> str:
        words = interval_words(self.difference, signed=True)
        if not self.pairs:
            return words
        return f"{words} (mean {number(self.mean_a)} to {number(self.mean_b)})"

    def _pairs_words(self) -> str:
        return f"{self.pairs}: {self.wins} better, {self.losses} worse, {self.ties} the same"

    def _unpaired_lines(self) -> list[str]:
        named = {
            "missing in the second run": self.missing_in_b,
            "missing in the first run": self.missing_in_a,
            "not judged in the second run": self.not_judged_in_b,
            "not judged in the first run": self.not_judged_in_a,
        }
        lines = []
        for words, listed in named.items():
            if listed.count:
                lines += labelled("left out", f"{listed.count} {words}")
                lines += [f"  {plain(sample_id, WIDTH - 2)}" for sample_id in listed.ids]
                if listed.cut_short:
                    lines.append(f"  and {listed.count - len(listed.ids)} more")
        return lines


def compare(
    a: Iterable[ResultLike],
    b: Iterable[ResultLike],
    *,
    confidence: float = 0.95,
    bounds: Bounds | None = None,
    seed: int = 0,
    limit: int | None = 20,
) -> Comparison:
    """Compare run `b` with the baseline `a`, paired by sample id, repeats averaged first.

    Keeps one number for each sample of `a` and each pair. At most `limit` samples are named in
    each list (None: all); the counts beside the lists are always complete.
    """
    checked_confidence(confidence)
    if bounds is not None:
        checked_bounds(bounds)
    if limit is not None and limit < 0:
        raise ConfigError(f"limit is {limit!r}, not 0 or more", where="compare()")
    pairing = _Pairing(limit)
    for mean in per_sample_means(a):
        pairing.add_a(mean)
    for mean in per_sample_means(b):
        pairing.add_b(mean)
    return pairing.comparison(confidence, bounds, seed)


class _Names:
    """Counts samples and keeps the first few ids."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._count = 0
        self._ids: list[str] = []

    def add(self, sample_id: str) -> None:
        self._count += 1
        if self._limit is None or len(self._ids) < self._limit:
            self._ids.append(sample_id)

    def listed(self) -> Listed:
        return Listed(count=self._count, ids=tuple(self._ids))


class _Pairing:
    """Joins two runs by sample id."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._of_a: dict[str, float | None] = {}
        self._seen_b: set[str] = set()
        self._ids: list[str] = []
        self._a, self._b = array("d"), array("d")
        self._missing_in_a = _Names(limit)
        self._not_judged_in_a, self._not_judged_in_b = _Names(limit), _Names(limit)
        self._unjudged = 0

    def add_a(self, sample: SampleMean) -> None:
        if sample.sample_id in self._of_a:
            raise _scattered(sample.sample_id, "first")
        self._of_a[sample.sample_id] = sample.mean

    def add_b(self, sample: SampleMean) -> None:
        sample_id, mean_b = sample.sample_id, sample.mean
        if sample_id in self._seen_b:
            raise _scattered(sample_id, "second")
        self._seen_b.add(sample_id)
        if sample_id not in self._of_a:
            self._missing_in_a.add(sample_id)
            return
        mean_a = self._of_a[sample_id]
        if mean_a is None:
            self._not_judged_in_a.add(sample_id)
        if mean_b is None:
            self._not_judged_in_b.add(sample_id)
        if mean_a is None or mean_b is None:
            self._unjudged += 1
            return
        self._ids.append(sample_id)
        self._a.append(mean_a)
        self._b.append(mean_b)

    def comparison(self, confidence: float, bounds: Bounds | None, seed: int) -> Comparison:
        differences = array("d", (_settled(b - a) for a, b in zip(self._a, self._b, strict=True)))
        test = sign_flip_test(differences, seed=seed)
        pairs = len(differences)
        wins, losses = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
        return Comparison(
            samples_a=len(self._of_a),
            samples_b=len(self._seen_b),
            pairs=pairs,
            missing_in_a=self._missing_in_a.listed(),
            missing_in_b=self._missing_in_b(),
            not_judged_in_a=self._not_judged_in_a.listed(),
            not_judged_in_b=self._not_judged_in_b.listed(),
            unjudged_pairs=self._unjudged,
            baseline_judged=sum(mean is not None for mean in self._of_a.values()),
            wins=wins,
            losses=losses,
            ties=pairs - wins - losses,
            mean_a=math.fsum(self._a) / pairs if pairs else None,
            mean_b=math.fsum(self._b) / pairs if pairs else None,
            difference=difference_interval(
                differences, confidence=confidence, scale=self._scale(bounds)
            ),
            p_value=test.p_value,
            test=test.method,
            confidence=confidence,
            detectable=detectable_difference(differences, confidence=confidence),
            regressions=self._most_changed(differences, sign=-1),
            improvements=self._most_changed(differences, sign=1),
        )

    def _scale(self, bounds: Bounds | None) -> float | None:
        """The largest difference possible, None when the scores' scale is not known."""
        low, high = bounds or (0.0, 1.0)
        if not self._a:
            return high - low
        lowest = min(min(self._a), min(self._b))
        highest = max(max(self._a), max(self._b))
        if within(lowest, highest, (low, high)):
            return high - low
        if bounds is not None:
            raise ConfigError(
                f"scores from {lowest!r} to {highest!r} are outside the bounds {bounds}",
                where="bounds",
                hint="give the lowest and highest score that is possible",
            )
        return None

    def _missing_in_b(self) -> Listed:
        names = _Names(self._limit)
        for sample_id in self._of_a:
            if sample_id not in self._seen_b:
                names.add(sample_id)
        return names.listed()

    def _most_changed(self, differences: "array[float]", *, sign: int) -> tuple[Pair, ...]:
        changed = self._changed(differences, sign)
        # The id decides between equals, so that the order never depends on that of the runs.
        count = len(differences) if self._limit is None else self._limit
        return tuple(
            Pair(sample_id=sample_id, a=self._a[place], b=self._b[place])
            for _, sample_id, place in heapq.nsmallest(count, changed)
        )

    def _changed(self, differences: "array[float]", sign: int) -> Iterator[tuple[float, str, int]]:
        for place, difference in enumerate(differences):
            if difference * sign > 0:
                yield -abs(difference), self._ids[place], place


def _settled(difference: float) -> float:
    return 0.0 if abs(difference) <= NOISE else difference


def _scattered(sample_id: str, run: str) -> ConfigError:
    return ConfigError(
        f"the results of sample {sample_id!r} in the {run} run are not next to each other",
        where="compare()",
        hint="give each run's results ordered by sample, then by repeat",
    )


def _p_words(p_value: float | None) -> str:
    if p_value is None:
        return "unknown"
    return "less than 0.0001" if p_value < 0.0001 else f"{p_value:.4f}"


def _pair_lines(title: str, pairs: tuple[Pair, ...], count: int) -> list[str]:
    if not count:
        return []
    lines = [f"{title} ({count})"]
    for pair in pairs:
        numbers = (
            f"{number(pair.a):>9} -> {number(pair.b):>9}  {number(pair.difference, signed=True):>9}"
        )
        lines.append(f"  {padded(pair.sample_id, _ID_WIDTH)}{numbers}")
    if len(pairs) < count:
        lines.append(f"  and {count - len(pairs)} more")
    return lines
