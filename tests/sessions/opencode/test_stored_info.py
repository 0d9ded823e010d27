"""What is said about sessions and messages."""

from typing import Any

import pytest

from assay.sessions.opencode.stored_info import (
    error_text,
    input_of,
    system_text,
    without_headers,
    without_secrets,
)


def test_the_headers_of_a_failed_answer_are_left_out() -> None:
    error = {"name": "APIError", "data": {"message": "m", "responseHeaders": {"set-cookie": "s"}}}

    assert without_headers(error) == {"name": "APIError", "data": {"message": "m"}}


@pytest.mark.parametrize("odd", ["text", None, {"name": "E"}, {"data": 3}])
def test_an_error_of_another_shape_is_kept(odd: Any) -> None:
    assert without_headers(odd) == odd


def test_an_error_is_told_in_one_line() -> None:
    assert error_text({"name": "E", "data": {"message": "m"}}) == "E: m"
    assert error_text({"name": "E"}) == "E"
    assert error_text("text") == "text"
    assert error_text(None) is None


def test_the_secret_of_a_share_is_left_out() -> None:
    info = {"id": "s", "share": {"url": "u", "secret": "x"}}

    assert without_secrets(info) == {"id": "s", "share": {"url": "u"}}


def test_what_a_session_is_has_no_unknowns() -> None:
    assert input_of({"title": "t", "time": {"created": 0}}) == {
        "title": "t",
        "created": "1970-01-01T00:00:00.000Z",
    }


def test_a_system_prompt_of_pieces_is_one_text() -> None:
    assert system_text({"system": ["a", "", 3, "b"]}) == "a\n\nb"
    assert system_text({}) == ""
