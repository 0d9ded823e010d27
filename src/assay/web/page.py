"""Pages: one frozen model each, served as HTML and, in the same shape, as JSON under `/api/`."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, unquote

from jinja2 import Environment
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from assay.errors import ConfigError
from assay.store import Run, Store

from .figures import FigureCache
from .value_cache import StillComputing, limit_wait

Section = Literal["runs", "compare", "history", "failures", "sessions", "certificates"]
"""The entry of the navigation that a page belongs to."""

# A page that reads large runs for the first time takes longer; until then it shows that it does.
_MAX_WAIT_S = 1.5
_RELOAD_S = 1
# Longer values are refused: filters and searches are typed, ids are at most 400 characters.
_MAX_PARAMETER_CHARS = 2000


class PageModel(BaseModel):
    """The data of one page: everything that its template shows."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class ViewContext:
    """The parts of a running viewer that pages use."""

    store: Store
    templates: Environment
    page_token: str
    """Sent by our own pages with every write."""

    decode_token: Callable[[int], str] | None = None
    """Returns the text of a token id; None without a tokenizer."""

    project: Path | None = None
    """The folder whose certificates are shown; None for none."""

    figures: FigureCache = field(default_factory=FigureCache)
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the server shuts down, so that live streams end."""


_ViewT = TypeVar("_ViewT", bound=PageModel)
ReadPage = Callable[[Store, Request], PageModel]
"""Builds the model of a page from the store and the parameters of a request."""


def find_context(request: Request) -> ViewContext:
    """Return the context of the app that serves a request."""
    context: ViewContext = request.app.state.view
    return context


def build_page_routes(
    path: str, api_path: str, *, template: str, section: Section, read: ReadPage
) -> list[Route]:
    """Route a page as HTML at `path`, and its model as JSON at `api_path`."""

    # Plain functions: Starlette runs them in its thread pool, and a store may be slow.
    def show(request: Request) -> Response:
        started = time.perf_counter()
        try:
            with limit_wait(_MAX_WAIT_S):
                view = read(find_context(request).store, request)
        except StillComputing as waiting:
            text = render_page(request, "computing.html", section, results=waiting.results)
            # The header reloads the page without a script.
            refresh = {"Refresh": str(_RELOAD_S)}
            return Response(text, 202, media_type="text/html", headers=refresh)
        seen = time.perf_counter()
        text = render_page(request, template, section, view=view)
        return Response(
            text,
            media_type="text/html",
            headers=_build_timing(read=seen - started, render=time.perf_counter() - seen),
        )

    return [Route(path, show, methods=["GET"]), build_api_route(api_path, read)]


def render_page(request: Request, template: str, section: Section | None, **values: Any) -> str:
    """Render a template with the values that every page has."""
    context = find_context(request)
    return context.templates.get_template(template).render(
        section=section,
        page_token=context.page_token,
        where=context.store.where,
        address=request.url.path,
        **values,
    )


def build_api_route(path: str, read: ReadPage) -> Route:
    """Route a model as JSON at `path`."""

    def send_json(request: Request) -> Response:
        started = time.perf_counter()
        body = read(find_context(request).store, request).model_dump_json()
        return Response(
            body,
            media_type="application/json",
            headers=_build_timing(read=time.perf_counter() - started),
        )

    return Route(path, send_json, methods=["GET"])


def _build_timing(**seconds: float) -> dict[str, str]:
    parts = (f"{name};dur={value * 1000:.1f}" for name, value in seconds.items())
    return {"Server-Timing": ", ".join(parts)}


def read_parameter(request: Request, name: str, default: str = "") -> str:
    """Return a parameter of the query. Raises `ConfigError` for one that is too long."""
    value = request.query_params.get(name, default)
    if len(value) > _MAX_PARAMETER_CHARS:
        raise ConfigError(
            f"the parameter {name!r} has {len(value)} characters; "
            f"at most {_MAX_PARAMETER_CHARS} are allowed"
        )
    return value


def encode_segment(text: str) -> str:
    """Encode text as one segment of a path, `/` and `%` included."""
    # Twice, because servers decode a path once before routes split it at `/`.
    return quote(quote(text, safe=""), safe="")


def read_segment(request: Request, name: str) -> str:
    """Return a segment of the path that `encode_segment` wrote."""
    return unquote(request.path_params[name])


def find_run(store: Store, wanted: str) -> Run:
    """Find a run by id, unique prefix, or `latest`. Raises 404 if there is none."""
    try:
        return store.run(wanted)
    except ConfigError as error:
        raise HTTPException(404, error.message) from None


def read_number(request: Request, name: str, *, low: int = 0, high: int = 10**9) -> int | None:
    """Return a parameter of the query that is a whole number; None without it."""
    text = read_parameter(request, name)
    if not text:
        return None
    # The length first: `int` of a very long text takes long. `isdecimal` alone allows other digits.
    if not (text.isascii() and text.isdecimal() and len(text) < 18 and low <= int(text) <= high):
        raise ConfigError(f"{name} must be a whole number from {low} to {high}, not {text[:40]!r}")
    return int(text)


def read_choice(request: Request, name: str, choices: Sequence[str]) -> str | None:
    """Return a parameter of the query that is one of a few words; None without it."""
    text = read_parameter(request, name)
    if text and text not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {text[:60]!r}")
    return text or None


def copy_fields(model: type[_ViewT], source: object, /, **others: Any) -> _ViewT:
    """Build a model from the attributes of the same names, and from `others`."""
    names = model.model_fields.keys() - others.keys()
    return model(**{name: getattr(source, name) for name in names}, **others)
