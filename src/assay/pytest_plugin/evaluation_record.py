"""The record of one evaluation test in the summary."""

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

from assay.stats import RunSummary, Total, clean_text, format_number, format_plural
from assay.types import stable_id

from .decorator import EvalOptions
from .environment_servers import strip_environment_url

if TYPE_CHECKING:
    import pytest

_MAX_REASON_CHARS = 500
TOTALS = ("input_tokens", "output_tokens", "cost_usd")
"""Fields that are summed up over all tests, as far as they are known."""


@dataclass(frozen=True)
class Record:
    """The outcome of a test in plain values. Unknown values are None."""

    test: str
    """The test's id; where one test judges several endpoints together, one record for each."""

    file: str
    line: int
    nodeid: str = ""
    """The id of the pytest item. Empty where it equals `test`."""

    passed: bool = False
    """False for a test that fails the session; a test that was expected to fail does not."""

    reason: str = ""
    """Why it did not pass, or why it failed as expected."""

    xfail: str | None = None
    """The reason of its `xfail` mark; None without one."""

    run: str | None = None
    """Where its samples are recorded, for `assay show`."""

    score: float | None = None
    interval: tuple[float | None, float | None] = (None, None)
    threshold: float | None = None
    proven: bool = False
    """Whether the lower bound had to reach the threshold, rather than the mean."""

    tolerance: float | None = None
    """How far the mean may fall below the baseline's, where the test sets it itself."""

    samples: int = 0
    results: int = 0
    judged: int = 0
    invalid: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    skipped: str = ""
    """Rows of the dataset that were left out, and why."""

    metrics: dict[str, dict[str, float | None]] = field(default_factory=dict)
    dataset: str | None = None
    dataset_fingerprint: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    config_fingerprint: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    unknown: dict[str, int] = field(default_factory=dict)
    """Results of model calls whose tokens or cost are not known, and missing in the sums above."""

    tags: tuple[str, ...] = ()
    attempts: int = 1
    """How often the session ran this test. The record describes the last attempt."""

    @classmethod
    def from_plain(cls, given: dict[str, Any]) -> Self:
        """Read a record back from its part file."""
        record = cls(**{each.name: given[each.name] for each in fields(cls)})
        low, high = record.interval
        return replace(record, interval=(low, high), tags=tuple(record.tags))

    @property
    def item(self) -> str:
        """The id of the pytest item that this record belongs to."""
        return self.nodeid or self.test

    @property
    def outcome(self) -> str:
        """The verdict in pytest's words: passed, failed, xfailed or xpassed."""
        if not self.passed:
            return "failed"
        if self.xfail is None:
            return "passed"
        return "xfailed" if self.reason else "xpassed"

    @property
    def too_few(self) -> bool:
        """Whether the threshold lies inside the interval: more samples could change the verdict."""
        low, high = self.interval
        if self.threshold is None or self.score is None:
            return False
        return low is None or high is None or low < self.threshold <= high

    def format_headline(self) -> str:
        """Score, interval and counts in one sentence."""
        results = format_plural(self.results, "result")
        if not self.results:
            words = "no score: no sample was evaluated"
        elif self.score is None:
            words = f"no score: none of {results} was judged"
        else:
            # `beside` adds digits where a score would look equal to a threshold that it misses.
            words = f"score {format_number(self.score, beside=self.threshold)}"
            low, high = self.interval
            if low is not None and high is not None:
                words += f" [{format_number(low)}, {format_number(high)}]"
            if self.threshold is not None:
                words += f", threshold {format_number(self.threshold, beside=self.score)}"
            words += f", {self.judged} of {results} judged"
            if unscored := self.results - self.judged:
                share = f"{100 * unscored / self.results:.1f} %"
                words += f"; unscored {unscored} of {self.results} ({share})"
            if self.too_few:
                words += "; too few samples to place the true mean above or below the threshold"
        if replay := self.config.get("replay"):
            words += f"; replayed from run {replay.get('run')}"
        return words + (f"; {self.skipped}" if self.skipped else "")

    def properties(self) -> list[tuple[str, object]]:
        """Return the properties for a JUnit report. Unknown values are omitted."""
        replay = self.config.get("replay") or {}
        values = {
            "assay_score": self.score,
            "assay_interval_low": self.interval[0],
            "assay_interval_high": self.interval[1],
            "assay_threshold": self.threshold,
            "assay_results": self.results,
            "assay_judged": self.judged,
            "assay_cost_usd": self.cost_usd,
            "assay_cost_usd_unknown": self.unknown.get("cost_usd") or None,
            "assay_replayed_run": replay.get("run"),
            "assay_recorded_cost_usd": replay.get("cost_usd"),
            "assay_run": self.run,
        }
        return [(name, value) for name, value in values.items() if value is not None]


def build_blank_record(
    item: "pytest.Function", options: EvalOptions, endpoint: str | None = None
) -> Record:
    """Return a record with the options of a test and no results."""
    file, line, _ = item.location
    return Record(
        test=item.nodeid if endpoint is None else f"{item.nodeid}[{endpoint}]",
        nodeid=item.nodeid,
        file=file,
        line=(line or 0) + 1,
        threshold=read_minimum(options.threshold),
        proven=bool(getattr(options.threshold, "proven", False)),
        tolerance=None if options.tolerance is None else float(options.tolerance),
        tags=options.tags,
    )


def read_minimum(threshold: Any) -> float | None:
    """Return the number in a threshold, which may be a `GateRule`."""
    minimum = getattr(threshold, "minimum", threshold)
    return None if minimum is None else float(minimum)


def fill_numbers(record: Record, summary: RunSummary, *, used_model: bool) -> Record:
    """Return the record with the numbers of a run."""
    score = summary.score
    totals: dict[str, Total] = {name: getattr(summary, name) for name in TOTALS}
    # A sum over no known value is unknown, not 0.
    known = {
        name: total.at_least for name, total in totals.items() if total.unknown < summary.results
    }
    return replace(
        record,
        score=score.mean,
        interval=(score.interval.low, score.interval.high),
        samples=summary.samples,
        results=summary.results,
        judged=summary.judged_results,
        invalid=summary.invalid,
        failed=dict(summary.failed),
        metrics={
            name: {
                "mean": metric.mean,
                "low": metric.interval.low,
                "high": metric.interval.high,
            }
            for name, metric in summary.metrics.items()
        },
        input_tokens=int(known["input_tokens"]) if "input_tokens" in known else None,
        output_tokens=int(known["output_tokens"]) if "output_tokens" in known else None,
        cost_usd=known.get("cost_usd"),
        # Without a model there are no calls whose tokens could be missing.
        unknown={name: total.unknown if used_model else 0 for name, total in totals.items()},
    )


def fill_config(record: Record, options: EvalOptions, config: dict[str, Any]) -> Record:
    """Return the record with the configuration of its run."""
    whole = {
        **config,
        "mode": "batch" if options.batch else "groupwise" if options.groupwise else "each",
        "repeats": options.repeats,
        "max_samples": options.max_samples,
        "env_url": None if options.env_url is None else strip_environment_url(options.env_url),
    }
    return replace(record, config=whole, config_fingerprint=stable_id(whole))


def mark_failed(record: Record, reason: str) -> Record:
    """Return the record as failed, with the reason on one line."""
    return replace(record, passed=False, reason=clean_text(reason, _MAX_REASON_CHARS))


def mark_regression(record: Record, worse: str) -> Record:
    """Return the record of a test that is worse than its baseline."""
    # The regression is the failure that the xfail mark expected.
    if record.outcome == "xpassed":
        return replace(record, reason=worse)
    if record.outcome == "xfailed":
        return record
    return mark_failed(record, "; ".join(filter(None, [record.reason, worse])))
