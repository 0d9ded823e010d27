"""pydantic-ai messages: kinds of parts, instructions, and what is reported."""

from typing import Any

import pytest

from assay.formats.conversion import Dropped
from assay.formats.pydantic_ai import read_pydantic_ai_messages
from assay.types import Message, Usage
from message_strategies import data_block, text_block


def request(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"kind": "request", "parts": list(parts), **fields}


def response(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"kind": "response", "parts": list(parts), **fields}


def part(kind: str, content: Any = None, **fields: Any) -> dict[str, Any]:
    return {"part_kind": kind, "content": content, **fields}


def read(*values: Any) -> list[Message]:
    dropped: list[Dropped] = []
    messages, _ = read_pydantic_ai_messages(values, dropped)
    assert dropped == []
    return messages


def test_instructions_become_a_system_message_where_they_change() -> None:
    messages = read(
        request(part("user-prompt", "1"), instructions="Be brief."),
        request(part("user-prompt", "2"), instructions="Be brief."),
        request(part("user-prompt", "3"), instructions="Be long."),
    )

    assert [message.text for message in messages] == ["Be brief.", "1", "2", "Be long.", "3"]


@pytest.mark.parametrize(
    ("given", "role", "failed"),
    [
        (part("tool-return", "x", tool_name="f", tool_call_id="c"), "tool", False),
        (part("tool-return", "x", tool_name="f", outcome="success"), "tool", False),
        (part("tool-return", "x", tool_name="f", outcome="failed"), "tool", True),
        (part("tool-return", "x", tool_name="f", outcome="denied"), "tool", True),
        (part("retry-prompt", "x", tool_name="f", tool_call_id="c"), "tool", True),
        (part("retry-prompt", "x"), "user", None),
        (part("retry-feedback", "x"), "user", None),
    ],
)
def test_outcomes_of_tools_are_marked(
    given: dict[str, Any], role: str, failed: bool | None
) -> None:
    (message,) = read(request(given))

    assert (message.role, message.text) == (role, "x")
    assert (message.details or {}).get("failed") is failed


@pytest.mark.parametrize(
    ("content", "text"), [({"sky": "rain"}, '{"sky":"rain"}'), ([1, 2], "[1,2]"), (3, "3")]
)
def test_the_value_of_a_tool_is_written_as_json(content: Any, text: str) -> None:
    (message,) = read(request(part("tool-return", content, tool_name="f")))

    assert message.content == text


def test_tools_of_the_provider_are_called_and_answered() -> None:
    call = part("builtin-tool-call", tool_name="web_search", args={"q": "x"}, tool_call_id="c")
    answer = part("builtin-tool-return", "found", tool_name="web_search", tool_call_id="c")

    called, answered = read(response(call, answer, part("text", "Done.")))

    assert [(each.id, each.arguments) for each in called.tool_calls] == [("c", {"q": "x"})]
    assert called.text == "Done."
    assert (answered.role, answered.tool_call_id, answered.text) == ("tool", "c", "found")


def test_files_are_images_files_or_addresses() -> None:
    binary = {"kind": "binary", "data": "-_8=", "media_type": "image/png"}
    document = {"kind": "document-url", "url": "https://example.org/a.pdf"}
    items = ["See.", binary, {**binary, "media_type": "application/pdf"}, document]
    note = {"kind": "text-content", "content": "a note"}
    uploaded = {"kind": "uploaded-file", "file_id": "f"}

    (message,) = read(
        request(part("user-prompt", [*items, {"kind": "cache-point"}, note, uploaded]))
    )

    assert message.content == (
        text_block(text="See."),
        data_block(type="image_url", image_url={"url": "data:image/png;base64,+/8="}),
        data_block(type="file", file={"file_data": "data:application/pdf;base64,+/8="}),
        data_block(type="document_url", document_url={"url": "https://example.org/a.pdf"}),
        text_block(text="a note"),
        data_block(type="file", file={"file_id": "f"}),
    )


def test_a_tool_may_return_values_and_files() -> None:
    image = {"kind": "image-url", "url": "https://example.org/a.png"}

    (message,) = read(request(part("tool-return", [{"a": 1}, image], tool_name="f")))

    assert message.content == (
        text_block(text='{"a":1}'),
        data_block(type="image_url", image_url={"url": "https://example.org/a.png"}),
    )


def test_speech_is_its_transcript_and_sound() -> None:
    sound = {"kind": "binary", "data": "AAAA", "media_type": "audio/wav"}
    speech = {"part_kind": "speech", "speaker": "assistant", "transcript": "Hi.", "audio": sound}

    (message,) = read(response(speech))

    assert message.text == "Hi."
    assert message.content is not None
    assert [block if isinstance(block, str) else block.type for block in message.content] == [
        "text",
        "file",
    ]


def test_usage_is_added_up_where_it_is_known() -> None:
    _, usage = read_pydantic_ai_messages(
        [
            response(part("text", "a"), usage={"input_tokens": 3, "output_tokens": 1}),
            response(part("text", "b"), usage={"input_tokens": 0, "output_tokens": 0}),
            response(part("text", "c"), usage={"input_tokens": 4, "output_tokens": 2}),
        ],
        [],
    )

    assert usage == Usage(input_tokens=7, output_tokens=3)


def test_unknown_messages_parts_and_fields_are_reported() -> None:
    dropped: list[Dropped] = []

    messages, _ = read_pydantic_ai_messages(
        [
            {"kind": "event"},
            request(part("instruction-delta", "x"), "text", metadata={"a": 1}),
            request(part("user-prompt", [{"kind": "hologram"}, "see"])),
            response(
                part("thinking", "hm", signature="s"),
                part("tool-call", tool_name=5),
                part("compaction", "x"),
                part("text", "Rain.", citations=[1]),
            ),
        ],
        dropped,
    )

    assert [(message.role, message.text) for message in messages] == [
        ("user", "see"),
        ("assistant", "Rain."),
    ]
    assert messages[1].reasoning == "hm"
    assert [(each.where, each.what) for each in dropped] == [
        ("messages[0]", "not a message of pydantic-ai; left out"),
        ("messages[1].metadata", "no place for `metadata`; left out"),
        ("messages[1].parts[1]", "not a part; left out"),
        ("messages[1].parts[0]", "a part of kind 'instruction-delta'; left out"),
        ("messages[2].parts[0].content[0]", "content of kind 'hologram'; left out"),
        ("messages[3].parts[0].signature", "no place for `signature`; left out"),
        ("messages[3].parts[3].citations", "no place for `citations`; left out"),
        (
            "messages[3].parts[1]",
            "unreadable: the data cannot be read as a ToolCall: Input should be a valid string; "
            "left out",
        ),
        ("messages[3].parts[2]", "a part of kind 'compaction'; left out"),
    ]
