"""Anthropic's messages API: requests read, answers written, streams put together again."""

import json
from dataclasses import replace
from typing import Any

import pytest

from assay.errors import WireError
from assay.formats import (
    EventReader,
    MessagesStream,
    ModelAnswer,
    from_anthropic,
    read_messages_conversation,
    read_messages_request,
    write_event,
    write_messages_answer,
    write_messages_error,
    write_messages_events,
)
from assay.types import Message
from model_answers import ANSWERS


def read_stream(data: bytes) -> MessagesStream:
    stream = MessagesStream()
    for event in EventReader().feed(data):
        stream.add(event)
    return stream


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_stream_is_put_together_to_the_answer_it_was_written_from(answer: ModelAnswer) -> None:
    body = write_messages_answer(answer)

    stream = read_stream(b"".join(write_messages_events(body, {})))

    assert stream.is_complete
    assert stream.build_answer() == body
    if body["content"]:
        (own,) = from_anthropic([{"role": "assistant", "content": body["content"]}])
        assert own.tool_calls == answer.message.tool_calls
        assert own.reasoning == answer.message.reasoning
        assert own.text == answer.message.text


def test_cached_tokens_are_counted_separately() -> None:
    usage = write_messages_answer(ANSWERS["text"])["usage"]

    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (8, 4)


def test_counts_of_null_at_the_end_of_a_stream_keep_those_of_its_start() -> None:
    counted = {"input_tokens": 20, "cache_read_input_tokens": 100, "output_tokens": 1}
    ended = {"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 5}
    events = [
        {"type": "message_start", "message": {"usage": counted}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": ended},
    ]
    data = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)

    assert read_stream(data).build_answer()["usage"] == {**counted, "output_tokens": 5}


def test_the_text_of_a_refusal_is_written() -> None:
    message = Message.model_validate({"role": "assistant", "refusal": "I cannot."})
    written = write_messages_answer(replace(ANSWERS["text"], message=message))

    assert written["content"] == [{"type": "text", "text": "I cannot."}]


def test_a_stream_without_its_end_is_incomplete() -> None:
    events = list(write_messages_events(write_messages_answer(ANSWERS["text"]), {}))

    assert not read_stream(b"".join(events[:-2])).is_complete


def test_an_error_in_a_stream_is_kept() -> None:
    event = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n'

    assert read_stream(event).error == {"type": "overloaded_error"}


def test_arguments_that_were_cut_are_kept_as_text() -> None:
    start = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
    events = [
        {"type": "content_block_start", "index": 0, "content_block": start},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"a": '},
        },
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
    ]
    data = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)

    (block,) = read_stream(data).build_answer()["content"]

    assert block == {**start, "partial_json": '{"a": '}


def test_a_request_is_read_with_its_settings_and_tools() -> None:
    request = read_messages_request(
        {
            "model": "claude",
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {}}],
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "system", "content": "Tools have changed."},
            ],
            "max_tokens": 9,
            "stop_sequences": ["END"],
            "tools": [{"name": "f", "input_schema": {"type": "object"}, "cache_control": {}}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": "high"},
            "context_management": {"edits": [1]},
            "stream": True,
        }
    )

    assert [(message.role, message.text) for message in request.messages] == [
        ("system", "Be brief."),
        ("user", "hi"),
        ("system", "Tools have changed."),
    ]
    assert request.settings == {
        "max_tokens": 9,
        "thinking": {"type": "adaptive"},
        "stop": ("END",),
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }
    dropped = [each.where for each in request.dropped]
    assert dropped == ["context_management", "output_config.effort", "tools[0]"]


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"mcp_servers": [{"url": "http://x"}]},
        {"tool_choice": {"type": "new"}},
        {"output_config": {"format": {"type": "new"}}},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": 3},
        {"stop_sequences": "END"},
    ],
)
def test_what_only_this_api_has_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        read_messages_request({"messages": [], **more})


def test_a_conversation_without_turns_is_empty() -> None:
    assert read_messages_conversation({}) == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (429, "rate_limit_error"),
        (529, "overloaded_error"),
        (502, "api_error"),
    ],
)
def test_errors_have_the_type_that_clients_know(status: int, kind: str) -> None:
    body = write_messages_error(status, "broken", None)

    assert body["error"] == {"type": kind, "message": "broken"}


def test_long_texts_and_arguments_in_many_pieces_are_joined_once() -> None:
    stream, piece = MessagesStream(), "x" * 1000
    blocks = {0: "text", 1: "thinking", 2: "tool_use"}
    deltas = {0: ("text_delta", "text"), 1: ("thinking_delta", "thinking")}
    for index, kind in blocks.items():
        name, key = deltas.get(index, ("input_json_delta", "partial_json"))
        block = {"type": kind, "id": "c0"}
        parts = [{"type": "content_block_start", "index": index, "content_block": block}]
        delta = {"type": "content_block_delta", "index": index, "delta": {"type": name, key: piece}}
        # Copied with each piece, it would be 600 GB for each block: this test would not end.
        for part in [*parts, *[delta] * 35_000]:
            (event,) = EventReader().feed(write_event(part))
            stream.add(event)

    for _ in range(2):
        content = stream.build_answer()["content"]
        assert [len(content[0]["text"]), len(content[1]["thinking"])] == [35_000_000] * 2
        assert len(content[2]["partial_json"]) == 35_000_000


def test_citations_are_collected_and_a_block_that_starts_again_is_empty() -> None:
    start = {"type": "content_block_start", "content_block": {"type": "text", "text": "a"}}
    text = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "b"}}
    events = [start, text, start, text]
    for number in range(3):
        cited = {"type": "citations_delta", "citation": number}
        events.append({"type": "content_block_delta", "delta": cited})

    (block,) = read_stream(b"".join(map(write_event, events))).build_answer()["content"]

    assert block == {"type": "text", "text": "ab", "citations": [0, 1, 2]}
