"""The report of a recorded run: figures, reasons of failures and low scores, worst samples.

Commands and pages show the same report; this module formats nothing.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from typing import Any, Literal

from pydantic import ValidationError

from assay.errors import ConfigError
from assay.stats import (
    RunSummary,
    format_number,
    format_plural,
    read_recorded_direction,
    summarise_recorded,
)
from assay.store import (
    FailureGroup,
    ResultRow,
    RetriedAttempts,
    Run,
    RunRow,
    TableQuery,
    TableRow,
)
from assay.types import NOISE, Sample, build_label, explain_result

from .label_counts import LabelCounts, count_labels
from .session_label import SessionLabel, build_session_label
from .training_report import Training, read_training

MAX_REASONS_READ = 200
"""Reasons are in the bodies of samples: more would make the report of a large run slow."""

_MAX_REASON_GROUPS = 5
# A judge may write a page; what is wrong comes first.
_MAX_REASON_CHARS = 500
_QUOTED = re.compile(r"""(?<!\w)'(?:[^'\\]|\\.)*'(?!\w)|"(?:[^"\\]|\\.)*"|`[^`]*`|“[^”]*”""")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


ListedKind = Literal["all", "failed", "judged"]
_FAILED = TableQuery("failed != unknown")
_LOWEST = TableQuery("score != unknown", sort="score")
_NOT_JUDGED = TableQuery("score = unknown and failed = unknown")
_WORST_FIRST = {
    "all": (_FAILED, _LOWEST, _NOT_JUDGED),
    "failed": (_FAILED,),
    "judged": (_LOWEST,),
}


@dataclass(frozen=True)
class ListedSample:
    """A sample in a list: its row, and the parts of its body that are shown."""

    row: ResultRow
    label: str
    reason: str
    answer: str
    expected: str
    session: SessionLabel | None = None
    threshold: float | None = None
    """The lowest mean score with which the test of the sample passes."""

    @property
    def name(self) -> str:
        row = self.row
        return row.sample_id if not row.repeat else f"{row.sample_id}#{row.repeat}"

    @property
    def score(self) -> str:
        return describe_score(self.row)

    def plain(self) -> dict[str, Any]:
        """Return the sample as plain values."""
        row = self.row
        return {
            "id": row.sample_id,
            "label": self.label,
            "repeat": row.repeat,
            "status": row.status,
            "score": row.score if row.valid else None,
            "failed": row.boundary,
            "reason": self.reason,
            "answer": self.answer or None,
            "expected": self.expected or None,
            **({} if self.session is None else asdict(self.session)),
        }


@dataclass(frozen=True)
class ReasonGroup:
    """Results with a low score, or with none, for the same reason; one of them is the example."""

    reason: str | None
    """With `N` and `'…'` where the reasons differ in numbers and quoted values; None if the scorer
    gave none."""

    results: int
    mean: float | None
    """The mean score of the results; None for results that were not judged."""

    example: str
    """The id of the sample with the worst score, or of the first one."""

    repeat: int
    label: str
    example_reason: str | None


@dataclass(frozen=True, kw_only=True)
class _ReasonGroups:
    results: int
    read: int
    """Those of them, the worst, whose reasons were read."""

    groups: tuple[ReasonGroup, ...]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Count, reason and example of each group."""
        return [
            (str(group.results), group.reason or "no reason given", group.label)
            for group in self.groups
        ]


@dataclass(frozen=True, kw_only=True)
class LowScores(_ReasonGroups):
    """The results worse than the best possible score, by the reason that their scorer gave.

    The reasons that cost the mean most come first.
    """

    best: float
    """The best possible score; the best of the run where the scale is unknown."""

    others: int
    """Results that were read, but are in none of the groups."""

    low_is_good: bool = False

    @property
    def title(self) -> str:
        """Such as `reasons for scores below 1.000`."""
        side = "above" if self.low_is_good else "below"
        part = "" if self.read == self.results else f", in the worst {self.read} of {self.results}"
        return f"reasons for scores {side} {format_number(self.best)}{part}"


@dataclass(frozen=True, kw_only=True)
class NotJudged(_ReasonGroups):
    """The results without a failure and without a valid score, by the reason of their scorer.

    It has no groups if no result has a reason, as in runs that were never scored.
    """

    @property
    def title(self) -> str:
        part = "" if self.read == self.results else f", in {self.read} of {self.results}"
        return f"reasons for results that were not judged{part}"


@dataclass(frozen=True)
class RunReport:
    """A recorded run: its figures, the reasons behind them, and its worst samples."""

    row: RunRow
    summary: RunSummary
    retried: RetriedAttempts
    failures: tuple[FailureGroup, ...]
    """The most frequent reasons of failed samples."""

    not_judged: NotJudged
    low_scores: LowScores
    training: Training | None
    """The steps of a training; None for any other run."""

    samples: tuple[ListedSample, ...]
    """Failed samples first, then the worst scores, then samples that were not judged."""

    labels: LabelCounts
    """The labels that people gave to samples."""

    @property
    def failed(self) -> int:
        return sum(self.summary.failed.values())

    @property
    def threshold(self) -> float | None:
        """The lowest mean score with which the test of the run passes, where a test recorded it."""
        return self.samples[0].threshold if self.samples else None

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values: the output of `assay show RUN --json`."""
        return {
            "run": describe_run(self.row),
            "summary": json.loads(self.summary.model_dump_json()),
            "retried": asdict(self.retried),
            # The recording that the run replayed.
            "replay": self.row.spec.config.get("replay"),
            "failures": [asdict(group) for group in self.failures],
            "not_judged": asdict(self.not_judged),
            "low_scores": asdict(self.low_scores),
            "training": None if self.training is None else self.training.plain(),
            "samples": [sample.plain() for sample in self.samples],
            "labels": asdict(self.labels),
        }


def build_run_report(
    run: Run, *, limit: int = 10, failed_only: bool = False, summary: RunSummary | None = None
) -> RunReport:
    """Read the report of a run, with the worst `limit` samples, or only those that failed.

    `summary` are statistics that were read before.
    """
    summary = read_summary(run) if summary is None else summary
    return RunReport(
        row=run.row(),
        summary=summary,
        retried=run.read_retries(),
        failures=tuple(run.failure_groups()),
        not_judged=group_not_judged(run),
        low_scores=group_low_scores(run, summary),
        training=read_training(run),
        samples=tuple(list_worst(run, limit=limit, which="failed" if failed_only else "all")),
        labels=count_labels(run),
    )


def read_summary(run: Run) -> RunSummary:
    """Return the statistics of a run: those stored when it ended, if nothing was added since."""
    stored = parse_summary(run.find_summary())
    return summarise_recorded(run.results(), run.spec.config) if stored is None else stored


def parse_summary(stored: str | None) -> RunSummary | None:
    """Parse stored statistics; None without any, and for those of another version of assay."""
    if stored is None:
        return None
    try:
        return RunSummary.model_validate_json(stored)
    except ValidationError:
        return None


def describe_run(row: RunRow) -> dict[str, Any]:
    """Return a run and its totals as plain values."""
    return {
        "id": row.id,
        "name": row.spec.name,
        "label": build_run_label(row),
        "status": row.status,
        "dataset": row.spec.dataset,
        "dataset_changed": row.dataset_changed,
        "config": row.spec.config,
        "total": row.spec.total,
        "repeats": row.spec.repeats,
        "created_at": row.spec.created_at,
        "finished_at": row.finished_at,
        **asdict(row.totals),
    }


def build_run_label(row: RunRow) -> str:
    """Return the name of a run; for ingested sessions their number and source."""
    source = row.spec.config.get("ingest")
    if not isinstance(source, str):
        return row.spec.name
    sessions = format_plural(row.totals.recorded, f"{source} session")
    return f"{sessions} from {row.spec.dataset}"


def list_worst(
    run: Run, *, limit: int, which: ListedKind = "all", summary: RunSummary | None = None
) -> list[ListedSample]:
    """Read failed samples first, then the worst scores, then samples that were not judged.

    Each repeat of a sample is listed by itself. With the run's `summary`, samples of the best
    possible score are left out.
    """
    sign, table = _find_sign(run), run.table()
    lowest = replace(_LOWEST, descending=sign < 0)
    if summary is not None:
        lowest = replace(lowest, filter=_build_worse_filter(_find_best_score(summary, sign), sign))
    queries = [lowest if query is _LOWEST else query for query in _WORST_FIRST[which]]
    rows = islice(chain.from_iterable(map(table.rows, queries)), limit)
    found = (run.find_result(row.key) for row in rows)
    # A run may be deleted meanwhile.
    return [_describe_sample(*each) for each in found if each is not None]


def _find_sign(run: Run) -> int:
    """Return 1 where high scores are good, -1 where low ones are."""
    return -1 if read_recorded_direction(run.spec.config) == "min" else 1


def _describe_sample(row: ResultRow, sample: Sample) -> ListedSample:
    # Only tests record their thresholds; a row of a dataset may have the same key.
    threshold = sample.metadata.get("threshold") if "test" in sample.metadata else None
    return ListedSample(
        row,
        build_label(sample),
        find_reason(sample),
        # The answer of a failed sample, if there is one, is in its transcript.
        sample.response if row.boundary is None else "",
        "" if sample.ground_truth is None else str(sample.ground_truth),
        build_session_label(sample),
        threshold if isinstance(threshold, float) else None,
    )


def describe_score(row: ResultRow) -> str:
    """Return the score of a result, or why it has none."""
    if row.boundary is not None:
        return f"{row.boundary} failed"
    return f"{row.score:.3f}" if row.valid and row.score is not None else "not judged"


def find_reason(sample: Sample) -> str:
    """Return the failure, the scorer's reason or its error; "" if there is none."""
    if sample.failure is not None:
        return f"{sample.failure.kind}: {sample.failure.message}"
    return "" if sample.score is None else explain_result(sample.score)


def find_body(run: Run, row: ResultRow) -> Sample:
    """Load the whole sample of a result row."""
    for _, sample in run.samples_by_key([row.key]):
        return sample
    raise ConfigError(f"sample {row.sample_id!r} was deleted", where=f"run {run.id!r}")


def group_low_scores(run: Run, summary: RunSummary) -> LowScores:
    """Group the results worse than the best possible score by reason."""
    sign, table = _find_sign(run), run.table()
    best = _find_best_score(summary, sign)
    worse = _build_worse_filter(best, sign)
    query = TableQuery(worse, sort="score", descending=sign < 0)
    rows = table.read_page(query, size=MAX_REASONS_READ).rows
    shown = _group_by_reason(rows, lambda row: sign * (best - (row.score or 0.0)))
    return LowScores(
        best=best,
        results=table.count_rows(worse),
        read=len(rows),
        groups=shown,
        others=len(rows) - sum(group.results for group in shown),
        low_is_good=sign < 0,
    )


def group_not_judged(run: Run) -> NotJudged:
    """Group the results without a failure and without a valid score by reason."""
    table = run.table()
    rows = table.read_page(_NOT_JUDGED, size=MAX_REASONS_READ).rows
    groups = _group_by_reason(rows, lambda row: 1.0)
    has_reasons = any(group.reason is not None for group in groups)
    results = table.count_rows(_NOT_JUDGED.filter) if rows else 0
    return NotJudged(results=results, read=len(rows), groups=groups if has_reasons else ())


def _group_by_reason(
    rows: Sequence[TableRow], weigh: Callable[[TableRow], float]
) -> tuple[ReasonGroup, ...]:
    """Return the groups of the most weight."""
    groups: dict[str, _ReasonCounter] = {}
    for row in rows:
        groups.setdefault(normalize_reason(row.reason), _ReasonCounter()).add(row, weigh(row))
    costliest = sorted(groups.items(), key=lambda item: -item[1].lost)
    return tuple(group.build(pattern) for pattern, group in costliest[:_MAX_REASON_GROUPS])


def _build_worse_filter(best: float, sign: int) -> str:
    # Weighted metrics may sum to 0.9999999999999999, which must count as 1.0.
    return f"score < {best - NOISE!r}" if sign > 0 else f"score > {best + NOISE!r}"


def _find_best_score(summary: RunSummary, sign: int) -> float:
    scale, distribution = summary.bounds or (0.0, 1.0), summary.score.distribution
    # Without bounds, scores outside 0..1 are on an unknown scale.
    if summary.bounds is None and distribution is not None and distribution.bins is None:
        scale = (distribution.lowest, distribution.highest)
    return scale[1 if sign > 0 else 0]


def normalize_reason(reason: str) -> str:
    """Return a reason on one line, with `N` for numbers and `'…'` for quoted values."""
    # Quotes first: they may contain numbers, and are cut where the text is.
    text = " ".join(reason[:_MAX_REASON_CHARS].split())
    return _NUMBER.sub("N", _QUOTED.sub("'…'", text))


class _ReasonCounter:
    def __init__(self) -> None:
        self.results = 0
        self.lost = 0.0
        """The sum of the distances to the best score."""

        self._total: float | None = None
        self._most_lost = 0.0
        self._reasons: set[str] = set()
        self._example = ("", 0, "", "")

    def add(self, row: TableRow, lost: float) -> None:
        reason = row.reason
        if lost > self._most_lost:
            self._most_lost = lost
            self._example = (row.sample_id, row.repeat, row.label, reason)
        self.results += 1
        self.lost += lost
        if row.score is not None:
            self._total = (self._total or 0.0) + row.score
        # Two are enough to know that they differ.
        if len(self._reasons) < 2:
            self._reasons.add(reason)

    def build(self, pattern: str) -> ReasonGroup:
        sample_id, repeat, label, reason = self._example
        return ReasonGroup(
            reason=(reason if len(self._reasons) == 1 else pattern) or None,
            results=self.results,
            mean=None if self._total is None else self._total / self.results,
            example=sample_id,
            repeat=repeat,
            label=label,
            example_reason=reason or None,
        )
