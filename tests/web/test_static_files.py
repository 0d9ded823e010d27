"""Styles and scripts: their types, and that unchanged ones are not sent twice."""

from assay.web import ViewServer
from page_requests import ask


def test_files_have_types_that_browsers_accept(viewer: ViewServer) -> None:
    style, script = ask(viewer, "/static/view.css"), ask(viewer, "/static/keys.js")

    assert style.headers["content-type"] == "text/css; charset=utf-8"
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"


def test_an_unchanged_file_is_not_sent_again(viewer: ViewServer) -> None:
    tag = ask(viewer, "/static/view.css").headers["etag"]

    again = ask(viewer, "/static/view.css", If_None_Match=tag)

    assert (again.status, again.body) == (304, "")
