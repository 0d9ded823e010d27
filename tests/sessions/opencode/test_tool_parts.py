"""Tool parts: what counts as an error, what was asked for, and how long it took."""

from typing import Any

import pytest

from assay.sessions.opencode.tool_parts import (
    INTERRUPTED_RESULT,
    ToolUse,
    find_child_session,
    read_tool_part,
)
from opencode_archives import tool


def read(part: dict[str, Any]) -> ToolUse:
    return read_tool_part({"id": "prt_1", **part}, call_id="call_1", agent_message="msg_1")


def details(part: dict[str, Any]) -> dict[str, Any]:
    found = read(part).answer.details
    assert found is not None
    return found


def test_a_completed_call_has_its_output_and_timing() -> None:
    use = read(
        tool(
            "read",
            input={"filePath": "a"},
            output="text",
            title="a",
            time={"start": 1000, "end": 3500},
        )
    )

    assert (use.call.name, use.call.arguments, use.answer.text) == (
        "read",
        {"filePath": "a"},
        "text",
    )
    assert use.answer.details == {
        "message_id": "msg_1",
        "part_id": "prt_1",
        "call_id": "call_1",
        "status": "completed",
        "failed": False,
        "is_error": False,
        "started": "1970-01-01T00:00:01.000Z",
        "ended": "1970-01-01T00:00:03.500Z",
        "duration_s": 2.5,
        "title": "a",
    }


def test_a_tool_that_does_not_exist_is_an_error_under_its_own_name() -> None:
    use = read(tool("invalid", input={"tool": "fly", "error": "no tool fly"}, output="..."))

    assert (use.call.name, use.call.arguments, use.answer.text) == ("fly", {}, "no tool fly")
    found = use.answer.details or {}
    assert (found["is_error"], found["failed"], found["raw_tool"]) == (True, True, "invalid")


@pytest.mark.parametrize(("code", "is_error"), [(0, False), (3, True)])
def test_an_exit_status_decides_though_the_call_completed(code: int, is_error: bool) -> None:
    found = details(tool("bash", output="", metadata={"exit": code}))

    assert (found["exit_code"], found["is_error"], found["failed"]) == (code, is_error, False)


@pytest.mark.parametrize("status", ["pending", "running"])
def test_a_call_without_a_result_was_interrupted(status: str) -> None:
    use = read(tool("bash", status, input={"command": "sleep"}))

    assert use.answer.text == INTERRUPTED_RESULT
    assert (use.answer.details or {})["status"] == status
    assert (use.answer.details or {})["is_error"]


def test_an_error_is_what_the_model_was_told() -> None:
    use = read(tool("bash", "error", error="denied by a rule"))

    assert use.answer.text == "denied by a rule"
    assert (use.answer.details or {})["failed"]


def test_a_second_copy_of_the_output_is_not_kept() -> None:
    found = details(tool("bash", output="long", metadata={"output": "long", "exit": 0}))

    assert found["metadata"] == {"exit": 0}


def test_what_is_not_known_of_a_state_survives() -> None:
    found = details(tool("x", output="o", attachments=[{"url": "data:"}], later=1) | {"odd": 2})

    assert (found["attachments"], found["later"]) == ([{"url": "data:"}], 1)
    assert found["part"] == {"odd": 2}


@pytest.mark.parametrize("state", [None, "done", {"input": "raw", "output": {"a": 1}}])
def test_a_state_of_another_type_is_no_reason_to_fail(state: Any) -> None:
    use = read({"type": "tool", "tool": "x", "state": state})

    assert use.call.arguments == {}


def test_an_output_that_was_compacted_later_says_so() -> None:
    assert details(tool("x", output="o", time={"compacted": 0}))["compacted"].startswith("1970")


@pytest.mark.parametrize(
    "metadata", [{"sessionId": "ses_2"}, {"summary": [1, {"sessionID": "ses_2"}]}]
)
def test_the_session_of_a_subagent_is_found(metadata: dict[str, Any]) -> None:
    assert find_child_session(metadata) == "ses_2"
    assert details(tool("task", output="", metadata=metadata))["subagent"] == "ses_2"


def test_most_calls_start_no_subagent() -> None:
    assert find_child_session({"summary": "text"}) is None
