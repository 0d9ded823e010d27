"""The published rules of OpenAI's fine-tuning files, as assertions."""

import json
from typing import Any

ROLES = {"system", "user", "assistant", "tool"}
KEYS = {"role", "content", "name", "tool_calls", "tool_call_id", "weight"}


def check_row(row: dict[str, Any], kind: str) -> None:
    """Raise `AssertionError` for a row that OpenAI would refuse."""
    json.dumps(row, allow_nan=False)
    if kind == "dpo":
        assert set(row) == {"input", "preferred_output", "non_preferred_output"}
        assert set(row["input"]) <= {"messages", "tools", "parallel_tool_calls"}
        check_messages(row["input"]["messages"], ends_with="user")
        for side in ("preferred_output", "non_preferred_output"):
            assert [each["role"] for each in row[side]] == ["assistant"]
        check_tools(row["input"].get("tools", []))
        return
    check_tools(row.get("tools", []))
    if kind == "sft":
        assert set(row) <= {"messages", "tools", "parallel_tool_calls"}
        assert any(each.get("weight", 1) for each in row["messages"] if _speaks(each))
    check_messages(row["messages"], ends_with="assistant" if kind == "sft" else "user")


def check_messages(messages: list[dict[str, Any]], *, ends_with: str) -> None:
    assert messages, "there are no messages"
    assert messages[-1]["role"] == ends_with
    open_ids: set[str] = set()
    for message in messages:
        assert message["role"] in ROLES
        assert set(message) <= KEYS
        assert "weight" not in message or (_speaks(message) and message["weight"] in (0, 1))
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_ids
            open_ids.discard(message["tool_call_id"])
        else:
            assert not open_ids, "a call is not answered"
        calls = message.get("tool_calls", [])
        assert calls or isinstance(message["content"], str | list)
        assert not calls or _speaks(message)
        for call in calls:
            assert call["type"] == "function"
            assert isinstance(call["function"]["arguments"], str)
            json.loads(call["function"]["arguments"])
        open_ids |= {call["id"] for call in calls}


def check_tools(tools: list[dict[str, Any]]) -> None:
    for tool in tools:
        assert tool["type"] == "function"
        assert tool["function"]["name"]
        assert tool["function"]["parameters"]["type"] == "object"


def _speaks(message: dict[str, Any]) -> bool:
    return bool(message["role"] == "assistant")
