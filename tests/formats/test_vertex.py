"""Rows for Vertex: what they hold, what is refused, and that they come back."""

import json
from typing import Any

import pytest

from assay.errors import ConfigError, WireError
from assay.formats.vertex import VERTEX_KEYS, from_vertex, to_vertex
from assay.types import Message, Sample
from make import answered, asked, called, said, sample


def failed(text: str, call_id: str) -> Message:
    details = {"failed": True, "is_error": True, "status": "error"}
    return Message(role="tool", content=text, tool_call_id=call_id, details=details)


def two_turns() -> Sample:
    return sample(
        Message(role="system", content="Be brief."),
        asked("Where is order 7?"),
        said("I look.", called("lookup", "c1", order=7), called("map", "c2")),
        answered("Bremen", "c1"),
        failed("no such map", "c2"),
        said("In Bremen."),
        asked("And order 8?"),
        said(None, called("lookup", "c3", order=8)),
        answered("Kiel", "c3"),
        said("In Kiel."),
        id="s1",
        input={"title": "Orders", "created": "2026-03-01T09:00:00.000Z"},
    )


def check_row(row: dict[str, Any]) -> None:
    """Raise unless the SDK takes the row as it is meant: its measured behaviour as plain checks."""
    assert tuple(row) == VERTEX_KEYS
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    contents = [row["prompt"], row["response"], *row["conversation_history"]]
    for event in row["intermediate_events"]:
        assert set(event) <= {"event_id", "author", "content", "creation_timestamp"}
        contents.append(event["content"])
    agents = row["agent_data"]["agents"]
    for index, turn in enumerate(row["agent_data"]["turns"]):
        assert set(turn) == {"turn_index", "turn_id", "events"}
        assert turn["turn_index"] == index
        for event in turn["events"]:
            assert set(event) <= {"author", "content", "event_time"}
            assert event["author"] == "user" or event["author"] in agents
            contents.append(event["content"])
    for agent_id, agent in agents.items():
        assert set(agent) <= {"agent_id", "instruction", "sub_agents"}
        assert agent["agent_id"] == agent_id
    for content in contents:
        check_content(content)


def check_content(content: dict[str, Any]) -> None:
    assert set(content) == {"role", "parts"}
    assert content["role"] in ("user", "model")
    assert content["parts"]
    for part in content["parts"]:
        if "function_response" in part:
            assert content["role"] == "user"
            # A text there makes the SDK refuse the whole case.
            assert isinstance(part["function_response"]["response"], dict)
        elif "function_call" in part:
            assert content["role"] == "model"
            assert set(part["function_call"]) == {"id", "name", "args"}
        else:
            assert isinstance(part["text"], str)


def tool_calls(row: dict[str, Any]) -> list[list[str]]:
    """The names of the tools that each turn called."""
    return [
        [
            part["function_call"]["name"]
            for event in turn["events"]
            for part in event["content"]["parts"]
            if "function_call" in part
        ]
        for turn in row["agent_data"]["turns"]
    ]


def test_a_row_holds_every_tool_call_of_every_turn() -> None:
    row = to_vertex(two_turns()).value

    check_row(row)
    assert tool_calls(row) == [["lookup", "map"], ["lookup"]]


def test_prompt_response_and_history_are_of_the_last_turn() -> None:
    row = to_vertex(two_turns()).value

    assert row["prompt"] == {"role": "user", "parts": [{"text": "And order 8?"}]}
    assert row["response"] == {"role": "model", "parts": [{"text": "In Kiel."}]}
    assert [turn["role"] for turn in row["conversation_history"]] == ["user", "model"]
    assert row["instruction"] == "Be brief."


def test_intermediate_events_are_of_the_last_turn_only() -> None:
    events = to_vertex(two_turns()).value["intermediate_events"]

    kinds = [next(iter(event["content"]["parts"][0])) for event in events]
    assert kinds == ["function_call", "function_response"]
    assert events[0]["content"]["parts"][0]["function_call"]["id"] == "c3"


def test_parallel_answers_stand_in_one_event_with_errors_told_from_outputs() -> None:
    row = to_vertex(two_turns()).value

    answers = row["agent_data"]["turns"][0]["events"][2]["content"]
    assert [part["function_response"]["response"] for part in answers["parts"]] == [
        {"output": "Bremen"},
        {"error": "no such map"},
    ]


def test_a_row_has_no_key_that_makes_the_sdk_read_it_otherwise() -> None:
    assert not {"request", "eval_case_id", "format"} & set(VERTEX_KEYS)


def test_the_whole_last_turn_can_be_the_response() -> None:
    talk = sample(
        asked("Go."), said("First.", called("a")), answered("x"), said("Then this."), id="s"
    )

    row = to_vertex(talk, response_mode="turn").value

    check_row(row)
    assert row["response"]["parts"] == [{"text": "First.\n\nThen this."}]
    texts = [p for e in row["intermediate_events"] for p in e["content"]["parts"] if "text" in p]
    assert texts == []


@pytest.mark.parametrize(
    ("talk", "message"),
    [
        (sample(asked("Anyone?"), id="s"), "no answer to the last user message"),
        (sample(asked("Hi"), said("Hi."), asked("Still there?"), id="s"), "no answer"),
        (sample(said("Hello?"), id="s"), "no user message"),
        (Sample(id="s"), "no user message"),
    ],
)
def test_a_session_that_cannot_be_judged_is_refused(talk: Sample, message: str) -> None:
    with pytest.raises(WireError, match=message):
        to_vertex(talk)


def test_long_outputs_are_cut_when_asked_and_reported() -> None:
    talk = sample(asked("Read."), said(None, called("read")), answered("x" * 50), said("Done."))

    converted = to_vertex(talk, max_output_chars=10)

    events = converted.value["agent_data"]["turns"][0]["events"]
    response = events[2]["content"]["parts"][0]["function_response"]["response"]
    assert response == {"output": "xxxxxxxxxx… [40 more characters]"}
    assert "cut to 10 characters" in {loss.what for loss in converted.dropped}
    assert "…" not in json.dumps(to_vertex(talk).value, ensure_ascii=False)


def test_what_the_agent_thought_can_be_left_out_which_is_reported() -> None:
    thinking = Message(role="assistant", content="4", reasoning="2 and 2")
    talk = sample(asked("2+2?"), thinking)

    converted = to_vertex(talk, reasoning=False)

    assert "2 and 2" in json.dumps(to_vertex(talk).value)
    assert "2 and 2" not in json.dumps(converted.value)
    assert [loss.where for loss in converted.dropped] == ["messages[1].reasoning"]


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_output_chars=0"):
        to_vertex(two_turns(), max_output_chars=0)


def test_a_reference_is_written_where_there_is_one() -> None:
    known = sample(asked("2+2?"), said("4"), ground_truth="4")

    assert to_vertex(known).value["reference"] == "4"
    assert to_vertex(two_turns()).value["reference"] is None


def test_a_row_comes_back_as_the_same_row() -> None:
    row = to_vertex(two_turns()).value

    back = from_vertex(row)

    assert to_vertex(back).value == row
    assert [m.role for m in back.messages] == [m.role for m in two_turns().messages]
    assert [m.text for m in back.messages] == [m.text for m in two_turns().messages]
    assert back.messages[4].details == {"status": "error", "failed": True, "is_error": True}


def test_agent_data_may_be_a_string_of_json() -> None:
    row = to_vertex(two_turns()).value

    assert from_vertex({**row, "agent_data": json.dumps(row["agent_data"])}) == from_vertex(row)


def test_a_row_without_agent_data_is_read_from_its_columns() -> None:
    row = {key: value for key, value in to_vertex(two_turns()).value.items() if key != "agent_data"}

    messages = from_vertex(row).messages

    roles = [message.role for message in messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "tool", "assistant"]
    assert messages[-1].text == "In Kiel."


def test_a_row_of_mere_strings_is_read() -> None:
    history = json.dumps([{"role": "user", "content": "Hi"}, {"role": "model", "content": "Yes?"}])

    back = from_vertex({"prompt": "2+2?", "response": "4", "conversation_history": history})

    assert [message.text for message in back.messages] == ["Hi", "Yes?", "2+2?", "4"]
    assert back.response == "4"


def test_unknown_columns_are_kept() -> None:
    row = {**to_vertex(two_turns()).value, "reviewer": "ada"}

    assert from_vertex(row).metadata["vertex"] == {"reviewer": "ada"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], "not an object"),
        ({"request": {"contents": []}}, "Gemini layout"),
        ({"agent_data": "{"}, "is not JSON"),
        (
            {"agent_data": {"turns": "none"}},
            r"agent_data\.turns: the value is of type str, not a list",
        ),
        ({"agent_data": {"turns": [{"events": [{"content": 1}]}]}}, r"turns\[0\]\.events\[0\]"),
        ({"prompt": "Hi"}, "response: the value is null, not an object"),
        ({"prompt": "Hi", "response": "x", "conversation_history": "{"}, "is not JSON"),
    ],
)
def test_what_is_no_row_is_refused(row: Any, message: str) -> None:
    with pytest.raises(WireError, match=message):
        from_vertex(row)
