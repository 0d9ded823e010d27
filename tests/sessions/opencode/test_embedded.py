"""The oldest messages, which hold their parts."""

from typing import Any

import pytest

from assay.errors import BadRow
from assay.sessions.opencode.embedded import extract_parts, is_embedded


def message(*parts: Any, **metadata: Any) -> dict[str, Any]:
    return {"id": "msg_1", "role": "assistant", "parts": list(parts), "metadata": metadata}


def invocation(state: str = "result", **call: Any) -> dict[str, Any]:
    known = {"toolCallId": "c", "toolName": "read", "args": {"a": 1}, "state": state}
    return {"type": "tool-invocation", "toolInvocation": {**known, **call}}


def state_of(part: dict[str, Any], **tools: Any) -> dict[str, Any]:
    (found,) = extract_parts(message(part, tool=tools), where="here").parts
    state: dict[str, Any] = found["state"]
    return state


def test_a_message_of_a_later_version_is_told_apart() -> None:
    assert is_embedded(message())
    assert not is_embedded({"id": "msg_1", "role": "user"})


def test_what_stood_in_metadata_moves_to_the_message() -> None:
    read = extract_parts(
        message(time={"created": 1}, assistant={"modelID": "m"}, tool={}, error={"name": "E"}),
        where="here",
    )

    assert read.info == {
        "id": "msg_1",
        "role": "assistant",
        "time": {"created": 1},
        "modelID": "m",
        "error": {"name": "E"},
    }


def test_a_text_stored_in_pieces_is_one_text() -> None:
    pieces = [{"type": "text", "text": "Helo, "}, {"type": "text", "text": "Ada!"}]

    (part,) = extract_parts(message(*pieces), where="here").parts

    assert part == {"id": "msg_1:00000", "type": "text", "text": "Helo, Ada!"}


def test_a_result_is_a_completed_call_with_its_time() -> None:
    state = state_of(invocation(result="ok"), c={"title": "t", "time": {"start": 1}, "exit": 0})

    assert state == {
        "input": {"a": 1},
        "metadata": {"exit": 0},
        "title": "t",
        "time": {"start": 1},
        "status": "completed",
        "output": "ok",
    }


def test_an_error_is_only_written_among_the_details() -> None:
    state = state_of(invocation(result="no"), c={"error": True})

    assert (state["status"], state["error"]) == ("error", "no")


def test_a_call_of_a_tool_that_did_not_exist_is_an_error() -> None:
    assert state_of(invocation(result="request was aborted"))["status"] == "error"


@pytest.mark.parametrize(("stored", "status"), [("call", "running"), ("partial-call", "pending")])
def test_a_call_without_a_result_is_unfinished(stored: str, status: str) -> None:
    assert state_of(invocation(stored))["status"] == status


def test_other_parts_are_kept_as_they_are() -> None:
    odd = {"type": "source-url", "url": "https://example.com"}

    (part,) = extract_parts(message(odd), where="here").parts

    assert part == {"id": "msg_1:00000", **odd}


def test_a_part_that_is_no_object_is_refused() -> None:
    with pytest.raises(BadRow, match="here: part 0 is not an object"):
        extract_parts(message("text"), where="here")


def test_a_text_in_very_many_pieces_is_joined_in_one_pass() -> None:
    many = 200_000

    stored = extract_parts(message(*[{"type": "text", "text": "word "}] * many), where="here")

    assert [part["text"] for part in stored.parts] == ["word " * many]
