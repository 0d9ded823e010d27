"""The application: the routes of all pages behind the security rules."""

import secrets
from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from assay.errors import AssayError, ConfigError, StoreError
from assay.store import Store
from assay.types import redact

from . import (
    certificate_page,
    compare_page,
    failures_page,
    history_page,
    label_page,
    run_page,
    runs_page,
    sample_page,
    sessions_page,
    static_files,
    token_page,
    training_page,
    transcript_pair_page,
)
from .page import ViewContext, render_page
from .render import build_templates
from .security import AccessRules, SecurityMiddleware

PAGES = (
    runs_page,
    run_page,
    label_page,
    sample_page,
    token_page,
    compare_page,
    transcript_pair_page,
    history_page,
    failures_page,
    training_page,
    certificate_page,
    sessions_page,
    static_files,
)
"""Modules with `ROUTES`."""


def build_app(
    store: Store,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    decode_token: Callable[[int], str] | None = None,
    project: Path | None = None,
) -> Starlette:
    """Build the application over an open store, for a server that listens on `host`.

    `token` is required from every visitor; an address other than loopback needs one.
    `decode_token` returns the text of a token id. The certificates of the folder `project` are
    shown as well.
    """
    rules = AccessRules(host, page_token=secrets.token_urlsafe(24), access_token=token)
    app = Starlette(
        routes=[route for page in PAGES for route in page.ROUTES],
        middleware=[Middleware(SecurityMiddleware, rules=rules)],
        exception_handlers=dict.fromkeys((HTTPException, AssayError, Exception), _show_exception),
    )
    app.state.view = ViewContext(store, build_templates(), rules.page_token, decode_token, project)
    app.state.streams = {"open": 0}
    return app


def _show_exception(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return _show_error(request, error.status_code, error.detail)
    if not isinstance(error, AssayError):
        # The traceback goes to the terminal; a page may be looked at by others.
        return _show_error(request, 500, "the viewer failed; its terminal shows the traceback")
    if isinstance(error, StoreError):
        # The store could be read when the viewer was started.
        hint = error.hint or (
            "The store may be locked, or was deleted, moved or upgraded. Reload the page, or start "
            "`assay view` again."
        )
        return _show_error(request, 503, redact(error.message), hint)
    status = 400 if isinstance(error, ConfigError) else 500
    return _show_error(request, status, redact(error.message), error.hint)


def _show_error(request: Request, status: int, message: str, hint: str | None = None) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": message, "hint": hint}, status)
    text = render_page(request, "error.html", None, status=status, message=message, hint=hint)
    return Response(text, status, media_type="text/html")
