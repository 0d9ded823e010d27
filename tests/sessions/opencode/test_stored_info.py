"""What is said about sessions and messages."""

from typing import Any

import pytest

from assay.sessions.opencode.stored_info import (
    build_session_input,
    drop_headers,
    drop_share_secret,
    format_stored_error,
    read_system_prompt,
)


def test_the_headers_of_a_failed_answer_are_left_out() -> None:
    error = {"name": "APIError", "data": {"message": "m", "responseHeaders": {"set-cookie": "s"}}}

    assert drop_headers(error) == {"name": "APIError", "data": {"message": "m"}}


@pytest.mark.parametrize("odd", ["text", None, {"name": "E"}, {"data": 3}])
def test_an_error_of_another_shape_is_kept(odd: Any) -> None:
    assert drop_headers(odd) == odd


def test_an_error_is_told_in_one_line() -> None:
    assert format_stored_error({"name": "E", "data": {"message": "m"}}) == "E: m"
    assert format_stored_error({"name": "E"}) == "E"
    assert format_stored_error("text") == "text"
    assert format_stored_error(None) is None


def test_the_secret_of_a_share_is_left_out() -> None:
    info = {"id": "s", "share": {"url": "u", "secret": "x"}}

    assert drop_share_secret(info) == {"id": "s", "share": {"url": "u"}}


def test_what_a_session_is_has_no_unknowns() -> None:
    assert build_session_input({"title": "t", "time": {"created": 0}}) == {
        "title": "t",
        "created": "1970-01-01T00:00:00.000Z",
    }


def test_a_system_prompt_of_pieces_is_one_text() -> None:
    assert read_system_prompt({"system": ["a", "", 3, "b"]}) == "a\n\nb"
    assert read_system_prompt({}) == ""
