"""Lists of messages: the mark that decides, and messages that are read despite their faults."""

from typing import Any

import pytest

from assay.formats.conversion import Dropped
from assay.formats.message_lists import classify_message, read_message_list
from assay.types import Message


def parts(kind: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": kind, **fields}]}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Message(role="user", content="x"), "assay"),
        ({"kind": "request", "parts": []}, "pydantic_ai"),
        ({"role": "user", "parts": []}, "gemini"),
        ({"type": "ai", "content": "x"}, "langchain"),
        ({"type": "function_call_output", "call_id": "c", "output": "x"}, "openai_responses"),
        ({"type": "message", "role": "user", "content": "x"}, "openai_responses"),
        (parts("input_text", text="x"), "openai_responses"),
        ({"step_number": 1, "timing": {}}, "smolagents"),
        (parts("tool_result", tool_use_id="t"), "anthropic"),
        (parts("image", source={"type": "url", "url": "https://example.org"}), "anthropic"),
        ({"type": "message", "role": "assistant", "content": []}, "anthropic"),
        (parts("text", text="x"), "openai_chat"),
        (parts("input_audio", input_audio={}), "openai_chat"),
        (parts("refusal", refusal="No."), "openai_chat"),
        (parts("image_url", image_url={"url": "https://example.org"}), "openai_chat"),
        ({"role": "user"}, "openai_chat"),
        ({"type": ["ai"], "content": [{"type": {}}]}, None),
        ({"content": "x"}, None),
        ("x", None),
    ],
)
def test_one_message_is_classified(value: object, name: str | None) -> None:
    assert classify_message(value) == name


def test_the_first_mark_decides_and_other_messages_are_reported() -> None:
    dropped: list[Dropped] = []
    plain = {"role": "user", "content": "hi"}

    name, messages, _ = read_message_list(
        [plain, {"type": "ai", "content": "x"}, {"role": "model", "parts": []}, 7], dropped
    )

    assert name == "langchain"
    assert [message.text for message in messages] == ["hi", "x"]
    assert [note.where for note in dropped] == ["messages[2]", "messages[3]"]


@pytest.mark.parametrize(
    ("role", "read"),
    [("human", "user"), ("ai", "assistant"), ("model", "assistant"), ("critic", "critic")],
)
def test_roles_of_other_libraries_are_understood(role: str, read: str) -> None:
    _, (message,), _ = read_message_list([{"role": role, "content": "x"}], [])

    assert message.role == read


def test_a_call_with_args_is_a_call_with_arguments() -> None:
    call = {"name": "f", "args": {"a": 1}, "id": "c", "type": "tool_call"}

    _, (message,), _ = read_message_list([{"role": "assistant", "tool_calls": [call]}], [])

    (read,) = message.tool_calls
    assert (read.id, read.name, read.arguments, read.model_extra) == ("c", "f", {"a": 1}, {})


@pytest.mark.parametrize(
    ("content", "text"), [({"sky": "rain"}, '{"sky":"rain"}'), (["a", 1], '["a",1]'), (3, "3")]
)
def test_the_value_of_a_tool_is_written_as_json_with_a_note(content: Any, text: str) -> None:
    dropped: list[Dropped] = []
    answer = {"role": "tool", "tool_call_id": "c", "content": content}

    _, messages, _ = read_message_list([{"role": "user", "content": "hi"}, answer], dropped)

    assert messages[1] == Message(role="tool", tool_call_id="c", content=text)
    kind = type(content).__name__
    assert dropped == [
        Dropped("messages[1].content", f"content of type {kind}; written as JSON text")
    ]


def test_values_between_our_messages_are_reported() -> None:
    dropped: list[Dropped] = []
    own = Message(role="user", content="hi")
    step = {"step_number": 1, "timing": {}, "model_output": "x"}

    name, messages, usage = read_message_list([own, step, own, 7], dropped)

    assert (name, [message.text for message in messages], usage) == (
        "smolagents",
        ["hi", "x", "hi"],
        None,
    )
    assert [note.what for note in dropped] == ["a value of type int; left out"]
