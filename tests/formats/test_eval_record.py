"""The evaluation record: the seed's keys, its turns, and the way back to a sample."""

import json
from itertools import pairwise
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from assay.errors import WireError
from assay.formats.eval_record import eval_record_schema, from_eval_record, to_eval_record
from assay.sessions import read_opencode
from assay.types import Message, Sample
from make import answered, asked, called, said, sample
from opencode_archives import RECORDED, VERSIONS

KEYS = """
session_id title created request response intermediate_events prompt prompt_concat
response_concat conversation_history generated_trajectory metadata
""".split()


def record(*messages: Message, **fields: Any) -> dict[str, Any]:
    return to_eval_record(sample(*messages, id="ses_1", **fields)).value


def texts(contents: list[dict[str, Any]]) -> list[str]:
    return [content["parts"][0]["text"] for content in contents]


def recorded_samples() -> list[Any]:
    return [
        pytest.param(each, id=f"{version} {each.input['title']} {each.id[-4:]}")
        for version in VERSIONS
        for each in read_opencode(RECORDED / version)
    ]


@pytest.mark.parametrize("recorded", recorded_samples())
def test_a_recorded_session_fits_the_schema_and_comes_back(recorded: Sample) -> None:
    written = to_eval_record(recorded).value

    Draft202012Validator(eval_record_schema()).validate(written)
    read = from_eval_record(json.loads(json.dumps(written)))
    assert list(written) == KEYS
    assert to_eval_record(read).value == written
    assert from_eval_record(to_eval_record(read).value) == read
    roles = [content["role"] for content in written["request"]["contents"]]
    assert all(roles[event["turn"] - 1] == "model" for event in written["intermediate_events"])
    assert all(one != other for one, other in pairwise(roles))


def test_the_walkthrough_says_what_its_user_and_agent_said() -> None:
    walkthrough = next(iter(read_opencode(RECORDED / "1.18.33")))

    written = to_eval_record(walkthrough).value

    assert written["metadata"] | {"subagents": 1} == {
        "total_turns": 6,
        "total_tools": 10,
        "user_turns": 3,
        "model_turns": 3,
        "distinct_tools": 6,
        "tool_errors": 6,
        "turn_base": "contents",
        "response_mode": "final",
        "finish_reason": "stop",
        "subagents": 1,
    }
    assert written["prompt"] == '"Have a helper count the lines. [S3]"'
    assert written["created"] == "2026-11-15T18:07:26.810Z"
    unknown = written["intermediate_events"][6]
    assert unknown["function_call"] == {"name": "no_such_tool", "args": {}}
    assert unknown["function_response"]["response"]["error"].startswith("Model tried to call")
    assert (unknown["turn"], unknown["model_turn"], unknown["turn_index"]) == (4, 2, 1)
    assert written["generated_trajectory"][6]["output"].startswith("Model tried to call")


def test_the_prompt_is_the_last_user_turn_and_the_history_what_was_before_it() -> None:
    written = record(asked("a"), said("b"), asked("c"), asked("d"), said("e"))

    assert written["prompt"] == "c\n\nd"
    assert texts(written["conversation_history"]) == ["a", "b"]
    assert texts(written["request"]["contents"]) == ["a", "b", "c\n\nd", "e"]
    assert (written["prompt_concat"], written["response_concat"]) == ("a\n\nc\n\nd", "b\n\ne")


TURN = (asked("a"), said("I'll look", called("ls")), answered("x"), said("done"))


def test_the_response_is_what_was_said_after_the_last_tool() -> None:
    written = record(*TURN)

    assert texts([written["response"]["candidates"][0]["content"]]) == ["done"]
    assert texts(written["request"]["contents"][-1:]) == ["I'll look\n\ndone"]


def test_the_response_can_be_the_whole_turn() -> None:
    written = to_eval_record(sample(*TURN), response_mode="turn").value

    assert texts([written["response"]["candidates"][0]["content"]]) == ["I'll look\n\ndone"]
    assert written["metadata"]["response_mode"] == "turn"


def test_a_session_that_ends_with_the_user_has_no_response() -> None:
    written = record(asked("a"), said("b"), asked("c"))

    assert written["response"] == {"candidates": []}
    assert from_eval_record(written).status == "aborted"


def test_words_before_the_last_tool_are_marked_as_such() -> None:
    written = record(*TURN[:3])

    assert written["metadata"]["response_precedes_tools"] is True
    assert [m.role for m in from_eval_record(written).messages] == ["user", "assistant", "tool"]


def test_a_sample_without_messages_is_an_empty_record() -> None:
    written = record()

    assert written["metadata"]["total_turns"] == 0
    assert (written["prompt"], written["created"]) == ("", None)
    assert to_eval_record(from_eval_record(written)).value == written


def test_a_session_may_begin_with_the_model() -> None:
    written = record(said("hello", called("ls")), answered("x"), asked("a"))

    assert written["intermediate_events"][0]["turn"] == 1
    assert written["intermediate_events"][0]["turn_index"] == 0


def test_what_the_record_cannot_hold_is_reported() -> None:
    dropped = to_eval_record(sample(Message(role="assistant", content="a", reasoning="r"))).dropped

    assert [loss.where for loss in dropped] == ["messages[0].reasoning"]


def test_what_is_not_known_in_metadata_comes_back() -> None:
    written = record(asked("a"), said("b"))
    written["metadata"]["label"] = "good"

    assert to_eval_record(from_eval_record(written)).value == written


def bare(*turns: int) -> dict[str, Any]:
    """A record by somebody else: two exchanges, and events with nothing but a turn."""
    whole = record(asked("a"), said("b"), asked("c"), said("d"))
    events = [
        {
            "function_call": {"name": f"t{turn}", "args": {}},
            "function_response": {"name": f"t{turn}", "response": {"output": "x", "more": 1}},
            "turn": turn,
        }
        for turn in turns
    ]
    return {**whole, "intermediate_events": events, "metadata": {}}


@pytest.mark.parametrize(
    ("turns", "read_as"),
    [((2, 4), (2, 4)), ((1, 2), (2, 4)), ((1,), (2,)), ((3,), (4,)), ((2,), (2,))],
)
def test_all_three_ways_of_counting_turns_are_read(
    turns: tuple[int, ...], read_as: tuple[int, ...]
) -> None:
    read = to_eval_record(from_eval_record(bare(*turns))).value

    assert tuple(event["turn"] for event in read["intermediate_events"]) == read_as
    response = read["intermediate_events"][0]["function_response"]["response"]
    assert response == {"output": "x", "more": 1}


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a turn that is none": (bare(2, 9), r"intermediate_events\[1\].turn: turn 9 is not a turn"),
    "a turn that is text": (bare(2) | {"intermediate_events": [{"turn": "2"}]}, "turn '2' is no"),
    "no request": ({"session_id": "s"}, "request: the value is null, not an object"),
    "a role": (
        {"request": {"contents": [{"role": "tool", "parts": []}]}},
        r"request.contents\[0\].role: the role 'tool' is neither",
    ),
    "a part without text": (
        {"request": {"contents": [{"role": "user", "parts": [{"image": 1}]}]}},
        r"request.contents\[0\].parts\[0\].text: the value is null, not a string",
    ),
    "no id": ({"request": {"contents": []}}, "session_id: the value is null, not a string"),
    "a call without a name": (
        bare(2) | {"intermediate_events": [{"turn": 2, "function_call": {}}]},
        "cannot be read as a ToolCall",
    ),
}


@pytest.mark.parametrize(("broken", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_not_a_record_is_refused(broken: dict[str, Any], message: str) -> None:
    with pytest.raises(WireError, match=message):
        from_eval_record(broken)


def test_the_schema_says_no() -> None:
    validator = Draft202012Validator(eval_record_schema())
    good = record(*TURN)

    Draft202012Validator.check_schema(eval_record_schema())
    assert validator.is_valid(good)
    assert not validator.is_valid({**good, "extra": 1})
    assert not validator.is_valid({key: good[key] for key in KEYS[:-1]})
    assert not validator.is_valid({**good, "metadata": {}})


def with_response(text: str, *messages: Message) -> dict[str, Any]:
    """A record whose answer is said in `response`, whatever the request holds."""
    content = {"role": "model", "parts": [{"text": text}]}
    return record(*messages) | {"response": {"candidates": [{"content": content}]}}


LOOKED = (said("Let me look.", called("ls")), answered("a.py"))


@pytest.mark.parametrize(
    "messages",
    [
        [asked("a")],
        [asked("a"), said("b"), asked("c")],
        [asked("a"), said("The answer.")],
        [asked("a"), said("Well. The answer.")],
        [asked("a"), said("Thinking."), said("The answer.")],
        [asked("a"), said("Something else.")],
        [asked("a"), *LOOKED],
        [asked("a"), *LOOKED, said("The answer.")],
        [asked("a"), *LOOKED, said("Something else.")],
        [asked("a"), *LOOKED, asked("And?")],
        [],
    ],
)
def test_the_answer_is_the_response_of_the_record(messages: list[Message]) -> None:
    written = with_response("The answer.", *messages)

    read = from_eval_record(written)

    assert read.response == "The answer."
    assert read.messages[-1] == Message(role="assistant", content="The answer.")
    assert read.status == "completed"
    again = to_eval_record(read).value
    assert again["response"] == written["response"]
    assert len(again["intermediate_events"]) == len(written["intermediate_events"])


def test_an_answer_that_the_request_holds_is_not_said_twice() -> None:
    for messages in ([said("The answer.")], [said("Hm."), said("The answer.")]):
        read = from_eval_record(with_response("The answer.", asked("a"), *messages))

        assert read.messages == [asked("a"), *messages]


def test_events_may_belong_to_an_answer_that_only_the_response_holds() -> None:
    written = with_response("The answer.", asked("a"), *LOOKED)
    written["request"]["contents"].pop()
    written["metadata"] = {}

    read = from_eval_record(written)

    assert [m.role for m in read.messages] == ["user", "assistant", "tool", "assistant"]
    assert read.response == "The answer."


def test_a_response_need_not_name_its_role() -> None:
    written = record(asked("a"))
    written["response"] = {"candidates": [{"content": {"parts": [{"text": "b"}]}}]}

    assert from_eval_record(written).response == "b"


def with_subagents(levels: int) -> Sample:
    given = sample(*TURN, id="ses_0")
    for level in range(1, levels + 1):
        inner = [given.to_dict()]
        given = sample(*TURN, id=f"ses_{level}", metadata={"subagents": inner})
    return given


def test_subagents_are_records_inside_the_record() -> None:
    written = to_eval_record(with_subagents(2), tool_names={"ls": "list"})

    (middle,) = written.value["metadata"]["subagents"]
    (inner,) = middle["record"]["metadata"]["subagents"]
    assert (middle["id"], inner["id"]) == ("ses_1", "ses_0")
    assert inner["record"]["intermediate_events"][0]["function_call"]["name"] == "list"
    read = from_eval_record(json.loads(json.dumps(written.value)))
    child = Sample.from_dict(
        Sample.from_dict(read.metadata["subagents"][0]).metadata["subagents"][0]
    )
    assert child.messages == from_eval_record(inner["record"]).messages
    assert to_eval_record(read).value == written.value


def test_subagents_too_deep_are_named_and_reported_as_lost() -> None:
    written = to_eval_record(with_subagents(9))

    assert [dropped.what for dropped in written.dropped] == ["its conversation; left out"]
    assert to_eval_record(from_eval_record(written.value)).value == written.value
    inside = {"session_id": "x", "request": {"contents": []}, "metadata": {}}
    for _ in range(9):
        inside = {**inside, "metadata": {"subagents": [{"id": "x", "record": inside}]}}
    with pytest.raises(WireError, match="nested more than 8 deep"):
        from_eval_record(inside)


def test_a_damaged_subagent_is_named_and_reported_as_lost() -> None:
    damaged = {"id": "ses_x", "trajectory": {"messages": 5}}

    written = to_eval_record(sample(*TURN, metadata={"subagents": [damaged]}))

    assert written.value["metadata"]["subagents"] == [{"id": "ses_x"}]
    assert [dropped.where for dropped in written.dropped] == ["metadata.subagents[0]"]


@pytest.mark.parametrize("mark", ["yes", ["x"], {"a": 1}])
def test_a_mark_of_an_error_that_is_no_truth_value_is_counted_as_one(mark: Any) -> None:
    odd = Message(role="tool", content="4", tool_call_id="c", details={"is_error": mark})

    written = record(asked("Count."), said(None, called("wc", "c")), odd)

    assert written["intermediate_events"][0]["is_error"] is True
    assert written["metadata"]["tool_errors"] == 1


def test_the_turns_of_very_many_events_are_found_in_one_pass() -> None:
    turn = asked("Count."), said(None, called("wc", "c")), answered("4", "c"), said("Four.")
    written = record(*turn * 20_000)

    roles = [message.role for message in from_eval_record(written).messages]
    assert roles.count("tool") == 20_000
    written["intermediate_events"][-1]["turn"] = "last"
    with pytest.raises(WireError, match=r"turn 'last' is not a turn of the model"):
        from_eval_record(written)


def test_keys_of_another_writer_are_kept_and_written_back() -> None:
    record = to_eval_record(sample(asked("Hello?"), said("Hello."))).value
    record["reviewer"] = "Ada"

    read = from_eval_record(record)

    assert read.metadata["eval_record"] == {"reviewer": "Ada"}
    assert to_eval_record(read).value["metadata"]["reviewer"] == "Ada"
