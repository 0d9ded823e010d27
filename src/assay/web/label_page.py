"""Labels: the judgement of a person on a sample, and the only write of the viewer."""

import os
import subprocess
from functools import lru_cache
from itertools import islice
from typing import Annotated

from markupsafe import Markup, escape
from pydantic import ConfigDict, Field, FiniteFloat, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from assay.runner import count_labels
from assay.store import Run, SampleLabel, Store, Verdict

from .page import (
    PageModel,
    build_page_routes,
    copy_fields,
    find_context,
    find_run,
    read_number,
    read_segment,
)

_LABELS_PER_PAGE = 200
_GIT_TIMEOUT_S = 2


class LabelEntry(PageModel):
    """One label. One without values withdraws earlier ones."""

    verdict: Verdict | None
    score: float | None
    answer: str | None
    """The corrected answer."""

    note: str | None
    author: str
    recorded_at: float
    """Seconds since 1970."""

    @property
    def editable(self) -> dict[str, Markup]:
        """The texts for fields in which they are edited: escaped, and exactly as stored."""
        # Elsewhere hidden characters are shown as code points, which would be saved as such.
        return {"answer": escape(self.answer or ""), "note": escape(self.note or "")}


class LabelView(PageModel):
    """The label of a sample, and the name that a new one gets by default."""

    current: LabelEntry | None
    default_author: str


class LabelInput(PageModel):
    """The body of a request that labels a sample."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    verdict: Verdict | None = None
    score: FiniteFloat | None = None
    answer: Annotated[str, Field(max_length=100_000)] | None = None
    note: Annotated[str, Field(max_length=100_000)] | None = None
    author: Annotated[str, Field(max_length=200)] = ""


class ListedLabel(LabelEntry):
    """A label in the list of a run."""

    key: str
    sample: str
    """The id of the sample, with its repeat if the run has several."""


class LabelsView(PageModel):
    """The labels of a run."""

    run_id: str
    run_name: str
    labels: tuple[ListedLabel, ...]
    first: int
    next: int | None
    """Pass as `from` to read the next page."""

    total: int
    passed: int
    failed: int
    corrected: int


@lru_cache(maxsize=1)
def find_author() -> str:
    """Return the name for new labels: that of git, else of the account; "" if unknown."""
    try:
        # Only a read of the configuration: nothing of the folder is run.
        found = subprocess.run(
            ["git", "config", "--get", "user.name"],
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
        name = found.stdout.decode(errors="replace").strip()
    except (OSError, subprocess.SubprocessError):
        name = ""
    if not name:
        try:
            import pwd  # not on Windows

            name = pwd.getpwuid(os.getuid()).pw_name
        except (ImportError, KeyError):
            name = ""
    return name[:200]


def read_label(run: Run, key: str, author: str) -> LabelView:
    """Read the last label of a sample."""
    label = run.find_labels([key]).get(key)
    current = None if label is None else copy_fields(LabelEntry, label)
    return LabelView(current=current, default_author=author)


def read_labels_page(store: Store, request: Request) -> LabelsView:
    """Read the last label of each labelled sample of a run, oldest first."""
    run = find_run(store, read_segment(request, "run_id"))
    first = read_number(request, "from") or 0
    page = list(islice(run.labels(), first, first + _LABELS_PER_PAGE))
    counts = count_labels(run)
    names = {
        key: sample_id if run.spec.repeats == 1 else f"{sample_id}#{repeat}"
        for key, (sample_id, repeat) in run.find_sample_ids(each.key for each in page).items()
    }
    last = first + len(page)
    return LabelsView(
        run_id=run.id,
        run_name=run.spec.name,
        labels=tuple(copy_fields(ListedLabel, each, sample=names[each.key]) for each in page),
        first=first,
        next=last if page and last < counts.total else None,
        total=counts.total,
        passed=counts.passed,
        failed=counts.failed,
        corrected=counts.corrected,
    )


async def _write_label(request: Request) -> Response:
    """Store a label. The security rules have checked origin, token and size of the request."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return JSONResponse({"error": "the label must be sent as application/json"}, 415)
    body = await request.body()
    try:
        given = LabelInput.model_validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"])) or "label"
        return JSONResponse({"error": f"{where}: {problem['msg']}"}, 400)
    store = find_context(request).store
    run_id, key = read_segment(request, "run_id"), read_segment(request, "key")
    written = await run_in_threadpool(_store_label, store, run_id, key, given)
    return Response(written.model_dump_json(), media_type="application/json")


def _store_label(store: Store, run_id: str, key: str, given: LabelInput) -> LabelView:
    run = find_run(store, run_id)
    fields = given.model_dump()
    author = (given.author.strip() or find_author()).strip()
    run.write_label(SampleLabel(key=key, **{**fields, "author": author}))
    return read_label(run, key, find_author())


ROUTES = [
    *build_page_routes(
        "/run/{run_id}/labels",
        "/api/run/{run_id}/labels",
        template="labels.html",
        section="runs",
        read=read_labels_page,
    ),
    Route("/api/run/{run_id}/sample/{key}/label", _write_label, methods=["POST"]),
]
