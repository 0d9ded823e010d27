"""The score of one evaluation over time: by run and commit, with intervals and real changes."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request

from assay.errors import ConfigError
from assay.runner import parse_summary
from assay.stats import (
    Comparison,
    Conclusion,
    RunSummary,
    adjust_p_values,
    compare,
    find_score_range,
    format_number,
    read_recorded_bounds,
    read_recorded_direction,
    summarise_recorded,
)
from assay.store import RunRow, RunStatus, Store

from .compare_page import find_commit
from .curves import CurvePoint
from .page import PageModel, build_page_routes, encode_segment, find_run, read_parameter
from .render import format_moment, format_money, format_seconds
from .runs_page import find_agent_name
from .value_cache import ValueCache, build_run_key

_MAX_RUNS_READ = 1000
_MAX_POINTS = 60
# Results read by one request; what is computed is kept for the next one.
_MAX_RESULTS_READ = 300_000
# Statistics keep no results: as many as a cache has room for.
_SUMMARIES = ValueCache(max_results=1000)
_COMPARED = ValueCache(max_results=1000)
_MARKS: dict[str, Literal["better", "worse"]] = {
    Conclusion.BETTER: "better",
    Conclusion.WORSE: "worse",
}
_Value = TypeVar("_Value")


class EvaluationHistory(PageModel):
    """Runs with the same name and dataset."""

    name: str
    dataset: str
    runs: int
    newest: str
    """When the newest run was started."""

    means: tuple[float | None, ...]
    """The mean scores of the newest runs, oldest first."""

    query: str


class ScoreChange(PageModel):
    """The paired difference of a run from the run before it."""

    previous: str
    """The id of the run before."""

    difference: float | None
    p_value: float | None
    adjusted_p: float | None
    """Adjusted by Holm's method for all changes on the page."""

    conclusion: str
    pairs: int


class HistoryPoint(PageModel):
    """One run."""

    run: str
    status: RunStatus
    created_at: str
    commit: str | None
    agent: str | None
    mean: float | None
    low: float | None
    high: float | None
    results: int
    failed: int
    cost_usd: float | None
    p50_s: float | None
    p95_s: float | None
    change: ScoreChange | None


class HistoryView(PageModel):
    """All evaluations, or the history of one."""

    evaluations: tuple[EvaluationHistory, ...] = ()
    name: str | None = None
    dataset: str | None = None
    agent: str | None = None
    agents: tuple[str, ...] = ()
    """The agents of the evaluation's runs."""

    threshold: float | None = None
    low_is_good: bool = False
    """Whether low scores are good in the newest run."""

    scale: tuple[float, float] = (0.0, 1.0)
    points: tuple[HistoryPoint, ...] = ()
    """Oldest first."""

    older: int = 0
    """Runs before the first point that are not shown."""

    not_computed: int = 0
    """Runs whose interval or change was not computed by this request; reload for more."""

    runs_read: int | None = None
    """How many of the newest runs were read, if the store has more."""

    query: str = ""

    @property
    def score_curve(self) -> list[CurvePoint]:
        """The score of each run; a point leads to the comparison with the run before."""
        return [
            CurvePoint(
                value=point.mean,
                low=point.low,
                high=point.high,
                name=point.commit[:7] if point.commit else format_moment(point.created_at)[5:10],
                title=_describe_point(point),
                link=f"/run/{encode_segment(point.run)}"
                if point.change is None
                else f"/compare?{urlencode([('run', point.change.previous), ('run', point.run)])}",
                mark=None if point.change is None else _MARKS.get(point.change.conclusion),
            )
            for point in self.points
        ]

    @property
    def cost_curve(self) -> list[CurvePoint]:
        """The cost of each run."""
        return [
            CurvePoint(value=point.cost_usd, title=f"{point.run}: {format_money(point.cost_usd)}")
            for point in self.points
        ]

    @property
    def latency_curve(self) -> list[CurvePoint]:
        """The median latency of each run, with a band up to the 95th percentile."""
        return [
            CurvePoint(
                value=point.p50_s,
                low=point.p50_s if point.p95_s is not None else None,
                high=point.p95_s if point.p50_s is not None else None,
                title=f"{point.run}: p50 {format_seconds(point.p50_s)}, "
                f"p95 {format_seconds(point.p95_s)}",
            )
            for point in self.points
        ]


def read_history(store: Store, request: Request) -> HistoryView:
    """Read the history of the evaluation with this name, or of this run; without both a list."""
    name = read_parameter(request, "name") or None
    dataset = read_parameter(request, "dataset") or None
    if name is None and (run_id := read_parameter(request, "run")):
        spec = find_run(store, run_id).spec
        name, dataset = spec.name, spec.dataset
    agent = read_parameter(request, "agent") or None
    newest = store.runs(limit=_MAX_RUNS_READ + 1)
    read = _MAX_RUNS_READ if len(newest) > _MAX_RUNS_READ else None
    rows = [row for row in newest[:_MAX_RUNS_READ] if "ingest" not in row.spec.config]
    if name is None:
        return _list_evaluations(rows).model_copy(update={"runs_read": read})
    chosen = [row for row in rows if row.spec.name == name and dataset in (None, row.spec.dataset)]
    if not chosen:
        which = "no run" if read is None else f"none of the newest {read:,} runs"
        raise HTTPException(404, f"{which} has the name {name[:100]!r}")
    agents = sorted({each for row in chosen if (each := find_agent_name(row.spec.config))})
    if agent is not None:
        chosen = [row for row in chosen if find_agent_name(row.spec.config) == agent]
    # The store lists the newest first; a curve begins with the oldest.
    recorded = [row for row in chosen if row.totals.recorded]
    shown = recorded[:_MAX_POINTS][::-1]
    reader = _PointReader(store)
    summaries = [reader.find_summary(row) for row in shown]
    changes = reader.find_changes(shown)
    points = [_build_point(*each) for each in zip(shown, summaries, changes, strict=True)]
    known = [summary for summary in summaries if summary is not None]
    return HistoryView(
        name=name,
        dataset=dataset,
        agent=agent,
        agents=tuple(agents),
        threshold=_find_threshold(store, shown[-1].id) if shown else None,
        low_is_good=bool(shown) and read_recorded_direction(shown[-1].spec.config) == "min",
        scale=find_score_range(known[-1]) if known else (0.0, 1.0),
        points=tuple(points),
        older=max(len(recorded) - _MAX_POINTS, 0),
        not_computed=len(reader.left_out),
        runs_read=read,
        query=urlencode([("name", name), *([("dataset", dataset)] if dataset else [])]),
    )


def _list_evaluations(rows: Sequence[RunRow]) -> HistoryView:
    grouped: dict[tuple[str, str], list[RunRow]] = {}
    for row in rows:
        grouped.setdefault((row.spec.name, row.spec.dataset), []).append(row)
    return HistoryView(
        evaluations=tuple(
            EvaluationHistory(
                name=name,
                dataset=dataset,
                runs=len(found),
                newest=found[0].spec.created_at,
                means=tuple(row.totals.mean for row in reversed(found[:20])),
                query=urlencode({"name": name, "dataset": dataset}),
            )
            for (name, dataset), found in grouped.items()
        ),
    )


class _PointReader:
    """Reads what the runs of a page need, within a budget of results."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._budget = _MAX_RESULTS_READ
        self.left_out: set[str] = set()

    def find_summary(self, row: RunRow) -> RunSummary | None:
        """Return the kept statistics of a run, or compute them."""
        run = self._store.run(row.id)
        kept = parse_summary(run.find_summary())
        if kept is not None:
            return kept

        def summarise_run() -> RunSummary:
            self._spend(row.totals.recorded)
            return summarise_recorded(run.results(), run.spec.config)

        return self._compute(_SUMMARIES, row.id, (row,), summarise_run)

    def find_changes(self, rows: Sequence[RunRow]) -> list[ScoreChange | None]:
        """Compare each run with the one before it, p-values adjusted for their number."""
        compared = [None, *(self._compare(*each) for each in pairwise(rows))]
        known = [each for each in compared if each is not None]
        adjusted = iter(adjust_p_values([1.0 if e.p_value is None else e.p_value for e in known]))
        changes: list[ScoreChange | None] = []
        # The first run has none before it, and no comparison.
        for before, found in zip([*rows[:1], *rows], compared, strict=False):
            if found is None:
                changes.append(None)
                continue
            p_value = next(adjusted)
            change = ScoreChange(
                previous=before.id,
                difference=found.difference.mean,
                p_value=found.p_value,
                adjusted_p=None if found.p_value is None else p_value,
                conclusion=str(found.model_copy(update={"p_value": p_value}).conclusion),
                pairs=found.pairs,
            )
            changes.append(change)
        return changes

    def _compare(self, before: RunRow, after: RunRow) -> Comparison | None:
        def compare_pair() -> Comparison:
            self._spend(before.totals.recorded + after.totals.recorded)
            return compare(self._store.run(before.id), self._store.run(after.id), limit=0)

        if _read_scale(before.spec.config) != _read_scale(after.spec.config):
            return None
        return self._compute(_COMPARED, after.id, (before, after), compare_pair)

    def _compute(
        self, cache: ValueCache, run: str, rows: Sequence[RunRow], build: Callable[[], _Value]
    ) -> _Value | None:
        key, results = build_run_key(self._store, *rows), sum(row.totals.recorded for row in rows)
        try:
            return cache.get(key, build, results=results, cost=1)
        except _BudgetSpent:
            self.left_out.add(run)
            return None
        except ConfigError:
            # Its own page explains what cannot be averaged; the others still have their points.
            return None

    def _spend(self, results: int) -> None:
        # One is always computed, however large, so that each reload gets further.
        if self._budget <= 0:
            raise _BudgetSpent
        self._budget -= results


class _BudgetSpent(Exception):
    """Nothing more may be read by this request. Not kept by the cache."""


def _read_scale(config: Mapping[str, Any]) -> tuple[float, float, str]:
    return (*(read_recorded_bounds(config) or (0.0, 1.0)), read_recorded_direction(config))


def _build_point(
    row: RunRow, summary: RunSummary | None, change: ScoreChange | None
) -> HistoryPoint:
    interval = None if summary is None else summary.score.interval
    return HistoryPoint(
        run=row.id,
        status=row.status,
        created_at=row.spec.created_at,
        commit=find_commit(row.spec.config),
        agent=find_agent_name(row.spec.config),
        mean=row.totals.mean,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        results=row.totals.recorded,
        failed=row.totals.failed,
        cost_usd=row.totals.cost_usd,
        p50_s=None if summary is None else summary.latency.p50,
        p95_s=None if summary is None else summary.latency.p95,
        change=change,
    )


def _find_threshold(store: Store, run_id: str) -> float | None:
    sample = next(store.run(run_id).samples(), None)
    # Only tests record their thresholds; a row of a dataset may have the same key.
    if sample is None or "test" not in sample.metadata:
        return None
    threshold = sample.metadata.get("threshold")
    return threshold if isinstance(threshold, float) else None


def _describe_point(point: HistoryPoint) -> str:
    text = f"{format_moment(point.created_at)}, score {format_number(point.mean)}"
    if point.low is not None and point.high is not None:
        text += f", interval {format_number(point.low)} to {format_number(point.high)}"
    if point.change is not None and point.change.difference is not None:
        text += f", {format_number(point.change.difference, signed=True)} to the run before"
        text += f" ({point.change.conclusion})"
    return text


ROUTES = build_page_routes("/history", "history.html", read_history, section="history")
