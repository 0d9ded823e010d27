"""Ingested sessions by date, project, title, cost, tools and failures; and saved conversations."""

import json
from collections import Counter, OrderedDict
from threading import Lock
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request

from assay.errors import ConfigError
from assay.runner import build_session_label
from assay.store import Run, Store, TableQuery, TableRow

from .failure_groups import list_tool_errors
from .page import PageModel, build_page_routes, copy_fields, find_run, read_parameter
from .value_cache import number_store

_SESSIONS_PER_PAGE = 25
_MAX_RUNS_SEARCHED = 1000
_MAX_WORDS = 6
_MAX_SAVED = 100
_MAX_TOOLS = 6
_MAX_KEPT = 5000


class IngestedRun(PageModel):
    """One import of sessions."""

    id: str
    source: str
    path: str
    created_at: str
    sessions: int


class ListedSession(PageModel):
    """One session of an import."""

    key: str
    id: str
    title: str
    created: str | None
    project: str | None
    directory: str | None
    turns: int
    tools: dict[str, int]
    """Calls by tool, the most used ones."""

    other_tools: int
    """Calls of further tools."""

    tool_errors: int
    failed: str | None
    cost_usd: float | None
    tokens: int | None
    seconds: float | None


class SavedSession(PageModel):
    """A conversation that was saved with `--save-sessions`."""

    id: str
    model: str
    status: str
    messages: int
    updated_at: str


class SessionsView(PageModel):
    """A page of sessions."""

    runs: tuple[IngestedRun, ...]
    """Imports, newest first."""

    run: str | None = None
    """The import that is shown."""

    query: str
    found: int | None = None
    """Sessions that the search found; None without a search."""

    sessions: tuple[ListedSession, ...] = ()
    """Newest first."""

    next: str | None = None
    previous: str | None = None
    saved: tuple[SavedSession, ...]
    address: str = ""
    """The parameters of the address, without the place of the page."""


class _Facts(NamedTuple):
    turns: int
    tools: Counter[str]
    tool_errors: int
    created: str | None
    project: str | None
    directory: str | None


_KEPT: OrderedDict[tuple[int, str, str, float], _Facts] = OrderedDict()
_KEPT_LOCK = Lock()


def read_sessions(store: Store, request: Request) -> SessionsView:
    """Read a page of the sessions of one import."""
    runs = [row for row in store.runs(limit=_MAX_RUNS_SEARCHED) if "ingest" in row.spec.config]
    wanted, query = read_parameter(request, "run"), read_parameter(request, "q").strip()
    saved = tuple(
        copy_fields(SavedSession, row, model=f"{row.provider}:{row.model}")
        for row in store.list_sessions(limit=_MAX_SAVED)
    )
    view = SessionsView(
        runs=tuple(
            IngestedRun(
                id=row.id,
                source=str(row.spec.config["ingest"]),
                path=row.spec.dataset,
                created_at=row.spec.created_at,
                sessions=row.totals.recorded,
            )
            for row in runs
        ),
        query=query,
        saved=saved,
    )
    if not runs and not wanted:
        return view
    run = find_run(store, wanted or runs[0].id)
    table, filter_text = run.table(), build_search(query)
    page = table.read_page(
        TableQuery(filter=filter_text, sort="created", descending=True),
        size=_SESSIONS_PER_PAGE,
        after=read_parameter(request, "after") or None,
        before=read_parameter(request, "before") or None,
    )
    return view.model_copy(
        update={
            "run": run.id,
            "found": table.count_rows(filter_text) if query else None,
            "sessions": tuple(_describe_session(store, run, row) for row in page.rows),
            "next": page.next,
            "previous": page.previous,
            "address": urlencode([("run", run.id), *([("q", query)] if query else [])]),
        }
    )


def build_search(query: str) -> str:
    """Return the filter for sessions with all words in title, text, project or folder."""
    words = query.split()
    if len(words) > _MAX_WORDS:
        raise ConfigError(f"the search has {len(words)} words; at most {_MAX_WORDS} are allowed")
    # As JSON strings: quotes and backslashes of a word stay part of it.
    quoted = (json.dumps(word, ensure_ascii=False) for word in words)
    return " and ".join(f"({word} or project ~ {word} or directory ~ {word})" for word in quoted)


def _describe_session(store: Store, run: Run, row: TableRow) -> ListedSession:
    facts = _read_facts(store, run, row)
    known = row.input_tokens is not None and row.output_tokens is not None
    shown = dict(facts.tools.most_common(_MAX_TOOLS))
    return ListedSession(
        key=row.key,
        id=row.sample_id,
        title=row.label,
        created=facts.created,
        project=facts.project,
        directory=facts.directory,
        turns=facts.turns,
        tools=shown,
        other_tools=facts.tools.total() - sum(shown.values()),
        tool_errors=facts.tool_errors,
        failed=row.boundary,
        cost_usd=row.cost_usd,
        tokens=(row.input_tokens or 0) + (row.output_tokens or 0) if known else None,
        seconds=row.latency_s,
    )


def _read_facts(store: Store, run: Run, row: TableRow) -> _Facts:
    """Read what only the whole session has; kept, as sessions may have megabytes."""
    # An import may be deleted and repeated with the same ids, after the session has grown.
    key = (number_store(store), run.id, row.key, row.recorded_at)
    with _KEPT_LOCK:
        if key in _KEPT:
            return _KEPT[key]
    found = run.find_result(row.key)
    if found is None:
        return _Facts(0, Counter(), 0, None, None, None)
    sample = found[1]
    label, messages = build_session_label(sample), sample.messages
    facts = _Facts(
        turns=len(messages),
        tools=Counter(call.name for message in messages for call in message.tool_calls),
        tool_errors=len(list_tool_errors(messages)),
        created=None if label is None else label.created,
        project=None if label is None else label.project,
        directory=None if label is None else label.directory,
    )
    with _KEPT_LOCK:
        _KEPT[key] = facts
        while len(_KEPT) > _MAX_KEPT:
            _KEPT.popitem(last=False)
    return facts


ROUTES = build_page_routes("/sessions", "sessions.html", read_sessions, section="sessions")
