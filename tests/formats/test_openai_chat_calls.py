"""Chat completions: requests read, answers written, streams put together again."""

import json
from typing import Any

import pytest

from assay.errors import WireError
from assay.formats import (
    ChatStream,
    EventReader,
    ModelAnswer,
    from_openai_chat,
    read_chat_request,
    write_chat_answer,
    write_chat_error,
    write_chat_events,
    write_event,
)
from model_answers import ANSWERS

WITH_USAGE = {"stream_options": {"include_usage": True}}
FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}}


def read_stream(data: bytes) -> ChatStream:
    stream = ChatStream()
    for event in EventReader().feed(data):
        stream.add(event)
    return stream


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_stream_is_put_together_to_the_answer_it_was_written_from(answer: ModelAnswer) -> None:
    body = write_chat_answer(answer)

    stream = read_stream(b"".join(write_chat_events(body, WITH_USAGE)))

    assert stream.is_complete
    read = stream.build_answer()
    written = dict(body["choices"][0]["message"])
    message = read["choices"][0]["message"]
    assert (message.pop("content") or None) == (written.pop("content") or None)
    assert message == written
    assert read["choices"][0]["finish_reason"] == answer.finish_reason
    assert read.get("usage") == body.get("usage")
    (own,) = from_openai_chat([body["choices"][0]["message"]])
    assert own.tool_calls == answer.message.tool_calls
    assert own.reasoning == answer.message.reasoning
    assert own.text == answer.message.text


def test_usage_is_sent_only_if_asked_for() -> None:
    body = write_chat_answer(ANSWERS["text"])

    assert b'"usage"' not in b"".join(write_chat_events(body, {}))


def test_a_stream_without_its_end_is_incomplete() -> None:
    events = list(write_chat_events(write_chat_answer(ANSWERS["text"]), {}))

    assert not read_stream(b"".join(events[:-2])).is_complete
    assert not read_stream(b"data: [DONE]\n\n").is_complete


def test_an_error_in_a_stream_is_kept() -> None:
    stream = read_stream(b'data: {"error": {"message": "busy"}}\n\n')

    assert stream.error == {"message": "busy"}
    assert not stream.is_complete


@pytest.mark.parametrize(
    "chunk",
    [
        b'{"choices": [1]}',
        b'{"choices": [{"delta": [1]}]}',
        b'{"choices": [{"delta": {"tool_calls": [3]}}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"index": "x"}]}}]}',
        b"nonsense",
    ],
)
def test_a_broken_chunk_is_refused(chunk: bytes) -> None:
    with pytest.raises(WireError):
        read_stream(b"data: %s\n\n" % chunk)


def test_the_ids_of_streamed_tokens_are_joined() -> None:
    parts = b"".join(
        b'data: {"choices": [{"index": 0, "delta": {"content": "%d"}, "token_ids": [%d], '
        b'"logprobs": {"content": [{"token": "x", "logprob": -1}]}}]}\n\n' % (n, n)
        for n in (1, 2)
    )

    (choice,) = read_stream(parts).build_answer()["choices"]

    assert choice["token_ids"] == [1, 2]
    assert len(choice["logprobs"]["content"]) == 2


def test_the_grammar_of_a_tool_that_takes_text_is_part_of_its_description() -> None:
    form = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}
    custom = {"name": "patch", "description": "Edit a file.", "format": form}

    (tool,) = read_chat_request({"tools": [{"type": "custom", "custom": custom}]}).tools

    assert tool.description.startswith("Edit a file.\n")
    assert tool.description.endswith("match this lark grammar:\nstart: x")


def test_pieces_of_lists_and_of_a_deprecated_call_are_joined() -> None:
    details = [{"type": "reasoning.text", "text": "a"}, {"type": "reasoning.encrypted"}]
    deltas: list[Any] = [
        {"function_call": {"name": "f", "arguments": ""}},
        *({"reasoning_details": [each]} for each in details),
        *({"function_call": {"arguments": piece}} for piece in ('{"a"', ": 1}")),
    ]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    data = b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks)

    (choice,) = read_stream(data).build_answer()["choices"]

    assert choice["message"]["reasoning_details"] == details
    assert choice["message"]["function_call"] == {"name": "f", "arguments": '{"a": 1}'}


def test_a_request_is_read_with_its_settings_and_tools() -> None:
    request = read_chat_request(
        {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [
                {"type": "function", "function": {**FUNCTION, "strict": True}},
                {"type": "custom", "custom": {"name": "patch", "description": "p"}},
            ],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "max_completion_tokens": 9,
            "stop": "END",
            "temperature": 0.5,
            "seed": 3,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}},
            "user": "me",
            "n": 1,
        }
    )

    assert [message.text for message in request.messages] == ["hi"]
    assert [tool.name for tool in request.tools] == ["f", "patch"]
    assert request.free_text_tools == {"patch"}
    assert request.settings == {
        "max_tokens": 9,
        "temperature": 0.5,
        "seed": 3,
        "stop": ("END",),
        "tool_choice": {"name": "f"},
        "response_schema": {"name": "a", "schema": {}},
    }
    assert [each.where for each in request.dropped] == ["user", "tools[0].function.strict"]


@pytest.mark.parametrize(
    "more",
    [
        {"n": 2},
        {"tools": [{"type": "web_search"}]},
        {"tool_choice": {"type": "allowed_tools"}},
        {"response_format": {"type": "grammar"}},
        {"logit_bias": {"1": 1}},
        {"modalities": ["audio"]},
        {"messages": "text"},
        {"messages": [3]},
    ],
)
def test_what_only_this_api_has_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        read_chat_request({"messages": [], **more})


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (429, "rate_limit_error"),
        (502, "server_error"),
    ],
)
def test_errors_have_the_type_that_clients_know(status: int, kind: str) -> None:
    error = write_chat_error(status, "broken", "why")["error"]

    assert error == {"message": "broken", "type": kind, "param": None, "code": "why"}


def test_long_arguments_in_many_pieces_are_joined_once() -> None:
    stream, piece = ChatStream(), "x" * 1000
    function = {"name": "write", "arguments": ""}
    # Copied with each piece, it would be 1,800 GB: this test would not end.
    for _ in range(60_000):
        call = {"index": 0, "id": "c0", "type": "function", "function": function}
        chunk = {"choices": [{"delta": {"tool_calls": [call]}}]}
        (event,) = EventReader().feed(write_event(chunk))
        stream.add(event)
        function = {"arguments": piece}

    for _ in range(2):
        (call,) = stream.build_answer()["choices"][0]["message"]["tool_calls"]
        assert call["id"] == "c0"
        assert call["function"] == {"name": "write", "arguments": piece * 59_999}


@pytest.mark.parametrize("name", ["name", "arguments"])
def test_a_piece_of_a_call_that_is_no_text_is_refused(name: str) -> None:
    chunk = {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {name: 3}}]}}]}

    with pytest.raises(WireError, match=f"the {name} of a tool call is not text"):
        read_stream(write_event(chunk))
