"""Requests to the pages: over HTTP to a viewer, and to the function that reads a page."""

import http.client
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request

from assay.web import ViewServer


class Answer(NamedTuple):
    """What a viewer answered. Names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


def ask(
    viewer: ViewServer, path: str, *, method: str = "GET", body: str | None = None, **headers: str
) -> Answer:
    """Send one request. Headers have dashes for `_`."""
    place = urlsplit(viewer.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, body=body, headers=named)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, found, answer.read().decode())
    finally:
        connection.close()


def ask_json(viewer: ViewServer, path: str) -> Any:
    """Return the JSON of a page. Raises `AssertionError` for an error."""
    answer = ask(viewer, path)
    assert answer.status == 200, answer.body
    return answer.json


def build_request(*given: tuple[str, str], project: Path | None = None, **segments: str) -> Request:
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
