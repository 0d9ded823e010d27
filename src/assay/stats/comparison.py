"""Compare two runs sample by sample: regressions, improvements, and their significance."""

import heapq
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any, Protocol

from pydantic import Field

from assay.errors import ConfigError
from assay.types import NOISE

from .bounds import Direction
from .html_table import escape_html, format_html_table
from .interval_bar import draw_svg_bar
from .metric_comparison import MetricComparison, compare_metrics, format_metric_comparisons
from .multiplicity import adjust_p_values
from .number_format import (
    WIDTH,
    clean_text,
    format_labelled,
    format_number,
    format_plural,
    pad_text,
)
from .paired_tests import find_fewest_pairs
from .report_sections import ReportSection, format_interval, format_p_value
from .result_types import ResultLike, group_by_sample, read_repeats
from .sample_pairs import PairedMetrics, PairedScores
from .scale import find_shared_bounds, find_shared_direction
from .statistics import Bounds, Interval, check_bounds, check_confidence

# Two scores and their difference, beside the name of the sample.
_PAIR_SCORES_WIDTH = 36
# Each label is read by itself; longer lists are for programs, which have the ids.
_MAX_LABELS = 100


class Conclusion(StrEnum):
    """The conclusion of a comparison about the second run."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE_SHOWN = "no difference shown"
    TOO_FEW = "too few to tell"


class Pair(ReportSection):
    """One sample on both sides, repeats averaged."""

    sample_id: str
    a: float
    b: float

    @property
    def difference(self) -> float:
        return self.b - self.a


class UnpairedSamples(ReportSection):
    """Samples that could not be paired: their count, and the first ids."""

    count: int
    ids: tuple[str, ...]


class RunSettings(Protocol):
    """The part of a run's specification that a comparison needs."""

    @property
    def config(self) -> Mapping[str, Any]: ...


class RecordedRun(Protocol):
    """A recorded run that can be compared: an `EvalReport`, or a `Run` of a store."""

    @property
    def spec(self) -> RunSettings: ...

    def results(self) -> Iterable[ResultLike]: ...

    def read_labels(self, sample_ids: Iterable[str]) -> dict[str, str]: ...


class Comparison(ReportSection):
    """Run `b` against run `a`, the baseline. Differences are b minus a.

    Below 0 is worse, unless low scores are good.
    """

    direction: Direction = "max"
    """Whether high or low scores are good."""

    samples_a: int
    samples_b: int
    pairs: int
    """Samples judged on both sides: the basis of all numbers below."""

    missing_in_a: UnpairedSamples
    missing_in_b: UnpairedSamples
    not_judged_in_a: UnpairedSamples
    """Samples on both sides without a judged result in a (some of them neither in b)."""

    not_judged_in_b: UnpairedSamples
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
    smallest_p: float | None
    """The p-value if every sample that can change had become worse; None without pairs."""

    test: str
    confidence: float
    detectable: float | None
    """The smallest true mean difference that a set like this shows four times out of five."""

    repeats_a: tuple[int, int] | None
    repeats_b: tuple[int, int] | None
    """The fewest and the most scored repeats of a paired sample; None without pairs."""

    unequal_repeats: int
    """Pairs with more scored repeats on one side: the test allows for it."""

    metrics: dict[str, MetricComparison]
    metrics_unpaired: tuple[str, ...]
    """Metrics that no sample has in both runs, among the first 50 of each."""

    metrics_left_out: int
    """Values of metrics that were not compared: beyond 50 names, or too many to keep."""

    regressions: tuple[Pair, ...]
    """Samples that got worse, the worst first; `losses` is the count of all."""

    improvements: tuple[Pair, ...]
    labels: dict[str, str] = Field(default_factory=dict)
    """The questions of the samples in the lists above by id, if recorded runs were compared."""

    @property
    def conclusion(self) -> Conclusion:
        # With so few pairs even the smallest possible p-value is above the requested level.
        if self.pairs < find_fewest_pairs(self.confidence):
            return Conclusion.TOO_FEW
        mean, p_value = self.difference.mean, self.p_value
        if mean is None or p_value is None or p_value > 1 - self.confidence + NOISE:
            return Conclusion.NO_DIFFERENCE_SHOWN
        return Conclusion.WORSE if self.is_worse(mean) else Conclusion.BETTER

    def is_worse(self, difference: float) -> bool:
        """Whether a change of the score by this difference is one for the worse."""
        return difference < 0 if self.direction == "max" else difference > 0

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, *, width: int = WIDTH) -> list[str]:
        """Format the comparison as lines of at most `width` columns, worst regression first."""
        return [
            *self.headline(width=width),
            *self._format_pairs("regressions", self.regressions, self.losses, width),
            *self._format_pairs("improvements", self.improvements, self.wins, width),
        ]

    def headline(self, *, width: int = WIDTH) -> list[str]:
        """Format the comparison without the samples that changed; the conclusion comes first."""
        repeats = (
            f"{self.repeats_words}: they differ in {format_plural(self.unequal_repeats, 'pair')}. "
            "The test allows for it; better and worse compare means, and a mean of fewer repeats "
            "varies more by chance"
        )
        return [
            *format_labelled("conclusion", self._describe_conclusion(), width=width),
            *format_labelled("difference", self._describe_difference(), width=width),
            *format_labelled(
                "pairs",
                f"{self.pairs}: {self.wins} better, {self.losses} worse, {self.ties} the same",
                width=width,
            ),
            *(format_labelled("repeats", repeats, width=width) if self.repeats_words else []),
            *self._format_unpaired(width),
            *format_metric_comparisons(
                self.metrics, self.metrics_unpaired, self.metrics_left_out, width=width
            ),
        ]

    def _repr_html_(self) -> str:
        """Return the comparison for notebooks."""
        difference = self.difference
        ends = [abs(end) for end in (difference.low, difference.mean, difference.high) if end]
        reach = max([*ends, self.detectable or 0.0]) or 1.0
        pairs = f"{self.pairs} pairs: {self.wins} better, {self.losses} worse, {self.ties} the same"
        left_out = "".join(
            f"<p>{listed.count} {words}</p>" for words, listed in self.unpaired.items()
        )
        head = ("sample", "id", "first", "second", "change")
        tables = [
            format_html_table(f"{title} ({count})", head, map(self._format_pair_cells, listed))
            for title, listed, count in (
                ("regressions", self.regressions, self.losses),
                ("improvements", self.improvements, self.wins),
            )
        ]
        return (
            f"<p><b>{escape_html(self._describe_conclusion())}</b></p>"
            f"<p>{escape_html(self._describe_difference())}</p>"
            f"{draw_svg_bar(difference, (-reach, reach), threshold=0.0)}"
            f"<p>{pairs}</p>{left_out}{''.join(tables)}"
        )

    def _format_pair_cells(self, pair: Pair) -> tuple[str, ...]:
        numbers = (format_number(pair.a), format_number(pair.b))
        change = format_number(pair.difference, signed=True)
        return (self.labels.get(pair.sample_id, ""), pair.sample_id, *numbers, change)

    def _format_pairs(
        self, title: str, pairs: tuple[Pair, ...], count: int, width: int
    ) -> list[str]:
        if not count:
            return []
        lines = [f"{title} ({count})"]
        for pair in pairs:
            label, sample_id, a, b, change = self._format_pair_cells(pair)
            name = pad_text(label or sample_id, width - _PAIR_SCORES_WIDTH)
            lines.append(f"  {name}{a:>9} -> {b:>9}  {change:>9}")
            if label:
                lines.append(f"    {clean_text(sample_id, width - 4)}")
        if len(pairs) < count:
            lines.append(f"  and {count - len(pairs)} more")
        return lines

    def _describe_conclusion(self) -> str:
        words = str(self.conclusion)
        if self.conclusion is Conclusion.TOO_FEW:
            needed = find_fewest_pairs(self.confidence)
            return f"{words}: {format_plural(self.pairs, 'pair')}, and at least {needed} are needed"
        words += f" (p = {format_p_value(self.p_value)}, {self.test})"
        if self.conclusion is Conclusion.NO_DIFFERENCE_SHOWN and self.detectable is not None:
            words += (
                f"; a difference below {format_number(self.detectable)} may go unseen in this set"
            )
        return words

    def _describe_difference(self) -> str:
        words = format_interval(self.difference, signed=True)
        if not self.pairs:
            return words
        low = "" if self.direction == "max" else "; low is good"
        return f"{words} (mean {format_number(self.mean_a)} to {format_number(self.mean_b)}{low})"

    @property
    def repeats_words(self) -> str:
        """The numbers of repeats of the runs, where they differ; else empty."""
        if not self.unequal_repeats or self.repeats_a is None or self.repeats_b is None:
            return ""
        first, second = (
            str(most) if fewest == most else f"{fewest} to {most}"
            for fewest, most in (self.repeats_a, self.repeats_b)
        )
        return f"{first} in the first run, {second} in the second"

    @property
    def unpaired(self) -> dict[str, UnpairedSamples]:
        """The samples that were left out, by the reason; only reasons that occur."""
        named = {
            "missing in the second run": self.missing_in_b,
            "missing in the first run": self.missing_in_a,
            "not judged in the second run": self.not_judged_in_b,
            "not judged in the first run": self.not_judged_in_a,
        }
        return {words: listed for words, listed in named.items() if listed.count}

    @property
    def listed_ids(self) -> frozenset[str]:
        """The ids of the samples that have a label: the first of each list."""
        pairs = (self.regressions, self.improvements)
        changed = (islice((pair.sample_id for pair in listed), _MAX_LABELS) for listed in pairs)
        left_out = (islice(listed.ids, _MAX_LABELS) for listed in self.unpaired.values())
        return frozenset(sample_id for ids in (*changed, *left_out) for sample_id in ids)

    def _format_unpaired(self, width: int) -> list[str]:
        lines = []
        for words, listed in self.unpaired.items():
            lines += format_labelled("left out", f"{listed.count} {words}", width=width)
            for sample_id in listed.ids:
                label = self.labels.get(sample_id)
                name = sample_id if not label else f"{sample_id} | {label}"
                lines.append(f"  {clean_text(name, width - 2)}")
            if len(listed.ids) < listed.count:
                lines.append(f"  and {listed.count - len(listed.ids)} more")
        return lines


def compare(
    a: RecordedRun | Iterable[ResultLike],
    b: RecordedRun | Iterable[ResultLike],
    *,
    confidence: float = 0.95,
    bounds: Bounds | None = None,
    seed: int = 0,
    limit: int | None = 20,
) -> Comparison:
    """Compare run `b` with the baseline `a`, paired by sample id, repeats averaged first.

    Takes the reports of two evaluations, runs of a store, or their results, in which high scores
    are good. Reports and runs also give the bounds and the direction of their scores, and the
    labels of the listed samples. The metrics that both runs have are compared as well. Keeps the
    scores of `a` and a few numbers for each pair in memory. Each list contains at most `limit`
    samples (None: all); the counts are always complete.
    """
    check_confidence(confidence)
    if bounds is not None:
        check_bounds(bounds)
    if limit is not None and limit < 0:
        raise ConfigError(f"limit is {limit!r}, not 0 or more", where="compare()")
    recorded = [each for each in (a, b) if not isinstance(each, Iterable)]
    direction: Direction = "max"
    if len(recorded) == 2:
        configs = recorded[0].spec.config, recorded[1].spec.config
        bounds = find_shared_bounds(*configs) if bounds is None else bounds
        direction = find_shared_direction(*configs)
    # All of a before b: only the scores of one run are kept, b is joined as it is read.
    joining = _RunJoin(limit, direction)
    for sample_id, repeats in group_by_sample(a if isinstance(a, Iterable) else a.results()):
        joining.add_a(sample_id, repeats)
    for sample_id, repeats in group_by_sample(b if isinstance(b, Iterable) else b.results()):
        joining.add_b(sample_id, repeats)
    comparison = joining.comparison(confidence, bounds, seed)
    shown = comparison.listed_ids if recorded else frozenset[str]()
    labels: dict[str, str] = {}
    for run in recorded:
        labels |= run.read_labels(shown - labels.keys())
    return comparison.model_copy(update={"labels": labels})


class AdjustedComparison(ReportSection):
    """One of several runs against the first, with a p-value adjusted for their number."""

    comparison: Comparison
    adjusted_p: float | None
    """Adjusted by Holm's method; None without pairs."""

    @property
    def conclusion(self) -> Conclusion:
        """Decided by the adjusted p-value."""
        return self.comparison.model_copy(update={"p_value": self.adjusted_p}).conclusion


def compare_runs(
    runs: Sequence[RecordedRun | Collection[ResultLike]],
    *,
    confidence: float = 0.95,
    bounds: Bounds | None = None,
    seed: int = 0,
) -> list[AdjustedComparison]:
    """Compare each run with the first one, paired by sample.

    Takes what `compare` takes. The chance that any of the unchanged runs is called better or worse
    is at most 1 - `confidence`.
    """
    if len(runs) < 2:
        raise ConfigError("a comparison needs at least two runs", where="compare_runs()")
    first, *others = runs
    compared = [
        compare(first, other, confidence=confidence, bounds=bounds, seed=seed, limit=0)
        for other in others
    ]
    # The p-value is None only without pairs, which cannot be significant.
    known = [1.0 if each.p_value is None else each.p_value for each in compared]
    return [
        AdjustedComparison(comparison=each, adjusted_p=None if each.p_value is None else p_value)
        for each, p_value in zip(compared, adjust_p_values(known), strict=True)
    ]


class _IdList:
    """A count of samples with the first few ids."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._count = 0
        self._ids: list[str] = []

    def add(self, sample_id: str) -> None:
        self._count += 1
        if self._limit is None or len(self._ids) < self._limit:
            self._ids.append(sample_id)

    def build(self) -> UnpairedSamples:
        return UnpairedSamples(count=self._count, ids=tuple(self._ids))


class _RunJoin:
    """Joins two runs by sample id."""

    def __init__(self, limit: int | None, direction: Direction) -> None:
        self._limit = limit
        self._direction = direction
        self._of_a: dict[str, bytes] = {}
        self._seen_b: set[str] = set()
        self._ids: list[str] = []
        self._scores = PairedScores()
        self._metrics = PairedMetrics()
        self._missing_in_a = _IdList(limit)
        self._not_judged_in_a, self._not_judged_in_b = _IdList(limit), _IdList(limit)
        self._judged_a = self._unjudged = 0

    def add_a(self, sample_id: str, repeats: list[ResultLike]) -> None:
        if sample_id in self._of_a:
            raise _build_order_error(sample_id, "first")
        scores, metrics = read_repeats(repeats)
        # Packed as bytes: lists of floats would take several times the memory for large runs. The
        # number of scores comes first, the metrics last.
        numbers = array("d", [len(scores), *scores, *self._metrics.keep(metrics)])
        self._of_a[sample_id] = numbers.tobytes()
        self._judged_a += bool(scores)

    def add_b(self, sample_id: str, repeats: list[ResultLike]) -> None:
        if sample_id in self._seen_b:
            raise _build_order_error(sample_id, "second")
        self._seen_b.add(sample_id)
        scores, metrics = read_repeats(repeats)
        if sample_id not in self._of_a:
            self._missing_in_a.add(sample_id)
            return
        numbers = array("d", self._of_a[sample_id])
        end = 1 + int(numbers[0])
        of_a = numbers[1:end]
        if not of_a:
            self._not_judged_in_a.add(sample_id)
        if not scores:
            self._not_judged_in_b.add(sample_id)
        if not of_a or not scores:
            self._unjudged += 1
            return
        self._ids.append(sample_id)
        self._scores.add(of_a, scores)
        if metrics:
            self._metrics.add(numbers[end:], metrics)

    def comparison(self, confidence: float, bounds: Bounds | None, seed: int) -> Comparison:
        scores, metrics = self._scores, self._metrics
        differences = scores.differences
        test = scores.test(seed)
        pairs = len(differences)
        better = 1 if self._direction == "max" else -1
        wins = sum(d * better > 0 for d in differences)
        losses = sum(d * better < 0 for d in differences)
        missing_in_b = _IdList(self._limit)
        for sample_id in self._of_a:
            if sample_id not in self._seen_b:
                missing_in_b.add(sample_id)
        return Comparison(
            direction=self._direction,
            samples_a=len(self._of_a),
            samples_b=len(self._seen_b),
            pairs=pairs,
            missing_in_a=self._missing_in_a.build(),
            missing_in_b=missing_in_b.build(),
            not_judged_in_a=self._not_judged_in_a.build(),
            not_judged_in_b=self._not_judged_in_b.build(),
            unjudged_pairs=self._unjudged,
            baseline_judged=self._judged_a,
            wins=wins,
            losses=losses,
            ties=pairs - wins - losses,
            mean_a=scores.mean_a,
            mean_b=scores.mean_b,
            difference=scores.interval(confidence, bounds),
            p_value=test.p_value,
            # The two-sided sign test with all differences on one side.
            smallest_p=min(1.0, 2.0 * 0.5**scores.movable) if pairs else None,
            test=test.method,
            confidence=confidence,
            detectable=scores.detectable(confidence),
            repeats_a=scores.find_repeats(0),
            repeats_b=scores.find_repeats(1),
            unequal_repeats=scores.unequal,
            metrics=compare_metrics(metrics.pairs, confidence=confidence, seed=seed),
            metrics_unpaired=tuple(metrics.unpaired),
            metrics_left_out=metrics.left_out,
            regressions=self._select_most_changed(differences, sign=-better),
            improvements=self._select_most_changed(differences, sign=better),
        )

    def _select_most_changed(self, differences: "array[float]", *, sign: int) -> tuple[Pair, ...]:
        changed = (
            (-abs(difference), self._ids[place], place)
            for place, difference in enumerate(differences)
            if difference * sign > 0
        )
        # Ties are ordered by id, so that the list does not depend on the order of the runs.
        count = len(differences) if self._limit is None else self._limit
        return tuple(
            Pair(sample_id=sample_id, a=self._scores.a[place], b=self._scores.b[place])
            for _, sample_id, place in heapq.nsmallest(count, changed)
        )


def _build_order_error(sample_id: str, run: str) -> ConfigError:
    return ConfigError(
        f"the results of sample {sample_id!r} in the {run} run are not next to each other",
        where="compare()",
        hint="order the results of each run by sample, then by repeat",
    )
