"""What agents return in the formats of model providers and as plain values: detected, converted."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.genai import types as genai
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from agent_outputs import Sky, recorded, wire
from assay.errors import WireError
from assay.formats import (
    Dropped,
    convert_agent_output,
    to_anthropic,
    to_gemini,
    to_openai_chat,
)
from assay.types import Message, ToolCall, Trajectory, Usage

CHAT: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1700000000,
    "model": "gpt-5",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "annotations": [],
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
                    }
                ],
            },
        }
    ],
    "usage": {
        "prompt_tokens": 20,
        "completion_tokens": 5,
        "total_tokens": 25,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    },
}


RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1700000000,
    "model": "gpt-5",
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Rain.", "annotations": []}],
        },
    ],
    "usage": {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 0},
        "output_tokens": 8,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 38,
    },
}


def test_text_is_the_answer_of_the_assistant() -> None:
    output = convert_agent_output('{"looks": "like JSON"}')

    assert output.messages == [Message(role="assistant", content='{"looks": "like JSON"}')]
    assert (output.format, output.usage, output.dropped) == ("text", None, ())


def test_messages_and_trajectories_of_our_own_are_kept() -> None:
    message = Message(role="assistant", content="Rain.", details={"id": "1"})

    assert convert_agent_output(message).messages == [message]
    assert convert_agent_output([message, message]).messages == [message, message]
    assert convert_agent_output((message,)).format == "assay"
    assert convert_agent_output(Trajectory(messages=[message])).messages == [message]


def test_our_messages_may_be_continued_in_another_format() -> None:
    asked = Message(role="user", content="Weather?")

    output = convert_agent_output([asked, CHAT["choices"][0]["message"]])

    assert output.format == "openai_chat"
    assert output.messages[0] is asked
    assert output.messages[1].tool_calls[0].name == "weather"


def test_an_order_of_mixed_messages_is_kept() -> None:
    one, two = Message(role="user", content="1"), Message(role="user", content="3")

    output = convert_agent_output([one, {"role": "assistant", "content": "2"}, two])

    assert [message.text for message in output.messages] == ["1", "2", "3"]


def test_a_chat_response_is_read_with_its_usage() -> None:
    output = convert_agent_output(CHAT)

    (message,) = output.messages
    assert output.format == "openai_chat"
    assert message.tool_calls == (
        ToolCall.model_validate({"id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'}),
    )
    assert message.model == "gpt-5"
    assert message.timestamp == "2023-11-14T22:13:20+00:00"
    assert message.details == {"id": "chatcmpl-1", "finish_reason": "tool_calls"}
    assert not message.model_extra
    assert output.usage == Usage(
        input_tokens=20, output_tokens=5, cached_tokens=4, reasoning_tokens=2
    )
    assert output.dropped == ()


def test_objects_of_the_openai_sdk_read_like_their_json() -> None:
    completion, response = ChatCompletion.model_validate(CHAT), Response.model_validate(RESPONSE)

    assert convert_agent_output(completion) == convert_agent_output(CHAT)
    assert convert_agent_output(response) == convert_agent_output(RESPONSE)


def test_a_conversation_of_dicts_and_sdk_messages_is_one_conversation() -> None:
    called = ChatCompletion.model_validate(CHAT).choices[0].message
    answer = {"role": "tool", "tool_call_id": "c1", "content": "rain"}

    output = convert_agent_output([{"role": "user", "content": "Weather?"}, called, answer])

    assert wire(output.messages) == [
        {"role": "user", "text": "Weather?"},
        {"role": "assistant", "calls": [("c1", "weather", '{"city": "Oslo"}')]},
        {"role": "tool", "text": "rain", "answers": "c1"},
    ]


def test_other_choices_are_counted() -> None:
    output = convert_agent_output({**CHAT, "choices": CHAT["choices"] * 3, "service_tier": "flex"})

    assert output.dropped == (
        Dropped("output.service_tier", "no place for `service_tier`; left out"),
        Dropped("output.choices", "2 other choices; left out"),
    )


def test_chat_messages_are_written_back_as_they_were() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{oops"}}
            ],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
    ]

    output = convert_agent_output(messages)

    assert output.messages[1].tool_calls[0].malformed
    assert to_openai_chat(output.messages).exact() == messages


@pytest.mark.parametrize("arguments", [[1, 2], 5, True])
def test_arguments_that_are_neither_object_nor_text_are_kept_as_text(arguments: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}

    output = convert_agent_output({"role": "assistant", "content": None, "tool_calls": [call]})

    assert output.messages[0].tool_calls[0].raw_arguments == json.dumps(arguments).replace(" ", "")
    assert output.messages[0].tool_calls[0].malformed


def test_a_response_of_the_responses_api_is_read_with_its_usage() -> None:
    output = convert_agent_output(RESPONSE)

    (message,) = output.messages
    assert output.format == "openai_responses"
    assert (message.text, message.reasoning, message.model) == ("Rain.", "Hm.", "gpt-5")
    assert output.usage == Usage(
        input_tokens=30, output_tokens=8, cached_tokens=10, reasoning_tokens=3
    )
    assert output.dropped == (
        Dropped("output", "no place for `parallel_tool_calls`, `tool_choice`; left out"),
    )


def test_a_response_that_failed_is_refused_with_its_error() -> None:
    failed = {"object": "response", "output": [], "error": {"code": "x", "message": "Overloaded."}}

    with pytest.raises(WireError, match=r"without a readable message \(output.error: Overloaded"):
        convert_agent_output(failed)


def test_an_anthropic_response_is_read_with_its_usage() -> None:
    output = convert_agent_output(recorded("anthropic_message"))

    (message,) = output.messages
    assert output.format == "anthropic"
    assert wire([message]) == [
        {
            "role": "assistant",
            "text": "Let me look.",
            "reasoning": "Look it up.",
            "calls": [("toolu_1", "weather", '{"city":"Oslo","unit":null}')],
        }
    ]
    assert message.content == "Let me look."
    assert message.details == {"id": "msg_1", "finish_reason": "tool_use"}
    assert output.usage == Usage(input_tokens=19, output_tokens=7, cached_tokens=5)


ANTHROPIC = [
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Look.", "signature": "s"},
            {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "down", "is_error": True},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
            },
        ],
    },
]


def test_anthropic_turns_are_read_with_the_outcomes_of_tools() -> None:
    output = convert_agent_output(ANTHROPIC)

    assert output.format == "anthropic"
    assert wire(output.messages) == [
        {"role": "user", "text": "Weather?"},
        {
            "role": "assistant",
            "reasoning": "Look.",
            "calls": [("t1", "weather", '{"city":"Oslo"}')],
        },
        {"role": "tool", "text": "down", "answers": "t1", "failed": True},
        {"role": "user"},
    ]
    assert to_anthropic(output.messages).value.messages == ANTHROPIC


def test_a_system_message_among_anthropic_turns_is_kept() -> None:
    output = convert_agent_output([{"role": "system", "content": "Be brief."}, *ANTHROPIC])

    assert output.format == "anthropic"
    assert [message.role for message in output.messages][:2] == ["system", "user"]
    assert output.dropped == ()


def test_one_unreadable_turn_does_not_cost_the_others() -> None:
    broken = {"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}]}

    output = convert_agent_output([*ANTHROPIC, broken])

    assert len(output.messages) == 4
    assert output.dropped == (
        Dropped(
            "messages[3].content[0].id", "unreadable: the value is null, not a string; left out"
        ),
    )


@pytest.mark.parametrize("name", ["gemini_response", "gemini_response_camel"])
def test_a_gemini_response_is_read_in_both_spellings(name: str) -> None:
    output = convert_agent_output(recorded(name))

    (message,) = output.messages
    assert output.format == "gemini"
    assert wire([message]) == [
        {
            "role": "assistant",
            "text": "Look.",
            "reasoning": "Think",
            "calls": [("c1", "weather", '{"city":"Oslo"}')],
        }
    ]
    assert message.model == "gemini-x"
    assert message.details == {"id": "r1", "finish_reason": "STOP"}
    assert "spelling" not in (message.model_extra or {})
    assert output.usage == Usage(input_tokens=3, output_tokens=6, reasoning_tokens=4)
    assert output.dropped == ()


def test_objects_of_the_gemini_sdk_read_like_their_json() -> None:
    wire_form = recorded("gemini_response_camel")
    response = genai.GenerateContentResponse.model_validate(wire_form)

    assert convert_agent_output(response) == convert_agent_output(wire_form)


def test_gemini_contents_are_read_and_written_back() -> None:
    contents: list[Any] = [
        {
            "role": "user",
            "parts": [
                {"text": "Weather?"},
                {"inlineData": {"mimeType": "image/png", "data": "+/8="}},
            ],
        },
        {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {"a": None}}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "weather", "response": {"error": "down"}}}],
        },
    ]
    sdk = [genai.Content.model_validate(content) for content in contents]

    output = convert_agent_output(sdk)

    assert output.format == "gemini"
    assert output.messages[2].details == {"status": "error", "failed": True, "is_error": True}
    assert to_gemini(output.messages).value.contents == contents
    assert convert_agent_output([each.model_dump(mode="json") for each in sdk]) == output


def test_calls_that_the_gemini_sdk_made_itself_come_first() -> None:
    history = [{"role": "user", "parts": [{"text": "Weather?"}]}]
    response = {
        "candidates": [{"content": {"parts": [{"text": "Rain."}], "role": "model"}}] * 2,
        "automatic_function_calling_history": history,
    }

    output = convert_agent_output(response)

    assert [message.text for message in output.messages] == ["Weather?", "Rain."]
    assert output.dropped == (Dropped("output.candidates", "1 other candidates; left out"),)


def test_gemini_contents_may_have_an_instruction() -> None:
    request = {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"role": "model", "parts": [{"text": "Rain."}]}],
    }

    assert wire(convert_agent_output(request).messages) == [
        {"role": "system", "text": "Be brief."},
        {"role": "assistant", "text": "Rain."},
    ]


@pytest.mark.parametrize(
    "value",
    [
        [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "f", "input": "{"}],
            }
        ],
        [{"role": "model", "parts": [{"function_call": {"id": "c", "name": "f", "args": "{"}}]}],
    ],
)
def test_malformed_arguments_are_kept_as_text(value: Any) -> None:
    (message,) = convert_agent_output(value).messages

    (call,) = message.tool_calls
    assert (call.id, call.name, call.raw_arguments, call.arguments) == ("c", "f", "{", {})
    assert call.malformed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (42, "42"),
        (True, "true"),
        (2.5, "2.5"),
        ({"city": "Oslo", "mm": 3}, '{"city":"Oslo","mm":3}'),
        (["a", "b"], '["a","b"]'),
        (Sky(sky="rain"), '{"sky":"rain"}'),
    ],
)
def test_a_plain_value_is_written_as_json_with_a_note(value: object, text: str) -> None:
    output = convert_agent_output(value)

    assert output.messages == [Message(role="assistant", content=text)]
    assert output.format == "json"
    assert [note.what.endswith("; written as JSON text") for note in output.dropped] == [True]


@pytest.mark.parametrize(
    "key", ["answer", "output", "response", "text", "content", "result", "final_output"]
)
def test_an_object_with_an_answer_is_read_by_its_key(key: str) -> None:
    output = convert_agent_output({"input": "Weather?", key: "Rain."})

    assert output.messages == [Message(role="assistant", content="Rain.")]
    assert output.format == "answer"
    assert output.dropped == (Dropped("output.input", "no place for `input`; left out"),)


def test_the_first_answer_key_wins_and_the_usage_is_read() -> None:
    given = {"text": "later", "answer": "Rain.", "usage": {"input_tokens": 3, "output_tokens": 1}}

    output = convert_agent_output(given)

    assert output.messages[0].text == "Rain."
    assert output.usage == Usage(input_tokens=3, output_tokens=1)
    assert [note.where for note in output.dropped] == ["output.text"]


def test_one_message_under_its_key_is_read() -> None:
    output = convert_agent_output({"message": {"role": "assistant", "content": "Rain."}})

    assert output.messages == [Message(role="assistant", content="Rain.")]


def test_the_mark_of_any_message_decides_for_the_list() -> None:
    plain = {"role": "user", "content": "Weather?"}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}

    assert convert_agent_output([plain]).format == "openai_chat"
    assert convert_agent_output([plain, call]).format == "openai_responses"
    assert convert_agent_output([plain, ANTHROPIC[1]]).format == "anthropic"
    assert convert_agent_output([plain, {"type": "ai", "content": "x"}]).format == "langchain"


async def stream() -> AsyncIterator[str]:
    yield "a"


@pytest.mark.parametrize("value", [(part for part in "ab"), stream()], ids=["sync", "async"])
def test_a_stream_is_refused_with_its_cure(value: object) -> None:
    with pytest.raises(WireError, match="collect the parts and return the whole answer"):
        convert_agent_output(value)
