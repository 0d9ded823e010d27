"""Merging messages into turns, and placing tool calls in them."""

import pytest

from assay.formats.eval_turns import UNANSWERED_RESPONSE, EvalTurns, format_block_marker
from assay.types import DataBlock, Message, TextBlock, ToolCall
from make import answered, asked, called, said


def turns(*messages: Message, **names: str) -> EvalTurns:
    found = EvalTurns(names)
    for place, message in enumerate(messages):
        found.take(message, f"messages[{place}]")
    return found


def test_consecutive_messages_of_one_side_are_one_turn() -> None:
    found = turns(asked("a"), asked("b"), said("c"), said("d"))

    assert [(turn.role, turn.text) for turn in found.turns] == [
        ("user", "a\n\nb"),
        ("model", "c\n\nd"),
    ]


def test_a_turn_without_words_keeps_its_place() -> None:
    found = turns(asked("a"), said(None, called("ls")), answered("x"), asked("b"))

    assert [turn.role for turn in found.turns] == ["user", "model", "user"]
    assert found.events[0]["turn"] == 2


def test_the_turn_is_counted_after_merging() -> None:
    found = turns(
        asked("a"),
        asked("b"),
        said("c", called("ls", "1")),
        answered("x", "1"),
        said(None, called("cat", "2")),
        answered("y", "2"),
        said("d"),
        asked("e"),
        said(None, called("rm", "3")),
    )

    places = [(e["turn"], e["turn_index"], e["model_turn"]) for e in found.events]
    assert places == [(2, 0, 1), (2, 0, 1), (4, 1, 2)]


def test_parallel_calls_share_a_step_and_find_their_answers() -> None:
    found = turns(
        said(None, called("a", "1"), called("b", "2")),
        answered("second", "2"),
        answered("first", "1"),
    )

    assert [event["step"] for event in found.events] == ["#1", "#1"]
    outputs = [event["function_response"]["response"] for event in found.events]
    assert outputs == [{"output": "first"}, {"output": "second"}]


def test_a_call_without_an_answer_is_an_error() -> None:
    (event,) = turns(said(None, called("a"))).events

    assert event["function_response"]["response"] == {"error": UNANSWERED_RESPONSE}
    assert (event["status"], event["is_error"]) == ("unanswered", True)


def test_an_answer_to_no_call_is_reported() -> None:
    found = turns(said("a"), answered("x", "none"))

    assert [loss.what for loss in found.dropped] == ["an answer without a call; left out"]


def test_an_answer_without_an_id_is_that_of_the_first_open_call() -> None:
    (event,) = turns(said(None, called("a")), Message(role="tool", content="x")).events

    assert event["function_response"]["response"] == {"output": "x"}


def test_a_tool_can_be_given_another_name() -> None:
    (event,) = turns(said(None, called("read")), answered("x"), read="fs.read").events

    assert event["function_call"]["name"] == event["function_response"]["name"] == "fs.read"
    assert event["raw_tool"] == "read"


def test_what_has_no_place_is_reported() -> None:
    image = DataBlock.model_validate({"type": "image_url", "image_url": {}})
    found = turns(
        Message(role="system", content="s"),
        Message(role="user", content=(TextBlock(type="text", text="see"), image)),
        Message(role="assistant", content="a", reasoning="r"),
    )

    assert found.turns[0].text == "see\n\n[image_url]"
    assert [loss.where for loss in found.dropped] == [
        "messages[0]",
        "messages[1].content[1]",
        "messages[2].reasoning",
    ]


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"type": "file", "filename": "a.txt", "mime": "text/plain"}, "[file: a.txt]"),
        ({"type": "file", "mime": "image/png"}, "[file: image/png]"),
        ({"type": "subtask", "description": "count"}, "[subtask: count]"),
        ({"type": "file", "filename": 3}, "[file]"),
    ],
)
def test_a_marker_stands_for_what_is_not_text(fields: dict[str, object], shown: str) -> None:
    assert format_block_marker(DataBlock.model_validate(fields)) == shown


def test_answers_find_their_calls_among_very_many_in_linear_time() -> None:
    count = 40_000
    found = EvalTurns({})
    calls = tuple(ToolCall(id=str(n), name="read", arguments={}) for n in range(count))
    found.take(Message(role="assistant", content=None, tool_calls=calls), "messages[0]")

    for n in reversed(range(count)):
        found.take(Message(role="tool", content=f"text {n}", tool_call_id=str(n)), "answer")

    responses = [event["function_response"]["response"]["output"] for event in found.events]
    assert responses == [f"text {n}" for n in range(count)]
    assert found.dropped == []


def test_an_answer_without_an_id_takes_the_first_open_call() -> None:
    found = EvalTurns({})
    calls = tuple(ToolCall(id=each, name="read", arguments={}) for each in ("a", "b", "a"))
    found.take(Message(role="assistant", content=None, tool_calls=calls), "messages[0]")

    for text, call_id in (("first", None), ("third", "a"), ("second", None), ("none", None)):
        found.take(Message(role="tool", content=text, tool_call_id=call_id), "answer")

    responses = [event["function_response"]["response"]["output"] for event in found.events]
    assert responses == ["first", "second", "third"]
    assert [loss.what for loss in found.dropped] == ["an answer without a call; left out"]
