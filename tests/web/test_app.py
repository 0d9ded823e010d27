"""The application: errors as pages and as JSON."""

import logging
import threading

import pytest

from assay.errors import StoreError
from assay.store import Store
from assay.web import ViewServer
from page_requests import ask


@pytest.mark.parametrize(
    "path", ["/run/unknown", "/nothing", "/static/..%2fapp.py", "/static/app.py", "/run//table"]
)
def test_an_unknown_page_is_not_found(path: str, viewer: ViewServer) -> None:
    answer = ask(viewer, path)

    assert answer.status == 404
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "Not found" in answer.body


def test_an_error_of_the_api_is_json(viewer: ViewServer) -> None:
    answer = ask(viewer, "/api/run/unknown")

    assert answer.status == 404
    assert answer.json == {"error": "run 'unknown' does not exist", "hint": None}


def test_a_wrong_parameter_is_explained(viewer: ViewServer) -> None:
    answer = ask(viewer, "/api/run/tickets-1/table?filter=score+%3C+high")

    assert answer.status == 400
    assert answer.json["error"].startswith("score is compared with a number")
    assert answer.json["hint"] == "write for example: score < 1"


def test_a_parameter_that_is_too_long_is_refused(viewer: ViewServer) -> None:
    answer = ask(viewer, f"/api/runs?q={'x' * 2001}")

    assert answer.status == 400
    assert "at most 2000" in answer.json["error"]


def test_a_store_that_fails_is_an_error_page(
    page_store: Store, viewer: ViewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(page_store, "runs", fail)
    answer = ask(viewer, "/")

    assert answer.status == 503
    assert "the disk is gone" in answer.body
    assert "start `assay view` again" in answer.body
    assert "default-src 'none'" in answer.headers["content-security-policy"]


class _Heard(logging.Handler):
    """Waits for a record: the server logs an error after it has answered."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.text = logging.Formatter().format(record)
        self.event.set()


def test_an_internal_error_shows_no_details(
    page_store: Store, viewer: ViewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(page_store, "runs", fail)
    heard = _Heard()
    logging.getLogger("uvicorn.error").addHandler(heard)
    answer = ask(viewer, "/api/runs")

    assert answer.status == 500
    assert answer.json["error"] == "the viewer failed; its terminal shows the traceback"
    assert heard.event.wait(60)
    assert "secret detail" in heard.text
    logging.getLogger("uvicorn.error").removeHandler(heard)
