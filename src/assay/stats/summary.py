"""Summarise a run: every mean with its interval and the results that it excludes."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from .bounds import Direction
from .number_format import (
    WIDTH,
    clean_text,
    format_labelled,
    format_metric,
    format_number,
    format_plural,
)
from .percentiles import RunningPercentiles
from .repeats import PassRate, RepeatCounts
from .report_sections import (
    Latency,
    ReportSection,
    ScoreStatistics,
    Total,
    build_distribution,
    format_distribution,
    format_interval,
    format_total,
)
from .result_types import (
    ResultLike,
    average,
    check_all_finite,
    group_by_sample,
    list_metric_values,
    read_valid_score,
    read_valid_scores,
)
from .statistics import Bounds, RunningStats, RunningSum, check_bounds, check_confidence

MAX_METRICS = 200
"""Names come from scorers: without a limit, a name with a counter in it would fill the memory."""

# Large enough that the cost of a chunk is small, small enough for constant memory.
_RESULTS_AT_ONCE = 1000


class RunSummary(ReportSection):
    """A run in numbers. `samples` are the unit of means; each has one or more `results`."""

    samples: int
    judged_samples: int
    """Samples with at least one judged result."""

    partly_judged_samples: int
    """Those of them that also have an unscored result."""

    results: int
    judged_results: int
    failed: dict[str, int]
    """Results by the boundary that failed."""

    failed_but_judged: int
    """Results among `failed` that have a valid score."""

    invalid: int
    """Unscored results without a failure."""

    score: ScoreStatistics
    bounds: Bounds | None
    """The lowest and highest possible score, where they are known."""

    direction: Direction = "max"
    """Whether high or low scores are good."""

    metrics: dict[str, ScoreStatistics]
    metrics_left_out: int
    """Values of further metrics, beyond the first 200 names."""

    input_tokens: Total
    output_tokens: Total
    cost_usd: Total
    latency: Latency
    repeats: int
    """The largest number of results of a sample."""

    pass_at_k: tuple[PassRate, ...]
    """One of k succeeds; empty without repeats."""

    pass_hat_k: tuple[PassRate, ...]
    """All of k succeed; empty without repeats."""

    @property
    def not_judged_results(self) -> int:
        return self.results - self.judged_results

    @property
    def not_judged_share(self) -> float | None:
        """The share of unscored results; None without results."""
        return self.not_judged_results / self.results if self.results else None

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, *, width: int = WIDTH) -> list[str]:
        """Format the summary as lines of at most `width` columns."""
        return [
            *format_labelled("score", format_interval(self.score.interval), width=width),
            *self.count_lines(width=width),
            *self.detail_lines(width=width),
        ]

    def count_lines(self, *, width: int = WIDTH) -> list[str]:
        """Format the numbers of samples and of results without a score."""
        samples = f"{self.samples}, {self.judged_samples} judged"
        if self.partly_judged_samples:
            samples += f" ({self.partly_judged_samples} of them only in part)"
        if self.repeats > 1:
            samples += f"; {format_plural(self.results, 'result')}"
        causes = [f"{clean_text(name, 20)} failed {count}" for name, count in self.failed.items()]
        causes += [f"no valid score {self.invalid}"] if self.invalid else []
        not_judged = f"{self.not_judged_results} of {format_plural(self.results, 'result')}"
        not_judged += f": {', '.join(causes)}" if causes else ""
        if self.failed_but_judged:
            not_judged += f" ({self.failed_but_judged} of the failed were judged all the same)"
        return [
            *format_labelled("samples", samples, width=width),
            *format_labelled("not judged", not_judged, width=width),
        ]

    def detail_lines(self, *, width: int = WIDTH) -> list[str]:
        """Format distribution, metrics, latency, tokens and cost."""
        latency = self.latency
        named = {50: latency.p50, 90: latency.p90, 95: latency.p95, 99: latency.p99}
        seconds = ", ".join(
            f"p{rank} {format_number(value)}{'' if value in (None, math.inf) else ' s'}"
            for rank, value in named.items()
        )
        seconds = seconds if latency.measured else "not measured"
        unmeasured = {"cached": latency.cached, "unknown": latency.unknown}
        if left_out := [f"{count} {word}" for word, count in unmeasured.items() if count]:
            seconds += f" ({', '.join(left_out)} left out)"
        read, written = format_total(self.input_tokens), format_total(self.output_tokens)
        tokens = "unknown" if read == written == "unknown" else f"{read} in, {written} out"
        return [
            *format_distribution(self.score.distribution, width=width),
            *self._format_metrics(width),
            *self._format_repeats(width),
            *format_labelled("latency", seconds, width=width),
            *format_labelled("tokens", tokens, width=width),
            *format_labelled("cost", format_total(self.cost_usd, "$"), width=width),
        ]

    def _format_metrics(self, width: int) -> list[str]:
        lines = []
        for name, metric in self.metrics.items():
            left_out = f", {metric.left_out} without it" if metric.left_out else ""
            words = f"{format_interval(metric.interval, brief=True)}{left_out}"
            lines += format_metric(name, words, width=width)
        if self.metrics_left_out:
            lines.append(
                f"  and {format_plural(self.metrics_left_out, 'value')} of further metrics"
            )
        return ["metrics", *lines] if lines else []

    def _format_repeats(self, width: int) -> list[str]:
        lines = []
        for rate in (*self.pass_at_k, *self.pass_hat_k):
            label = rate.kind.replace("k", str(rate.k))
            words = format_interval(rate.interval, brief=True)
            left_out = (
                f", {format_plural(rate.left_out, 'sample')} left out" if rate.left_out else ""
            )
            lines += format_labelled(label, words + left_out, width=width)
        if self.pass_at_k:
            threshold = format_number(self.pass_at_k[0].threshold)
            words = f"{threshold} or {'more' if self.direction == 'max' else 'less'}"
            words = f"(a repeat passes with a score of {words})"
            lines += format_labelled("", words, width=width)
        return lines


def summarise(
    results: Iterable[ResultLike],
    *,
    confidence: float = 0.95,
    bounds: Bounds | None = None,
    success: float = 1.0,
    direction: Direction = "max",
) -> RunSummary:
    """Summarise a run in one pass and constant memory.

    The repeats of a sample must be adjacent. `bounds` are the lowest and highest possible score;
    `success` is the lowest score with which a repeat passes, or the highest one with the direction
    `min`.
    """
    check_confidence(confidence)
    if bounds is not None:
        check_bounds(bounds)
    running = _SummaryBuilder(success, direction)
    remaining = iter(results)
    chunk = list(islice(remaining, _RESULTS_AT_ONCE))
    while chunk:
        following = next(remaining, None)
        # The repeats of a sample stay together.
        while following is not None and following.sample_id == chunk[-1].sample_id:
            chunk.append(following)
            following = next(remaining, None)
        # Most runs have one result for each sample, which has a faster path.
        if len({result.sample_id for result in chunk}) == len(chunk):
            running.add_singles(chunk)
        else:
            for _, repeats in group_by_sample(chunk):
                running.add(repeats)
        chunk = [] if following is None else [following, *islice(remaining, _RESULTS_AT_ONCE - 1)]
    return running.summary(confidence, bounds)


class _RunningTotal:
    def __init__(self, what: str) -> None:
        self._what = what
        self._known = 0
        self._sum = RunningSum()
        self._unknown = 0

    def extend(self, values: Sequence[float | None]) -> None:
        known = check_all_finite([value for value in values if value is not None], self._what)
        self._known += len(known)
        self._unknown += len(values) - len(known)
        self._sum.add(math.fsum(known))

    def total(self) -> Total:
        total = self._sum.total
        known = self._known > 0 and self._unknown == 0
        return Total(value=total if known else None, at_least=total, unknown=self._unknown)


class _SummaryBuilder:
    """The counters behind a summary."""

    # Numbers are buffered in lists and counted many at once: iterating a list in C takes a tenth
    # of the time of a call for each number.

    def __init__(self, success: float, direction: Direction) -> None:
        self._direction = direction
        self._samples = self._results = self._judged_results = self._partly = 0
        self._failed: Counter[str] = Counter()
        self._failed_but_judged = self._invalid = 0
        self._means: list[float] = []
        self._metric_means: dict[str, list[float]] = {}
        self._waiting: list[ResultLike] = []
        self._score = RunningStats()
        self._metrics: dict[str, RunningStats] = {}
        self._metrics_left_out = 0
        self._input = _RunningTotal("a number of input tokens")
        self._output = _RunningTotal("a number of output tokens")
        self._cost = _RunningTotal("a cost")
        self._seconds = RunningPercentiles()
        self._cached = self._unmeasured = 0
        self._repeats = RepeatCounts(success, direction)

    def add(self, repeats: list[ResultLike]) -> None:
        scores = [read_valid_score(result) for result in repeats]
        judged = [score for score in scores if score is not None]
        self._samples += 1
        self._results += len(repeats)
        self._judged_results += len(judged)
        self._partly += 0 < len(judged) < len(repeats)
        if (mean := average(judged)) is not None:
            self._means.append(mean)
        self._repeats.add(scores)
        measured = False
        for result, score in zip(repeats, scores, strict=True):
            if result.boundary is not None:
                # A result may have both a failure and a valid score.
                self._failed[str(result.boundary)] += 1
                self._failed_but_judged += score is not None
            elif score is None:
                self._invalid += 1
            measured = measured or bool(result.metrics)
        if measured:
            self._measure(repeats, scores)
        self._waiting += repeats
        if len(self._waiting) >= _RESULTS_AT_ONCE:
            self._flush()

    def add_singles(self, results: list[ResultLike]) -> None:
        """Add samples with one result each: the common case, without a call for each."""
        scores = read_valid_scores(results)
        unusual = [result for result in results if result.boundary is not None or result.metrics]
        if unusual or len(scores) < len(results):
            for result in results:
                self.add([result])
            return
        self._samples += len(scores)
        self._results += len(scores)
        self._judged_results += len(scores)
        self._means += scores
        self._repeats.add_singles(scores)
        self._waiting += results
        self._flush()

    def _flush(self) -> None:
        waiting = self._waiting
        self._score.extend(self._means)
        self._input.extend([result.input_tokens for result in waiting])
        self._output.extend([result.output_tokens for result in waiting])
        self._cost.extend([result.cost_usd for result in waiting])
        asked = [result.latency_s for result in waiting if not result.cached]
        seconds = [each for each in asked if each is not None]
        self._cached += len(waiting) - len(asked)
        self._unmeasured += len(asked) - len(seconds)
        self._seconds.extend(seconds)
        for name, means in self._metric_means.items():
            self._metrics[name].extend(means)
        self._means, self._metric_means, self._waiting = [], {}, []

    def _measure(self, repeats: list[ResultLike], scores: list[float | None]) -> None:
        values: dict[str, list[float]] = {}
        for result, score in zip(repeats, scores, strict=True):
            for name, value in list_metric_values(result) if score is not None else ():
                values.setdefault(name, []).append(value)
        for name, measured in values.items():
            if name not in self._metrics:
                if len(self._metrics) >= MAX_METRICS:
                    self._metrics_left_out += len(measured)
                    continue
                self._metrics[name] = RunningStats()
            self._metric_means.setdefault(name, []).append(math.fsum(measured) / len(measured))

    def summary(self, confidence: float, bounds: Bounds | None) -> RunSummary:
        self._flush()
        repeats = self._repeats
        ks = repeats.choose_ks() if repeats.most > 1 else ()
        return RunSummary(
            samples=self._samples,
            judged_samples=self._score.n,
            partly_judged_samples=self._partly,
            results=self._results,
            judged_results=self._judged_results,
            failed=dict(sorted(self._failed.items())),
            failed_but_judged=self._failed_but_judged,
            invalid=self._invalid,
            score=self._build_statistics(self._score, confidence, bounds),
            bounds=bounds,
            direction=self._direction,
            metrics={
                name: self._build_statistics(stats, confidence, None)
                for name, stats in sorted(self._metrics.items())
            },
            metrics_left_out=self._metrics_left_out,
            input_tokens=self._input.total(),
            output_tokens=self._output.total(),
            cost_usd=self._cost.total(),
            latency=Latency(
                measured=self._seconds.n,
                cached=self._cached,
                unknown=self._unmeasured,
                p50=self._seconds.at(50),
                p90=self._seconds.at(90),
                p95=self._seconds.at(95),
                p99=self._seconds.at(99),
                exact=self._seconds.exact,
            ),
            repeats=repeats.most,
            pass_at_k=tuple(repeats.rate("pass@k", k, confidence=confidence) for k in ks),
            pass_hat_k=tuple(repeats.rate("pass^k", k, confidence=confidence) for k in ks),
        )

    def _build_statistics(
        self, stats: RunningStats, confidence: float, bounds: Bounds | None
    ) -> ScoreStatistics:
        return ScoreStatistics(
            interval=stats.interval(confidence=confidence, bounds=bounds),
            stdev=stats.stdev,
            distribution=build_distribution(stats),
            left_out=self._samples - stats.n,
        )
