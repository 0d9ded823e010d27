"""One run: its score against the threshold, its figures, and its samples as a table."""

from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from assay.errors import AssayError, ConfigError
from assay.runner import build_run_report, describe_run
from assay.stats import RunSummary, find_score_range
from assay.store import Run, RunRow, Store, TableQuery
from assay.types import reaches_threshold

from .figures import FigureCache
from .live_updates import Change, stream_changes
from .page import (
    PageModel,
    build_api_route,
    build_page_routes,
    copy_fields,
    encode_segment,
    find_context,
    find_run,
    read_number,
    read_parameter,
    read_segment,
)
from .render import MAX_QUOTED_CHARS, parse_stored_moment, quote_for_filter
from .runs_page import find_agent_name

ROWS_PER_PAGE = 100
_MAX_ROWS = 500
_MAX_SHOWN_METRICS = 4
# Many failed tries in a row are not worth reading for one number.
_MAX_EARLIER_RUNS = 5


class SampleRow(PageModel):
    """One result, or one sample that failed and has none."""

    key: str
    id: str
    repeat: int
    index: int | None
    status: str
    score: float | None
    failed: str | None
    """The boundary at which the sample failed."""

    label: str
    answer: str
    expected: str
    reason: str
    metrics: dict[str, float | None]
    fields: dict[str, Any]
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    seconds: float | None
    verdict: str | None
    """The verdict of a person: `pass` or `fail`."""

    @property
    def tokens(self) -> int | None:
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


class GroupRow(PageModel):
    """Results with the same value in one column."""

    value: str | float | None
    results: int
    scored: int
    mean: float | None
    failed: int


class TableView(PageModel):
    """One page of the results of a run."""

    run: str
    filter: str
    sort: str
    descending: bool
    rows: tuple[SampleRow, ...]
    next: str | None
    """The cursor of the next page; pass it as `after`."""

    previous: str | None
    """The cursor of the previous page; pass it as `before`."""

    matched: int | None
    """Results that the filter selects; None where counting them takes long, see `/count`."""

    total: int
    """Results, and samples that failed without one."""

    metrics: tuple[str, ...]
    fields: tuple[str, ...]
    """Columns of the dataset that can be filtered and grouped by."""

    group: str
    groups: tuple[GroupRow, ...]
    more_groups: bool
    searchable: bool
    """Whether texts and columns can be searched: not in results of older versions of assay."""

    low_is_good: bool
    pass_mark: float
    """The best score: results that reach it are shown as passed."""

    fail_mark: float
    """Results that are worse than the best score, and no better than this, are shown as failed."""

    def link(self, **changes: str | None) -> str:
        """Return the address of this table with other parameters; None removes one."""
        given: dict[str, str | None] = {
            "filter": self.filter,
            "sort": self.sort if self.sort != "position" else None,
            "order": "desc" if self.descending else None,
            "group": self.group,
            **changes,
        }
        query = urlencode({name: value for name, value in given.items() if value})
        return f"/run/{encode_segment(self.run)}{f'?{query}' if query else ''}#samples"

    def sort_link(self, column: str) -> str:
        """Return the address that sorts by a column; the other way round if it already does."""
        turned = self.sort == column and not self.descending
        return self.link(sort=column, order="desc" if turned else None)

    def group_link(self, value: str | float | None) -> str:
        """Return the address of the samples of one group."""
        if value is None:
            term = "unknown"
        else:
            term = f"{value!r}" if isinstance(value, float) else quote_for_filter(str(value))
        plain = self.group.replace("_", "").replace(".", "").isalnum()
        name = self.group if plain else f"`{self.group}`"
        # A long text is known by its beginning only.
        operator = "~" if isinstance(value, str) and len(value) > MAX_QUOTED_CHARS else "="
        given = f"({self.filter}) and " if self.filter else ""
        return self.link(filter=f"{given}{name} {operator} {term}", group=None)

    def sample_link(self, row: SampleRow) -> str:
        """Return the address of a sample, which knows the table that it was opened from."""
        query = urlencode(
            {
                name: value
                for name, value in (
                    ("filter", self.filter),
                    ("sort", self.sort if self.sort != "position" else ""),
                    ("order", "desc" if self.descending else ""),
                )
                if value
            }
        )
        path = f"/run/{encode_segment(self.run)}/sample/{encode_segment(row.key)}"
        return f"{path}?{query}" if query else path

    def grade(self, score: float | None) -> str:
        """Return the class of a score: pass, fail, none if unscored, plain in between."""
        return grade_score(score, (self.pass_mark, self.fail_mark), low_is_good=self.low_is_good)


class PreviousRun(PageModel):
    """The run of the same evaluation before this one."""

    id: str
    change: float | None
    """The mean difference of the pairs; the difference of the means where they are not compared."""

    p_value: float | None
    """Of the paired test; None where the runs are too large to compare on this page."""

    conclusion: str | None


class RunView(PageModel):
    """The page of one run. The first keys are those of `assay show RUN --json`."""

    run: dict[str, Any]
    summary: RunSummary
    retried: dict[str, Any]
    replay: dict[str, Any] | None
    """The recording that the run replayed."""

    failures: tuple[dict[str, Any], ...]
    not_judged: dict[str, Any]
    low_scores: dict[str, Any]
    training: dict[str, Any] | None
    samples: tuple[dict[str, Any], ...]
    labels: dict[str, int]
    """Counts of the labels that people gave: total, passed, failed, scored, corrected."""

    agent: str | None
    threshold: float | None
    """The lowest mean score with which the test of the run passes."""

    scale: tuple[float, float]
    failed: int
    unscored: int
    previous: PreviousRun | None
    is_live: bool
    table: TableView

    @property
    def passes(self) -> bool:
        """Whether the mean reaches the threshold."""
        mean = self.summary.score.interval.mean
        if mean is None or self.threshold is None:
            return False
        return reaches_threshold(mean, self.threshold, low_is_good=self.table.low_is_good)

    @property
    def worse_filter(self) -> str:
        """The filter of the results worse than the best possible score."""
        side = ">" if self.table.low_is_good else "<"
        return f"score {side} {self.low_scores['best']:.12g}"

    @property
    def worst_order(self) -> str | None:
        """The order that lists the worst scores first; None for ascending."""
        return "desc" if self.table.low_is_good else None

    @property
    def seconds(self) -> float | None:
        """The wall-clock time of a finished run."""
        start, end = (
            parse_stored_moment(self.run["created_at"]),
            parse_stored_moment(self.run["finished_at"]),
        )
        return None if start is None or end is None else (end - start).total_seconds()


def read_run(store: Store, request: Request) -> RunView:
    """Read a run and one page of its samples."""
    run = find_run(store, read_segment(request, "run_id"))
    row, figures = run.row(), find_context(request).figures
    is_live = row.status == "running"
    summary = figures.read_summary(run, is_live=is_live)
    report = build_run_report(run, summary=summary)
    plain = report.plain()
    replay = plain["replay"]
    return RunView(
        # Any program may have recorded the configuration that this is a part of.
        **{**plain, "summary": summary, "replay": replay if isinstance(replay, dict) else None},
        agent=find_agent_name(run.spec.config),
        threshold=report.threshold,
        scale=find_score_range(summary),
        failed=row.totals.failed,
        unscored=row.totals.invalid,
        previous=_find_previous_run(store, run, row, figures),
        is_live=is_live,
        table=_read_table(run, row, request, find_marks(run, summary)),
    )


def read_table(store: Store, request: Request) -> TableView:
    """Read one page of the samples of a run, without the figures of the run."""
    run = find_run(store, read_segment(request, "run_id"))
    row, figures = run.row(), find_context(request).figures
    summary = figures.read_summary(run, is_live=row.status == "running")
    return _read_table(run, row, request, find_marks(run, summary))


def grade_score(
    score: float | None, marks: tuple[float, float], *, low_is_good: bool = False
) -> str:
    """Return the class of a score by the marks of `find_marks`; `none` if unscored."""
    if score is None:
        return "none"
    if reaches_threshold(score, marks[0], low_is_good=low_is_good):
        return "pass"
    return "fail" if (score >= marks[1] if low_is_good else score <= marks[1]) else "plain"


def find_marks(run: Run, summary: RunSummary) -> tuple[float, float]:
    """Return from which score a result is shown as passed, and up to which as failed."""
    best, worst = find_score_range(summary)
    if not is_low_good(run):
        best, worst = worst, best
    distribution = summary.score.distribution
    bins = None if distribution is None else distribution.bins
    # Only the ends of the scale occur: everything below the best score failed.
    is_binary = bins is not None and not any(bins[1:-1])
    return best, (best if is_binary else (best + worst) / 2)


def is_low_good(run: Run) -> bool:
    return run.spec.config.get("direction") == "min"


def _read_table(run: Run, row: RunRow, request: Request, marks: tuple[float, float]) -> TableView:
    query = TableQuery(
        filter=read_parameter(request, "filter").strip(),
        sort=read_parameter(request, "sort", "position") or "position",
        descending=read_parameter(request, "order") == "desc",
    )
    table, group = run.table(), read_parameter(request, "group")
    size = read_number(request, "size", low=1, high=_MAX_ROWS) or ROWS_PER_PAGE
    after, before = read_parameter(request, "after"), read_parameter(request, "before")
    page = table.read_page(query, size=size, after=after or None, before=before or None)
    labels = run.find_labels(each.key for each in page.rows)
    groups, more = table.group_rows(group, query.filter) if group else ([], False)
    total = row.totals.recorded + row.totals.failed
    names = dict.fromkeys(name for each in page.rows for name in each.metrics)
    # Counting what a filter selects takes long, unless all of it is on this page.
    is_whole = page.next is None and page.previous is None
    return TableView(
        run=run.id,
        filter=query.filter,
        sort=query.sort,
        descending=query.descending,
        rows=tuple(
            copy_fields(
                SampleRow,
                each,
                id=each.sample_id,
                failed=each.boundary,
                seconds=each.latency_s,
                verdict=labels[each.key].verdict if each.key in labels else None,
            )
            for each in page.rows
        ),
        next=page.next,
        previous=page.previous,
        matched=total if not query.filter else len(page.rows) if is_whole else None,
        total=total,
        metrics=tuple(list(names)[:_MAX_SHOWN_METRICS]),
        fields=tuple(table.read_field_names()),
        group=group,
        groups=tuple(GroupRow(**asdict(each)) for each in groups),
        more_groups=more,
        searchable=not query.filter or table.has_excerpts(),
        low_is_good=is_low_good(run),
        pass_mark=marks[0],
        fail_mark=marks[1],
    )


def _find_previous_run(
    store: Store, run: Run, row: RunRow, figures: FigureCache
) -> PreviousRun | None:
    if row.totals.mean is None:
        return None
    for run_id in store.earlier_runs(run.id)[:_MAX_EARLIER_RUNS]:
        try:
            earlier = store.run(run_id)
            totals = earlier.totals
        except ConfigError:
            continue  # deleted meanwhile
        if totals.mean is None:
            continue
        compared = None
        if row.status != "running":
            # Runs that cannot be compared, on other scales for instance, still have their means.
            try:
                results = row.totals.recorded + totals.recorded
                compared = figures.compare(earlier, run, results=results)
            except AssayError:
                compared = None
        return PreviousRun(
            id=run_id,
            change=row.totals.mean - totals.mean if compared is None else compared.difference.mean,
            p_value=None if compared is None else compared.p_value,
            conclusion=None if compared is None else str(compared.conclusion),
        )
    return None


class CountView(PageModel):
    """How many results a filter selects."""

    filter: str
    matched: int


def read_count(store: Store, request: Request) -> CountView:
    """Count the results that a filter selects."""
    run = find_run(store, read_segment(request, "run_id"))
    text = read_parameter(request, "filter").strip()
    return CountView(filter=text, matched=run.table().count_rows(text))


def _stream_run(request: Request) -> StreamingResponse:
    store = find_context(request).store
    run = find_run(store, read_segment(request, "run_id"))

    def read(seen: str) -> Change | None:
        revision = run.read_revision()
        if revision == seen:
            return None
        if revision == "deleted":
            return Change(revision, {"status": "deleted"}, True)
        row = run.row()
        return Change(revision, describe_run(row) | {"config": None}, row.status != "running")

    return stream_changes(request, read)


ROUTES = [
    *build_page_routes("/run/{run_id}", "run.html", read_run),
    *build_page_routes("/run/{run_id}/table", "run_table.html", read_table),
    build_api_route("/api/run/{run_id}/count", read_count),
    Route("/api/run/{run_id}/events", _stream_run, methods=["GET"]),
]
