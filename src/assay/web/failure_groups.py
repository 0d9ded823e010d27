"""The bad results of a run, grouped by reason, metric and tool error, with their samples."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from assay.formats import read_tool_outcome
from assay.runner import normalize_reason
from assay.stats import RunSummary
from assay.store import Run, TableQuery, TableRow
from assay.types import NOISE, Message, Sample

from .run_page import find_marks, is_low_good

GroupedBy = Literal["failure", "reason", "metric", "tool"]
"""`failure`: the error of a failed sample; `reason`: a scorer's; `metric`: a metric or check."""

MAX_RESULTS_GROUPED = 50_000
MAX_TRANSCRIPTS_READ = 200
_ROWS_PER_PAGE = 500
_MAX_GROUPS_OF_A_KIND = 500
_MAX_TOOL_ERROR_CHARS = 200
_FAILED = "not failed = unknown"


class BadSample(NamedTuple):
    """One bad result."""

    run: str
    key: str
    sample_id: str
    repeat: int
    label: str
    score: float | None
    failed: str | None
    reason: str


@dataclass
class BadGroup:
    """Bad results that have something in common."""

    by: GroupedBy
    value: str
    samples: list[BadSample] = field(default_factory=list)


@dataclass
class BadResults:
    """The bad results of one run."""

    failed: int
    worse: int
    """Results with a worse score than the best possible one."""

    best: float
    low_is_good: bool = False
    samples: list[BadSample] = field(default_factory=list)
    """Failed ones first, then the worst scores."""

    groups: dict[tuple[GroupedBy, str], BadGroup] = field(default_factory=dict)
    transcripts_read: int = 0
    """The first of `samples`, in which tool errors were counted."""

    ungrouped: int = 0
    """Results beyond the limits of grouping."""

    _kinds: Counter[GroupedBy] = field(default_factory=Counter)
    """The number of groups of each kind: counting them anew for each result is quadratic."""

    _last_ungrouped: str = ""
    """The key of the last result that was left out of a group: it counts once."""

    def add(self, by: GroupedBy, value: str, sample: BadSample) -> None:
        key = (by, value)
        if key not in self.groups:
            if self._kinds[by] >= _MAX_GROUPS_OF_A_KIND:
                self.ungrouped += sample.key != self._last_ungrouped
                self._last_ungrouped = sample.key
                return
            self._kinds[by] += 1
            self.groups[key] = BadGroup(by, value)
        found = self.groups[key].samples
        if not found or found[-1].key != sample.key:
            found.append(sample)


def find_bad_results(run: Run, summary: RunSummary) -> BadResults:
    """Group the failed samples of a run, and the results worse than the best possible score."""
    best, low_is_good, table = find_marks(run, summary)[0], is_low_good(run), run.table()
    # Weighted metrics may sum to 0.9999999999999999, which must count as 1.0.
    worse = f"score > {best + NOISE!r}" if low_is_good else f"score < {best - NOISE!r}"
    found = BadResults(
        failed=table.count_rows(_FAILED),
        worse=table.count_rows(worse),
        best=best,
        low_is_good=low_is_good,
    )
    best_metrics = {
        name: 1.0
        if each.distribution is None or each.distribution.bins
        else each.distribution.highest
        for name, each in summary.metrics.items()
    }
    for row in read_table_rows(run, TableQuery(_FAILED), TableQuery(worse)):
        sample = BadSample(
            run.id,
            row.key,
            row.sample_id,
            row.repeat,
            row.label,
            row.score,
            row.boundary,
            row.reason,
        )
        found.samples.append(sample)
        by: GroupedBy = "reason" if row.boundary is None else "failure"
        prefix = "" if row.boundary is None else f"{row.boundary}: "
        found.add(by, prefix + (normalize_reason(row.reason) or "no reason given"), sample)
        for name, value in row.metrics.items():
            if value is not None and value < best_metrics.get(name, 1.0):
                found.add("metric", name, sample)
        if len(found.samples) == MAX_RESULTS_GROUPED:
            break
    # Here, not in the query: pages in the order of the dataset are read quicker.
    sign = -1 if low_is_good else 1
    for samples in (found.samples, *(group.samples for group in found.groups.values())):
        samples.sort(key=lambda each: (each.failed is None, sign * (each.score or 0.0)))
    found.ungrouped += found.failed + found.worse - len(found.samples)
    for sample, body in read_bodies(run, found.samples[:MAX_TRANSCRIPTS_READ]):
        found.transcripts_read += 1
        for error in list_tool_errors(body.messages):
            found.add("tool", error, sample)
    return found


def read_bodies(run: Run, samples: Sequence[BadSample]) -> Iterator[tuple[BadSample, Sample]]:
    """Yield the whole samples of bad results, in their order; deleted ones are left out."""
    for sample in samples:
        found = run.find_result(sample.key)
        if found is not None:
            yield sample, found[1]


def list_tool_errors(messages: Sequence[Message]) -> list[str]:
    """Return the failed tool calls of a transcript, such as `search: no such file`."""
    names = {call.id: call.name for message in messages for call in message.tool_calls if call.id}
    found = []
    for message in messages:
        if not is_tool_error(message):
            continue
        name = names.get(message.tool_call_id or "", message.name or "tool")
        first = next(filter(str.strip, message.text.splitlines()), "no message")
        found.append(f"{name}: {normalize_reason(first)[:_MAX_TOOL_ERROR_CHARS]}")
    return found


def is_tool_error(message: Message) -> bool:
    """Whether the recorded details of a tool's answer mark it as failed."""
    failed, exit_code = read_tool_outcome(message)
    return bool(failed or exit_code)


def read_table_rows(run: Run, *queries: TableQuery) -> Iterator[TableRow]:
    """Yield the rows of several tables of a run, a page at a time."""
    table = run.table()
    for query in queries:
        after: str | None = None
        while True:
            page = table.read_page(query, size=_ROWS_PER_PAGE, after=after)
            yield from page.rows
            after = page.next
            if after is None:
                break
