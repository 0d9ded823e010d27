"""ShareGPT conversations, to and from."""

import json
from typing import Any

import pytest

from assay.errors import WireError
from assay.formats.sharegpt import from_sharegpt, to_sharegpt
from assay.types import Message, Sample, Trajectory
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
    assert speakers == ["human", "function_call", "observation", "gpt"]
    text, _, rest = row["conversations"][1]["value"].partition("\n<tool_call>")
    assert text == "I look."
    calls = json.loads(rest.removesuffix("</tool_call>"))
    assert calls == [{"name": "look", "arguments": {"at": "n"}}, {"name": "look", "arguments": {}}]


def test_a_call_without_text_is_plain_json() -> None:
    row = to_sharegpt(sample(asked("?"), said(None, called("look", "1", at="n")))).value

    value = row["conversations"][1]["value"]
    assert json.loads(value) == {"name": "look", "arguments": {"at": "n"}}


@pytest.mark.parametrize(
    "text", ["<tool_call>", "</tool_call>", "<think>a</think>", "<|im_end|>", "◁think▷", "a < b"]
)
def test_marks_in_arguments_are_not_taken_for_marks(text: str) -> None:
    for words in (None, "I look."):
        row = to_sharegpt(sample(asked("?"), said(words, called("look", "1", at=text)))).value

        value = row["conversations"][1]["value"].removeprefix("I look.\n<tool_call>")
        assert text == "a < b" or text not in value.removesuffix("</tool_call>" if words else "")
        assert from_sharegpt(row).messages[1].tool_calls[0].arguments == {"at": text}


def test_answers_are_in_the_order_of_their_calls() -> None:
    calls = (called("look", "1"), called("look", "2"))

    row = to_sharegpt(
        sample(asked("?"), said(None, *calls), answered("b", "2"), answered("a", "1"), said("ok"))
    ).value

    assert row["conversations"][2]["value"] == "a\n</tool_response>\n<tool_response>\nb"


def test_messages_of_one_side_in_a_row_are_joined_and_reported() -> None:
    system = Message(role="system", content="s")
    given = sample(
        asked("a"),
        asked("b"),
        said("One."),
        said("Two.", called("look")),
        metadata={"tools": [TOOL]},
    )
    given = given.model_copy(
        update={"trajectory": Trajectory(messages=[system, system, *given.messages])}
    )

    converted = to_sharegpt(given)

    turns = [(turn["from"], turn["value"]) for turn in converted.value["conversations"]]
    assert turns == [
        ("system", "s\n\ns"),
        ("human", "a\n\nb"),
        ("function_call", 'One.\n\nTwo.\n<tool_call>{"name": "look", "arguments": {}}</tool_call>'),
    ]
    assert [loss.where for loss in converted.dropped] == [f"messages[{n}]" for n in (1, 3, 5)]


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([said("hi")], "does not begin with the user"),
        ([asked("?"), answered("x"), said("a")], "follows no call"),
        ([asked("?"), said(None, called("f")), said("a")], "is not answered"),
        (
            [asked("?"), said(None, called("f")), answered("x"), asked("!"), said("a")],
            "the user speaks after a tool",
        ),
        (
            [asked("?"), said("a"), Message(role="system", content="s"), said("b")],
            "a system message is not at the start",
        ),
        ([asked("?"), said("Like <tool_call>", called("f"))], "contains `<tool_call>`"),
        (
            [Message(role="function", content="x"), said("a")],
            "ShareGPT has no turn for the role 'function'",
        ),
    ],
)
def test_a_conversation_that_would_be_dropped_is_refused(
    messages: list[Message], problem: str
) -> None:
    with pytest.raises(WireError, match=problem):
        to_sharegpt(Sample(trajectory=Trajectory(messages=messages)))


def test_text_and_call_in_two_turns_are_read_as_one_message() -> None:
    turns = [("human", "?"), ("gpt", "I look."), ("function_call", '{"name": "f"}')]

    read = from_sharegpt({"conversations": [{"from": w, "value": v} for w, v in turns]})

    assert read.messages[1].text == "I look."
    assert read.messages[1].tool_calls[0].name == "f"


def test_a_conversation_comes_back() -> None:
    row = to_sharegpt(conversation()).value

    read = from_sharegpt(row)

    assert [m.role for m in read.messages] == [m.role for m in conversation().messages]
    assert [m.text for m in read.messages] == [m.text for m in conversation().messages]
    assert read.messages[3].tool_call_id == read.messages[1].tool_calls[1].id
    assert to_sharegpt(read).value == row


def test_reasoning_has_no_place() -> None:
    thought = Message(role="assistant", content="x", reasoning="hm")

    dropped = to_sharegpt(sample(asked("?"), thought)).dropped

    assert [loss.where for loss in dropped] == ["messages[1].reasoning"]


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
