"""One run: its score against the threshold, its figures, and its samples as a table."""

from itertools import islice

from starlette.requests import Request

from assay.store import RunStatus, Store

from .page import PageModel, build_page_routes, find_run, read_segment

_ROWS_PER_PAGE = 100


class TableRow(PageModel):
    """One result in the table."""

    key: str
    sample_id: str
    repeat: int
    status: str
    score: float | None
    seconds: float | None


class RunView(PageModel):
    """The page of one run."""

    id: str
    name: str
    dataset: str
    status: RunStatus
    mean: float | None
    rows: tuple[TableRow, ...]


def read_run(store: Store, request: Request) -> RunView:
    """Read a run and the first page of its samples."""
    run = find_run(store, read_segment(request, "run_id"))
    row = run.row()
    rows = tuple(
        TableRow(
            key=each.key,
            sample_id=each.sample_id,
            repeat=each.repeat,
            status=each.status,
            score=each.score if each.valid else None,
            seconds=each.latency_s,
        )
        for each in islice(run.results(), _ROWS_PER_PAGE)
    )
    return RunView(
        id=row.id,
        name=row.spec.name,
        dataset=row.spec.dataset,
        status=row.status,
        mean=row.totals.mean,
        rows=rows,
    )


ROUTES = build_page_routes(
    "/run/{run_id}", "/api/run/{run_id}", template="run.html", section="runs", read=read_run
)
