"""What agents return, in every format that is known: detected, converted, or refused."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from google.genai import types as genai
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from pydantic import BaseModel

from assay.errors import WireError
from assay.formats import (
    Dropped,
    convert_agent_output,
    to_anthropic,
    to_gemini,
    to_openai_chat,
)
from assay.types import Message, Sample, ToolCall, Trajectory, Usage

# Recorded from objects of the real libraries: openai-agents 0.24.0, anthropic 2.8.0, google-genai
# 3.1.0, langchain-core 1.7.2, pydantic-ai-slim 2.66.0, smolagents 1.26.0.
RECORDED = Path(__file__).parents[1] / "fixtures" / "agent_outputs"


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text("utf-8"))


def wire(messages: list[Message]) -> list[dict[str, Any]]:
    """Roles, texts, calls and results: what every format can represent."""
    return [
        {
            key: value
            for key, value in (
                ("role", message.role),
                ("text", message.text),
                ("reasoning", message.reasoning),
                ("calls", [(c.id, c.name, c.arguments_text) for c in message.tool_calls]),
                ("answers", message.tool_call_id),
                ("failed", (message.details or {}).get("failed")),
            )
            if value not in (None, "", [])
        }
        for message in messages
    ]


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


def test_the_input_list_of_openai_agents_is_a_list_of_items() -> None:
    output = convert_agent_output(recorded("openai_agents_input_list"))

    assert output.format == "openai_responses"
    assert wire(output.messages) == [
        {"role": "user", "text": "Weather in Oslo?"},
        {
            "role": "assistant",
            "reasoning": "I should look.",
            "calls": [("c1", "weather", '{"city":"Oslo"}')],
        },
        {"role": "tool", "text": "rain", "answers": "c1"},
        {"role": "assistant", "text": "Rain."},
    ]


@dataclass
class AgentsUsage:
    requests: int = 2
    input_tokens: int = 20
    output_tokens: int = 4


@dataclass
class AgentsContext:
    usage: AgentsUsage


class AgentsResult:
    """The part of a `RunResult` of openai-agents that is read."""

    def __init__(self, final_output: object) -> None:
        self.final_output = final_output
        self.context_wrapper = AgentsContext(AgentsUsage())

    def to_input_list(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = recorded("openai_agents_input_list")
        return items


def test_a_result_of_openai_agents_is_read_with_its_usage() -> None:
    output = convert_agent_output(AgentsResult("Rain."))

    assert output.format == "openai_agents"
    roles = [message.role for message in output.messages]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert output.usage == Usage(input_tokens=20, output_tokens=4)


class Sky(BaseModel):
    sky: str


def test_an_output_that_no_message_contains_is_the_last_message() -> None:
    output = convert_agent_output(AgentsResult(Sky(sky="rain")))

    assert output.messages[-2].text == "Rain."
    assert output.messages[-1].text == '{"sky":"rain"}'


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


LANGCHAIN = [
    {"role": "system", "text": "Be brief."},
    {"role": "user", "text": "Weather?"},
    {
        "role": "assistant",
        "text": "Look",
        "reasoning": "hm",
        "calls": [("c1", "weather", '{"city":"Oslo"}'), ("c2", "v", "{oops")],
    },
    {"role": "tool", "text": "no city", "answers": "c1", "failed": True},
    {"role": "assistant", "text": "Rain."},
]


@pytest.mark.parametrize(
    "name", ["langchain_messages_to_dict", "langchain_dumpd", "langchain_model_dump"]
)
def test_langchain_messages_are_read_in_all_their_forms(name: str) -> None:
    output = convert_agent_output(recorded(name))

    assert output.format == "langchain"
    assert wire(output.messages) == LANGCHAIN
    assert output.usage == Usage(
        input_tokens=14, output_tokens=3, cached_tokens=1, reasoning_tokens=1
    )


def test_the_state_of_a_graph_is_read_by_its_messages() -> None:
    state = {"messages": recorded("langchain_model_dump"), "remaining_steps": 3, "notes": ""}

    output = convert_agent_output(state)

    assert wire(output.messages) == LANGCHAIN
    assert output.dropped == (
        Dropped("output.remaining_steps", "no place for `remaining_steps`; left out"),
    )
    assert convert_agent_output({"value": state, "interrupts": []}) == output


PYDANTIC_AI = [
    {"role": "system", "text": "Be brief."},
    {"role": "system", "text": "You are helpful."},
    {"role": "user", "text": "Weather in Oslo?"},
    {
        "role": "assistant",
        "text": "Let me look.",
        "reasoning": "hm",
        "calls": [("c1", "weather", '{"city": "Oslo"}'), ("c2", "weather", '{"city": 5')],
    },
    {"role": "tool", "text": '{"sky":"rain"}', "answers": "c1", "failed": False},
    {"role": "tool", "answers": "c2", "failed": True},
    {"role": "assistant", "text": "Rain."},
]


@pytest.mark.parametrize("name", ["pydantic_ai_messages", "pydantic_ai_run_result"])
def test_pydantic_ai_messages_are_read(name: str) -> None:
    output = convert_agent_output(recorded(name))

    read = wire(output.messages)
    assert read[5].pop("text").startswith('[{"type":"json_invalid"')
    assert output.format == "pydantic_ai"
    assert read == PYDANTIC_AI
    assert output.usage is not None
    assert output.usage.input_tokens == 161


def test_serialized_messages_are_read_from_bytes() -> None:
    text = (RECORDED / "pydantic_ai_messages.json").read_bytes()

    assert convert_agent_output(text) == convert_agent_output(json.loads(text))


class PydanticAiResult:
    """The part of an `AgentRunResult` that is read."""

    output = Sky(sky="rain")

    def all_messages(self) -> list[Any]:
        messages: list[Any] = recorded("pydantic_ai_messages")
        return messages[:3]

    def usage(self) -> dict[str, int]:
        return {"input_tokens": 7, "output_tokens": 1}


def test_a_result_of_pydantic_ai_ends_with_its_output() -> None:
    output = convert_agent_output(PydanticAiResult())

    assert output.format == "pydantic_ai"
    assert output.messages[-1] == Message(role="assistant", content='{"sky":"rain"}')
    assert output.usage == Usage(input_tokens=7, output_tokens=1)


def test_a_structured_output_that_the_model_wrote_is_not_repeated() -> None:
    messages = [
        {"kind": "response", "parts": [{"part_kind": "text", "content": '{"sky": "rain"}'}]}
    ]

    output = convert_agent_output({"messages": messages, "output": {"sky": "rain"}})

    assert [message.text for message in output.messages] == ['{"sky": "rain"}']


def test_a_result_of_smolagents_is_read_with_its_steps() -> None:
    output = convert_agent_output(recorded("smolagents_run_result"))

    assert output.format == "smolagents"
    assert wire(output.messages)[1:3] == [
        {
            "role": "assistant",
            "text": "thinking",
            "calls": [("c1", "weather", '{"city":"Oslo"}')],
        },
        {"role": "tool", "text": "rain", "answers": "c1", "failed": False},
    ]
    assert output.messages[-1].text == "Rain"
    assert output.usage == Usage(input_tokens=30, output_tokens=9)


def test_the_steps_of_smolagents_may_be_returned_alone() -> None:
    result = recorded("smolagents_run_result")

    output = convert_agent_output(result["steps"])

    assert output.messages == convert_agent_output(result).messages
    assert output.usage == Usage(input_tokens=30, output_tokens=9)


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


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "the agent returned None"),
        ([], "the agent returned an empty list"),
        ((), "the agent returned an empty list"),
        (object(), "the agent returned a value of type object"),
        (b"not JSON", "the agent returned a value of type bytes"),
        ((text for text in ["Rain."]), "the agent returned a value of type generator"),
        (Sample(messages=[]), "the agent returned a Sample"),
        ({"messages": []}, "the agent returned a value of type dict without a readable message"),
        ({"messages": ["a"]}, "the agent returned a value of type dict without a readable message"),
        ({"choices": []}, "the agent returned a value of type dict without a readable message"),
        ({"role": 5}, r"messages\[0\].role: unreadable: .*valid string"),
    ],
)
def test_a_value_that_is_not_an_answer_is_refused(value: object, said: str) -> None:
    with pytest.raises(WireError, match=said) as refused:
        convert_agent_output(value)

    assert (refused.value.hint or "").startswith("return ")


def nest(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def contain_itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["messages"] = [value]
    return value


def multiply(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value] * 10
    return value


class Raising:
    @property
    def model_dump(self) -> object:
        raise RuntimeError("no fields today")


class Exiting:
    def to_dict(self) -> object:
        sys.exit(3)


class Endless:
    def to_dict(self) -> object:
        return {"again": Endless()}


class Lying:
    @property  # type: ignore[misc]  # read-only, to raise
    def __class__(self) -> Any:
        raise ValueError("no class today")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (nest(100_000), "nested too deeply"),
        ([{"role": "assistant", "content": nest(500)}], "nested too deeply"),
        (contain_itself(), r"output.messages\[0\]: the value contains itself"),
        (multiply(30), "more than 500,000 parts"),
        ([0] * 600_000, "more than 500,000 parts"),
        (Raising(), "the Raising cannot be read: RuntimeError: no fields today"),
        (Exiting(), "the Exiting cannot be read: SystemExit: 3"),
        (Endless(), "nested too deeply"),
        (Lying(), "the Lying cannot be read: ValueError: no class today"),
        ([Lying()], "cannot be read: ValueError: no class today"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_hostile_value_is_refused(value: object, said: str) -> None:
    with pytest.raises(WireError, match=said):
        convert_agent_output(value)


words = st.sampled_from(
    "role content type parts kind part_kind tool_calls function name arguments args id call_id "
    "output error status text message messages choices candidates contents usage lc kwargs data "
    "steps state task source value answer assistant user model ai request response tool-call "
    "tool-return tool_use tool_result function_call reasoning output_text refusal { x".split()
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | words
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=6),
    max_leaves=20,
)


@given(anything)
def test_any_json_is_converted_or_refused(value: object) -> None:
    try:
        output = convert_agent_output(value)
    except WireError:
        return

    assert output.messages
    for message in output.messages:
        assert Message.model_validate_json(message.model_dump_json()).role == message.role


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A recorded output in which up to three values are others."""
    names = sorted(path.stem for path in RECORDED.iterdir())
    value = recorded(draw(st.sampled_from(names)))
    for _ in range(draw(st.integers(1, 3))):
        place = value
        while True:
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key: Any = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and draw(st.booleans()):
                place = place[key]
                continue
            place[key] = draw(anything)
            break
    return value


@given(damaged())
def test_damaged_outputs_are_converted_or_refused(value: Any) -> None:
    try:
        output = convert_agent_output(value)
    except WireError:
        return

    assert output.messages
