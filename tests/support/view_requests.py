"""Requests to the pages: over HTTP to a viewer, and to the function that reads a page."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from assay.web import ViewServer


def fetch(viewer: ViewServer, path: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and text of a page."""
    request = urllib.request.Request(viewer.url.rstrip("/") + path)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read().decode()


def fetch_json(viewer: ViewServer, path: str) -> Any:
    """The JSON of a page."""
    status, headers, body = fetch(viewer, path)
    assert (status, headers["content-type"]) == (200, "application/json"), body[:300]
    return json.loads(body)


def ask(*given: tuple[str, str], project: Path | None = None, **segments: str) -> Request:
    """A request with these parameters, for the function that reads a page."""
    context = SimpleNamespace(project=project)
    app = SimpleNamespace(state=SimpleNamespace(view=context))
    return Request(
        {
            "type": "http",
            "method": "GET",
            "headers": [],
            "query_string": urlencode(given).encode(),
            "path_params": segments,
            "app": app,
        }
    )
