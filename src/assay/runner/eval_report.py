"""The report of an evaluation: figures at once, samples read from the store on demand."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from assay.datasets import SkippedRows
from assay.errors import MissingExtra, StoreError
from assay.stats import RunSummary, format_interval, format_plural, summarise_recorded
from assay.store import ResultRow, Run, RunSpec, Store
from assay.types import Sample, build_label

if TYPE_CHECKING:
    from pandas import DataFrame

_MAX_WORST_SAMPLES = 5


class RunSamples:
    """The samples of a run in dataset order, read from the store during iteration.

    Failed samples are included, with their `failure`.
    """

    def __init__(self, store: Store | str | Path | None, run_id: str, count: int) -> None:
        self._store = store
        self._run_id = run_id
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sample]:
        with self.open_run() as run:
            yield from run.samples()

    @contextmanager
    def open_run(self) -> Iterator[Run]:
        """Open the run for reading, in its own connection unless the store was passed open."""
        if isinstance(self._store, Store):
            yield self._store.run(self._run_id)
            return
        with Store.open(self._store, create=False) as store:
            yield store.run(self._run_id)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            wanted = range(self._count)[index]
            if not wanted:
                return []
            # The store reads forwards only: read the covered range once, then reverse.
            first, last = min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1])
            passed = enumerate(islice(self, first, last + 1), first)
            chosen = [sample for number, sample in passed if number in wanted]
            return chosen if wanted.step > 0 else chosen[::-1]
        number = range(self._count)[index]
        return next(islice(self, number, None))


@dataclass(frozen=True)
class ReplayCounts:
    """The model calls of a replayed run, without those of samples from before it was resumed."""

    replayed: int
    """Calls that were answered from the recording."""

    live: int
    """Calls that are not in it, and that the model answered."""


@dataclass(frozen=True)
class EvalReport:
    """A finished or interrupted run."""

    run_id: str
    spec: RunSpec
    """Configuration and dataset of the run, with their fingerprints."""

    store: str
    """Address of the store, without user and password."""

    summary: RunSummary
    samples: RunSamples
    interrupted: bool = False
    skipped: SkippedRows | None = None
    """Invalid rows of the dataset, if they were skipped."""

    replay: ReplayCounts | None = None
    """The calls of a replayed run; None for any other."""

    @property
    def mean(self) -> float | None:
        """The mean score of the scored samples, with repeats averaged first."""
        return self.summary.score.interval.mean

    def __str__(self) -> str:
        state = " (interrupted)" if self.interrupted else ""
        return f"{self.summary}\nrun           {self.run_id}{state}"

    def results(self) -> Iterator[ResultRow]:
        """Yield one narrow row for each result, in dataset order, read during iteration."""
        with self.samples.open_run() as run:
            yield from run.results()

    def read_labels(self, sample_ids: Iterable[str]) -> dict[str, str]:
        """Return the label of each of these samples that the run has."""
        with self.samples.open_run() as run:
            return run.read_labels(sample_ids)

    def to_pandas(self) -> "DataFrame":
        """Return a data frame with one row for each result. Raises `MissingExtra` without pandas.

        Metrics are columns such as `metric.tone`. Unknown values are missing.
        """
        try:
            from pandas import DataFrame
        except ImportError:
            by = "EvalReport.to_pandas()"
            raise MissingExtra.build("pandas", by=by, package="pandas") from None
        with self.samples.open_run() as run:
            rows = [_build_result_values(row, sample) for row, sample in run.results_with_samples()]
        known = {*_FIRST_COLUMNS, *_LAST_COLUMNS}
        metrics = sorted({name for row in rows for name in row} - known)
        return DataFrame(rows, columns=[*_FIRST_COLUMNS, *metrics, *_LAST_COLUMNS])

    def _repr_html_(self) -> str:
        """Return the report for notebooks: score, interval, reasons, failed and worst samples.

        Each repeat of a sample is listed by itself, with the scores of the others.
        """
        # Not above: a script that evaluates and shows no HTML starts faster without it.
        from assay.stats import draw_svg_bar, escape_html, find_score_range, format_html_table

        from .run_report import group_low_scores, group_not_judged

        summary = self.summary
        interval = summary.score.interval
        with self.samples.open_run() as run:
            groups = run.failure_groups()
            low, unjudged = group_low_scores(run, summary), group_not_judged(run)
            failed = _build_html_rows(run, "failed", summary)
            worst = _build_html_rows(run, "judged", summary)
        failures: list[tuple[str, ...]] = [
            (str(group.samples), f"{group.boundary}: {group.kind}: {group.message}", group.label)
            for group in groups
        ]
        counts = format_plural(summary.samples, "sample")
        state = " (interrupted)" if self.interrupted else ""
        reasons = ("results", "reason", "such as")
        head: tuple[str, ...] = ("score", "question", "answer", "expected", "reason", "id")
        if summary.repeats > 1:
            head = (*head, "all repeats")
        else:
            failed, worst = ([row[:-1] for row in rows] for rows in (failed, worst))
        tables = (
            ("reasons for failed samples", reasons, failures),
            (low.title, reasons, low.rows),
            (unjudged.title, reasons, unjudged.rows),
            ("failed samples", head, failed),
            ("worst samples", head, worst),
        )
        return (
            f"<p><b>{escape_html(format_interval(interval))}</b></p>"
            f"{draw_svg_bar(interval, find_score_range(summary))}"
            f"<p>{counts}, {summary.not_judged_results} of "
            f"{format_plural(summary.results, 'result')} not judged; "
            f"run {escape_html(self.run_id)}{state}</p>"
            f"{''.join(format_html_table(*table) for table in tables)}"
        )


def _build_html_rows(
    run: Run, which: Literal["failed", "judged"], summary: RunSummary
) -> list[tuple[str, ...]]:
    from .run_report import describe_score, list_worst

    rows: list[tuple[str, ...]] = []
    for each in list_worst(run, limit=_MAX_WORST_SAMPLES, which=which, summary=summary):
        # A repeat that failed must not hide behind one that passed, nor the other way round.
        repeats = [describe_score(row) for row in run.results(sample_id=each.row.sample_id)]
        cells = (each.score, each.label, each.answer, each.expected, each.reason, each.name)
        rows.append((*cells, ", ".join(repeats)))
    return rows


_FIRST_COLUMNS = ("id", "label", "repeat", "score")
_LAST_COLUMNS = (
    *("response", "expected", "input_tokens", "output_tokens", "cost_usd", "latency_s"),
    "failure",
)


def _build_result_values(row: ResultRow, sample: Sample) -> dict[str, Any]:
    failure = sample.failure
    return {
        "id": row.sample_id,
        "label": build_label(sample),
        "repeat": row.repeat,
        "score": row.score if row.valid else None,
        **{f"metric.{name}": value for name, value in row.metrics.items()},
        "response": sample.response,
        "expected": sample.ground_truth,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "cost_usd": row.cost_usd,
        "latency_s": row.latency_s,
        "failure": None
        if failure is None
        else f"{failure.boundary}: {failure.kind}: {failure.message}",
    }


def build_eval_report(
    run: Run, store: Store, *, reopen: Store | str | Path | None, interrupted: bool
) -> EvalReport:
    """Read the figures of a run; its samples stay in the store."""
    totals = run.totals
    summary = summarise_recorded(run.results(), run.spec.config)
    # For pages and lists, which would read all results again. A store that became read-only, or is
    # locked, still has a report.
    with suppress(StoreError):
        run.keep_summary(summary.model_dump_json(), totals)
    return EvalReport(
        run_id=run.id,
        spec=run.spec,
        store=store.where,
        summary=summary,
        samples=RunSamples(reopen, run.id, summary.results),
        interrupted=interrupted,
    )
