"""What the results of agent frameworks contain: messages, usage and the final output."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from agent_outputs import RECORDED, Sky, recorded, wire
from assay.formats import Dropped, convert_agent_output
from assay.types import Message, Usage


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


def test_an_output_that_no_message_contains_is_the_last_message() -> None:
    output = convert_agent_output(AgentsResult(Sky(sky="rain")))

    assert output.messages[-2].text == "Rain."
    assert output.messages[-1].text == '{"sky":"rain"}'


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
