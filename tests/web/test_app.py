"""The application: its pages, their JSON, and errors as pages."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from assay.web import ViewServer
from recorded_pages import RecordedPages


def get(viewer: ViewServer, path: str) -> tuple[int, dict[str, str], str]:
    request = urllib.request.Request(viewer.url.rstrip("/") + path)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read().decode()


def get_json(viewer: ViewServer, path: str) -> Any:
    status, headers, body = get(viewer, path)
    assert (status, headers["content-type"]) == (200, "application/json")
    return json.loads(body)


def test_lists_the_runs(viewer: ViewServer, pages: RecordedPages) -> None:
    status, headers, body = get(viewer, "/")

    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert f'href="/run/{pages.baseline}"' in body


def test_pages_are_json_too(viewer: ViewServer, pages: RecordedPages) -> None:
    listed = get_json(viewer, "/api/runs")
    run = get_json(viewer, f"/api/run/{pages.repeats}")

    assert pages.repeats in [each["id"] for each in listed["runs"]]
    assert run["run"]["id"] == pages.repeats


@pytest.mark.parametrize("path", ["/run/unknown", "/nothing", "/static/..%2fapp.py"])
def test_an_unknown_page_is_not_found(path: str, viewer: ViewServer) -> None:
    status, headers, body = get(viewer, path)

    assert status == 404
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert "Not found" in body


def test_an_error_of_the_api_is_json(viewer: ViewServer) -> None:
    status, _, body = get(viewer, "/api/run/unknown")

    assert status == 404
    assert json.loads(body)["error"] == "run 'unknown' does not exist"
