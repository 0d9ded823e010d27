"""The Responses API: requests read, answers written, streams put together again."""

from typing import Any

import pytest

from assay.errors import WireError
from assay.formats import (
    EventReader,
    ModelAnswer,
    ResponsesStream,
    read_responses_answer,
    read_responses_conversation,
    read_responses_request,
    write_responses_answer,
    write_responses_events,
)
from assay.formats.openai_responses_calls import write_responses_error_event
from assay.types import Message, ToolCall
from model_answers import ANSWERS, build_answer

INNER = {"type": "function", "name": "spawn", "parameters": {"type": "object"}}


def read_stream(data: bytes) -> ResponsesStream:
    stream = ResponsesStream()
    for event in EventReader().feed(data):
        stream.add(event)
    return stream


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_stream_is_put_together_to_the_answer_it_was_written_from(answer: ModelAnswer) -> None:
    body = write_responses_answer(answer)

    stream = read_stream(b"".join(write_responses_events(body, {})))

    assert stream.is_complete
    assert stream.build_answer() == body
    own = read_responses_answer(body["output"], [])
    assert own.tool_calls == answer.message.tool_calls
    assert own.reasoning == answer.message.reasoning
    assert own.text == answer.message.text


def test_items_are_taken_from_their_own_events_where_the_last_one_has_none() -> None:
    body = write_responses_answer(ANSWERS["call"])
    events = list(write_responses_events(body, {}))
    empty = b'event: x\ndata: {"type": "response.completed", "response": {"output": []}}\n\n'

    stream = read_stream(b"".join([*events[:-1], empty]))

    assert stream.build_answer()["output"] == body["output"]


def test_a_stream_without_its_end_is_incomplete() -> None:
    events = list(write_responses_events(write_responses_answer(ANSWERS["text"]), {}))

    assert not read_stream(b"".join(events[:-1])).is_complete


@pytest.mark.parametrize(
    "event",
    [
        b'{"type": "response.failed", "response": {"error": {"message": "busy"}}}',
        b'{"type": "error", "message": "busy"}',
    ],
)
def test_an_error_in_a_stream_is_kept(event: bytes) -> None:
    stream = read_stream(b"data: %s\n\n" % event)

    assert "busy" in str(stream.error)


def test_an_error_is_written_so_that_the_reader_finds_it() -> None:
    stream = read_stream(write_responses_error_event({"error": {"message": "busy", "code": "c"}}))

    assert stream.error == {"message": "busy", "code": "c"}


def test_tools_of_a_namespace_and_with_free_text_are_called_by_their_own_names() -> None:
    request = read_responses_request(
        {
            "input": "hi",
            "tools": [
                {"type": "namespace", "name": "agents", "tools": [INNER]},
                {
                    "type": "custom",
                    "name": "patch",
                    "description": "Apply.",
                    "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
                },
            ],
        }
    )
    assert [tool.name for tool in request.tools] == ["agents__spawn", "patch"]
    assert "start: x" in request.tools[1].description
    calls = (
        ToolCall(id="1", name="agents__spawn", arguments={"a": 1}),
        ToolCall(id="2", name="patch", arguments={"input": "*** Begin"}),
    )

    body = write_responses_answer(
        build_answer(
            Message(role="assistant", tool_calls=calls),
            "tool_calls",
            free_text_tools=request.free_text_tools,
            namespaces=request.namespaces,
        )
    )

    first, second = body["output"]
    assert (first["type"], first["namespace"], first["name"]) == (
        "function_call",
        "agents",
        "spawn",
    )
    assert (second["type"], second["input"]) == ("custom_tool_call", "*** Begin")
    again = read_responses_conversation({"input": body["output"]})
    assert again[0].tool_calls == calls
    assert read_stream(b"".join(write_responses_events(body, {}))).build_answer() == body


def test_a_request_is_read_with_its_settings() -> None:
    request = read_responses_request(
        {
            "instructions": "Be brief.",
            "input": [{"role": "user", "content": "hi"}],
            "max_output_tokens": 9,
            "reasoning": {"effort": "low", "summary": "auto"},
            "text": {"format": {"type": "text"}, "verbosity": "low"},
            "tool_choice": {"type": "function", "name": "f"},
            "include": ["reasoning.encrypted_content"],
            "store": False,
        }
    )

    assert [(message.role, message.text) for message in request.messages] == [
        ("system", "Be brief."),
        ("user", "hi"),
    ]
    assert request.settings == {
        "max_tokens": 9,
        "reasoning_effort": "low",
        "tool_choice": {"name": "f"},
    }
    dropped = {each.where for each in request.dropped}
    assert dropped == {"include", "store", "reasoning.summary", "text.verbosity"}


@pytest.mark.parametrize(
    "more",
    [
        {"previous_response_id": "r"},
        {"conversation": "c"},
        {"background": True},
        {"tools": [{"type": "web_search"}]},
        {"tool_choice": {"type": "hosted"}},
        {"text": {"format": {"type": "grammar"}}},
        {"input": [{"type": "item_reference", "id": "x"}]},
        {"input": [{"role": "user", "content": [{"type": "new_part"}]}]},
        {"input": [3]},
        {"reasoning": 3},
    ],
)
def test_what_only_this_api_has_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        read_responses_request({"input": "hi", **more})
