"""The list of runs: score with interval, change against the previous run, cost and failures."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from assay.runner import build_run_label, parse_summary
from assay.stats import estimate_interval, read_recorded_bounds
from assay.store import RunRow, RunStatus, Store

from .live_updates import Change, stream_changes
from .page import (
    PageModel,
    build_page_routes,
    find_context,
    read_choice,
    read_number,
    read_parameter,
)

RUNS_PER_PAGE = 100
# Older runs are reached by paging; a search through them all would read each one's totals.
_MAX_SEARCHED = 2000
_MAX_NAMES = 8
_DEFAULT_SCALE = (0.0, 1.0)
STATUSES = ("running", "completed", "interrupted", "failed")


class ListedRun(PageModel):
    """One run of the list."""

    id: str
    name: str
    """The name of the evaluation; for ingested sessions their number and source."""

    agent: str | None
    dataset: str
    status: RunStatus
    created_at: str
    finished_at: str | None
    recorded: int
    total: int | None
    """Results to record, repeats included; None if unknown."""

    repeats: int
    failed: int
    """Samples whose attempts all failed."""

    unscored: int
    """Results without a valid score."""

    mean: float | None
    low: float | None
    high: float | None
    """The ends of the 95 % interval; None if unknown."""

    scale: tuple[float, float]
    """The lowest and highest score to draw."""

    previous: str | None
    """The run of the same evaluation before this one."""

    change: float | None
    """The difference of the means, without a test: `assay compare` tests it."""

    cost_usd: float | None
    cost_is_partial: bool
    """Whether results of unknown cost, or failed attempts, add to the cost."""

    tokens: int | None


class NameCount(PageModel):
    """An evaluation, and how many of the listed runs it has."""

    name: str
    runs: int


class RunsView(PageModel):
    """The page of all runs, newest first."""

    runs: tuple[ListedRun, ...]
    names: tuple[NameCount, ...]
    query: str
    status: str
    name: str
    page: int
    more: bool
    """Whether older runs follow on the next page."""

    is_live: bool
    """Whether a run is in progress."""

    searched: int | None
    """How many of the newest runs were searched, if the store has more."""


def read_runs(store: Store, request: Request) -> RunsView:
    """Read one page of runs that match the search."""
    query, name = read_parameter(request, "q").strip(), read_parameter(request, "name")
    status = read_choice(request, "status", STATUSES) or ""
    page = read_number(request, "page", low=1, high=10_000) or 1
    is_search = bool(query or name or status)
    # One more than is shown, and the runs before those, so that the last one has its change too.
    limit = _MAX_SEARCHED + 1 if is_search else page * RUNS_PER_PAGE + RUNS_PER_PAGE
    rows = store.runs(limit=limit)
    is_cut = is_search and len(rows) == limit
    rows = rows[:_MAX_SEARCHED] if is_cut else rows
    previous = _find_previous(rows)
    words = query.lower().split()
    matching = [
        row
        for row in rows
        if (not name or row.spec.name == name)
        and (not status or row.status == status)
        and _matches(row, words)
    ]
    shown = matching[(page - 1) * RUNS_PER_PAGE : page * RUNS_PER_PAGE]
    summaries = store.read_summaries([row.id for row in shown])
    names = Counter(row.spec.name for row in rows)
    return RunsView(
        runs=tuple(
            _describe_run(row, summaries.get(row.id), previous.get(row.id)) for row in shown
        ),
        names=tuple(
            NameCount(name=each, runs=count) for each, count in names.most_common(_MAX_NAMES)
        ),
        query=query,
        status=status,
        name=name,
        page=page,
        more=len(matching) > page * RUNS_PER_PAGE,
        is_live=any(row.status == "running" for row in rows),
        searched=len(rows) if is_cut else None,
    )


def _matches(row: RunRow, words: list[str]) -> bool:
    if not words:
        return True
    agent = find_agent_name(row.spec.config)
    texts = (row.id, build_run_label(row), agent, row.spec.dataset, row.status)
    # One text: the words of a search may be in different columns.
    text = " ".join(filter(None, texts)).lower()
    return all(word in text for word in words)


def _find_previous(rows: Sequence[RunRow]) -> dict[str, RunRow]:
    """Return for each run the one before it with the same name and dataset."""
    found: dict[str, RunRow] = {}
    newer: dict[tuple[str, str], str] = {}
    for row in rows:
        evaluation = (row.spec.name, row.spec.dataset)
        # A run without scores says nothing about the one after it.
        if row.totals.mean is not None and evaluation in newer:
            found[newer[evaluation]] = row
        if row.totals.mean is not None:
            newer[evaluation] = row.id
    return found


def _describe_run(row: RunRow, summary: str | None, previous: RunRow | None) -> ListedRun:
    totals, spec = row.totals, row.spec
    low, high, scale = estimate_score(row, summary)
    known = totals.input_tokens is not None and totals.output_tokens is not None
    change = None
    if previous is not None and totals.mean is not None and previous.totals.mean is not None:
        change = totals.mean - previous.totals.mean
    return ListedRun(
        id=row.id,
        name=build_run_label(row),
        agent=find_agent_name(spec.config),
        dataset=spec.dataset,
        status=row.status,
        created_at=spec.created_at,
        finished_at=row.finished_at,
        recorded=totals.recorded,
        total=None if spec.total is None else spec.total * spec.repeats,
        repeats=spec.repeats,
        failed=totals.failed,
        unscored=totals.invalid,
        mean=totals.mean,
        low=low,
        high=high,
        scale=scale,
        previous=None if previous is None else previous.id,
        change=change,
        cost_usd=totals.cost_usd,
        cost_is_partial=totals.cost_known < totals.recorded or totals.attempts > 0,
        tokens=(totals.input_tokens or 0) + (totals.output_tokens or 0) if known else None,
    )


def estimate_score(
    row: RunRow, summary: str | None
) -> tuple[float | None, float | None, tuple[float, float]]:
    """Return the interval of a run's score and the scale to draw it on, without its results."""
    bounds = read_recorded_bounds(row.spec.config)
    totals = row.totals
    low = high = None
    if (stored := parse_summary(summary)) is not None:
        low, high = stored.score.interval.low, stored.score.interval.high
    elif row.spec.repeats == 1:
        # Repeats of a sample depend on each other, so that sums over results are not enough.
        estimated = estimate_interval(
            totals.valid, totals.score_sum, totals.score_square_sum, bounds=bounds
        )
        low, high = estimated.low, estimated.high
    known = [each for each in (low, high, totals.mean) if each is not None]
    scale = bounds or _DEFAULT_SCALE
    if bounds is None and known and not (min(known) >= 0 and max(known) <= 1):
        width = max(known) - min(known) or 1.0
        scale = (min(known) - width / 2, max(known) + width / 2)
    return low, high, scale


def find_agent_name(config: dict[str, Any]) -> str | None:
    """Return the agent or the model of a run's configuration, if it has one."""
    agent, endpoint = config.get("agent"), config.get("endpoint")
    if isinstance(agent, str):
        return agent
    if isinstance(agent, dict) and isinstance(agent.get("name"), str):
        return str(agent["name"])
    if isinstance(endpoint, dict) and isinstance(endpoint.get("model"), str):
        provider = endpoint.get("provider")
        return f"{provider}:{endpoint['model']}" if provider else str(endpoint["model"])
    return None


def _stream_runs(request: Request) -> StreamingResponse:
    store = find_context(request).store

    def read(seen: str) -> Change | None:
        revision = store.read_revision()
        return None if revision == seen else Change(revision, {"revision": revision}, False)

    return stream_changes(request, read)


ROUTES = [
    *build_page_routes("/", "runs.html", read_runs, api_path="/api/runs"),
    Route("/api/events", _stream_runs, methods=["GET"]),
]
