"""The list of runs: score with interval, change against the previous run, cost and failures."""

from typing import Any

from starlette.requests import Request

from assay.store import RunRow, RunStatus, Store

from .page import PageModel, build_page_routes, read_parameter

_RUNS_PER_PAGE = 100
_DEFAULT_SCALE = (0.0, 1.0)


class ListedRun(PageModel):
    """One run of the list."""

    id: str
    name: str
    agent: str | None
    dataset: str
    status: RunStatus
    created_at: str
    finished_at: str | None
    recorded: int
    total: int | None
    """Results to record, repeats included; None if unknown."""

    valid: int
    failed: int
    mean: float | None
    cost_usd: float | None
    tokens: int | None


class RunsView(PageModel):
    """The page of all runs, newest first."""

    runs: tuple[ListedRun, ...]
    query: str


def read_runs(store: Store, request: Request) -> RunsView:
    """Read the newest runs that match the search."""
    query = read_parameter(request, "q").strip()
    rows = store.runs(limit=_RUNS_PER_PAGE)
    listed = [_describe_run(row) for row in rows]
    if query:
        words = query.lower().split()
        listed = [each for each in listed if _matches(each, words)]
    return RunsView(runs=tuple(listed), query=query)


def _matches(run: ListedRun, words: list[str]) -> bool:
    text = " ".join(filter(None, (run.id, run.name, run.agent, run.dataset, run.status))).lower()
    return all(word in text for word in words)


def _describe_run(row: RunRow) -> ListedRun:
    totals = row.totals
    known = totals.input_tokens is not None and totals.output_tokens is not None
    return ListedRun(
        id=row.id,
        name=row.spec.name,
        agent=find_agent_name(row.spec.config),
        dataset=row.spec.dataset,
        status=row.status,
        created_at=row.spec.created_at,
        finished_at=row.finished_at,
        recorded=totals.recorded,
        total=None if row.spec.total is None else row.spec.total * row.spec.repeats,
        valid=totals.valid,
        failed=totals.failed,
        mean=totals.mean,
        cost_usd=totals.cost_usd,
        tokens=(totals.input_tokens or 0) + (totals.output_tokens or 0) if known else None,
    )


def find_agent_name(config: dict[str, Any]) -> str | None:
    """Return the agent or model of a run's configuration, if it has one."""
    for name in ("agent", "endpoint"):
        value = config.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, dict):
            found = value.get("name") or value.get("model")
            if isinstance(found, str):
                return found
    return None


ROUTES = build_page_routes("/", "/api/runs", template="runs.html", section="runs", read=read_runs)
