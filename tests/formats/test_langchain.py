"""LangChain messages: blocks of providers, repeated calls, and what is reported."""

from typing import Any

import pytest

from assay.formats.conversion import Dropped
from assay.formats.langchain import read_langchain_messages
from assay.types import Message
from message_strategies import data_block, text_block


def read(*values: Any) -> list[Message]:
    dropped: list[Dropped] = []
    messages, _ = read_langchain_messages(values, dropped)
    assert dropped == []
    return messages


def test_an_answer_that_only_calls_has_no_content() -> None:
    call = {"name": "f", "args": {}, "id": "c"}

    called, empty = read(
        {"type": "ai", "content": "", "tool_calls": [call]}, {"type": "ai", "content": ""}
    )

    assert called.content is None
    assert empty.content == ""


def test_the_models_own_text_of_the_arguments_is_restored() -> None:
    raw = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":  1}'}}

    (message,) = read(
        {
            "type": "ai",
            "content": "",
            "tool_calls": [{"name": "f", "args": {"a": 1}, "id": "c"}],
            "additional_kwargs": {"tool_calls": [raw]},
        }
    )

    assert [call.raw_arguments for call in message.tool_calls] == ['{"a":  1}']


def test_calls_that_were_not_parsed_are_read_from_the_provider() -> None:
    raw = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{oops"}}

    (message,) = read({"type": "ai", "content": "", "additional_kwargs": {"tool_calls": [raw]}})

    assert [(call.id, call.raw_arguments) for call in message.tool_calls] == [("c", "{oops")]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "reasoning", "reasoning": "Hm."},
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "reasoning_content", "reasoning_content": {"text": "Hm."}},
    ],
)
def test_reasoning_of_every_provider_is_reasoning(block: dict[str, Any]) -> None:
    (message,) = read({"type": "ai", "content": [block, {"type": "text", "text": "Rain."}]})

    assert (message.reasoning, message.content) == ("Hm.", "Rain.")


def test_reasoning_beside_the_content_is_reasoning() -> None:
    more = {"reasoning_content": "Hm."}

    (message,) = read({"type": "ai", "content": "Rain.", "additional_kwargs": more})

    assert message.reasoning == "Hm."


def test_calls_inside_the_content_are_not_repeated() -> None:
    block = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    call = {"name": "f", "args": {}, "id": "c"}

    (message,) = read({"type": "ai", "content": ["Look.", block], "tool_calls": [call]})

    assert message.content == "Look."
    assert len(message.tool_calls) == 1


def test_images_of_every_version_are_images() -> None:
    url = "data:image/png;base64,AAAA"
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    audio = {"type": "audio", "base64": "AAAA", "mime_type": "audio/wav"}

    (message,) = read(
        {
            "type": "human",
            "content": [
                {"type": "image_url", "image_url": {"url": url}},
                {"type": "image", "base64": "AAAA", "mime_type": "image/png"},
                {
                    "type": "image",
                    "source_type": "base64",
                    "data": "AAAA",
                    "mime_type": "image/png",
                },
                {"type": "image", "source": source},
                audio,
            ],
        }
    )

    image = data_block(type="image_url", image_url={"url": url})
    assert message.content == (image, image, image, image, data_block(**audio))


@pytest.mark.parametrize(
    ("value", "role"),
    [
        ({"type": "system", "additional_kwargs": {"__openai_role__": "developer"}}, "developer"),
        ({"type": "chat", "role": "critic"}, "critic"),
        ({"type": "AIMessageChunk"}, "assistant"),
        ({"type": "function", "name": "f"}, "function"),
        ({"role": "user"}, "user"),
    ],
)
def test_roles(value: dict[str, Any], role: str) -> None:
    (message,) = read({**value, "content": "x"})

    assert (message.role, message.text) == (role, "x")


def test_a_constructor_without_a_type_is_named_by_its_class() -> None:
    path = ["langchain", "schema", "messages", "HumanMessage"]
    value = {"lc": 1, "type": "constructor", "id": path, "kwargs": {"content": "x"}}

    (message,) = read(value)

    assert message == Message(role="user", content="x")


def test_texts_and_blocks_keep_their_order() -> None:
    (message,) = read({"type": "human", "content": ["a", {"type": "text", "text": "b"}]})

    assert message.content == (text_block(text="a"), text_block(text="b"))


def test_unknown_messages_blocks_and_fields_are_reported() -> None:
    dropped: list[Dropped] = []
    block = {"type": "text", "text": "x", "citations": [1]}

    messages, _ = read_langchain_messages(
        [
            {"type": "remove", "content": "", "id": "3"},
            7,
            {
                "type": "ai",
                "content": [block, {"type": "hologram"}],
                "additional_kwargs": {"audio": {"id": "a"}},
                "response_metadata": {"logprobs": [1], "model_name": "m"},
                "mood": "good",
            },
            {"type": "tool", "content": "x", "tool_call_id": 5},
        ],
        dropped,
    )

    assert [message.model for message in messages] == ["m"]
    assert [(each.where, each.what) for each in dropped] == [
        ("messages[0]", "unreadable: the message removes another one; left out"),
        ("messages[1]", "not a message of LangChain; left out"),
        ("messages[2].content[0].citations", "no place for `citations`; left out"),
        ("messages[2].content[1]", "a block of type 'hologram'; left out"),
        ("messages[2].mood", "no place for `mood`; left out"),
        ("messages[2].additional_kwargs.audio", "no place for `audio`; left out"),
        ("messages[2].response_metadata.logprobs", "no place for `logprobs`; left out"),
        (
            "messages[3]",
            "unreadable: the data cannot be read as a Message: Input should be a valid string; "
            "left out",
        ),
    ]
