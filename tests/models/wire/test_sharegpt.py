"""ShareGPT conversations, to and from."""

import json
from typing import Any

import pytest

from assay.errors import WireError
from assay.models import Message, Sample, Trajectory
from assay.models.wire.sharegpt import from_sharegpt, to_sharegpt
from make import answered, asked, called, said, sample

TOOL = {"name": "look", "parameters": {"type": "object", "properties": {}}}


def conversation() -> Sample:
    return sample(
        asked("where?"),
        said("I look.", called("look", "1", at="n"), called("look", "2")),
        answered("north", "1"),
        answered("south", "2"),
        said("There."),
        metadata={"tools": [TOOL]},
    )


def test_turns_have_the_names_that_the_format_knows() -> None:
    row = to_sharegpt(conversation()).exact()

    speakers = [turn["from"] for turn in row["conversations"]]
    assert speakers == ["human", "gpt", "function_call", "observation", "observation", "gpt"]
    calls = json.loads(row["conversations"][2]["value"])
    assert calls == [{"name": "look", "arguments": {"at": "n"}}, {"name": "look", "arguments": {}}]


def test_a_conversation_comes_back() -> None:
    row = to_sharegpt(conversation()).value

    read = from_sharegpt(row)

    assert [m.role for m in read.messages] == [m.role for m in conversation().messages]
    assert [m.text for m in read.messages] == [m.text for m in conversation().messages]
    assert read.messages[3].tool_call_id == read.messages[1].tool_calls[1].id
    assert to_sharegpt(read).value == row


def test_reasoning_has_no_place() -> None:
    thought = Message(role="assistant", content="x", reasoning="hm")

    lost = to_sharegpt(sample(asked("?"), thought)).lost

    assert [loss.where for loss in lost] == ["messages[1].reasoning"]


def test_assistant_turns_of_the_prompt_are_refused() -> None:
    prompt = [asked("one?"), said("shown"), asked("two?")]
    given = Sample(prompt=prompt, trajectory=Trajectory(messages=[*prompt, said("mine")]))

    with pytest.raises(WireError, match="would be trained on"):
        to_sharegpt(given)


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"conversations": "x"},
        {"conversations": [{"from": "robot", "value": "x"}]},
        {"conversations": [{"from": "human", "value": 7}]},
        {"conversations": [{"from": "function_call", "value": "not json"}]},
        {"conversations": [{"from": "function_call", "value": "[7]"}]},
    ],
)
def test_what_is_no_conversation_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        from_sharegpt(row)


def test_an_unanswered_conversation_is_a_prompt() -> None:
    read = from_sharegpt({"conversations": [{"from": "human", "value": "hi"}]})

    assert read.trajectory is None
    assert read.messages == [asked("hi")]
