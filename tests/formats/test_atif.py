"""ATIF: what is written is valid for its own package, and comes back as it was."""

import json
from typing import Any

import atif
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import WireError
from assay.formats.atif import from_atif, to_atif
from assay.sessions import Children, read_opencode
from assay.types import Message, ModelCall, Sample, ToolCall, Trajectory, Usage
from make import answered, asked, called, said, sample
from message_strategies import any_messages
from opencode_archives import RECORDED, VERSIONS


def valid(document: dict[str, Any]) -> dict[str, Any]:
    """The document after the format's own package has read and written it."""
    found: dict[str, Any] = atif.Trajectory.model_validate(document).to_json_dict()
    return found


@pytest.mark.parametrize("children", ["inline", "separate"])
@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_sessions_come_back_through_the_real_package(
    version: str, children: Children
) -> None:
    for recorded in read_opencode(RECORDED / version, children=children):
        written = to_atif(recorded)

        assert written.dropped == ()
        assert from_atif(valid(json.loads(json.dumps(written.value)))) == recorded


def test_an_answer_of_the_model_is_a_step_with_what_its_tools_said() -> None:
    document = to_atif(sample(asked("a"), said("b", called("ls", path=".")), answered("x"))).value

    assert [step["source"] for step in document["steps"]] == ["user", "agent"]
    step = document["steps"][1]
    assert step["tool_calls"] == [
        {"tool_call_id": "call_1", "function_name": "ls", "arguments": {"path": "."}}
    ]
    assert step["observation"]["results"] == [{"source_call_id": "call_1", "content": "x"}]


def test_tokens_and_their_ids_are_metrics() -> None:
    call = ModelCall(
        message_index=1,
        prompt_ids=(1, 2),
        completion_ids=(3,),
        logprobs=(-0.5,),
        usage=Usage(input_tokens=2, output_tokens=1, cached_tokens=0, cost_usd=0.1),
    )
    whole = Sample(trajectory=Trajectory(messages=[asked("a"), said("b")], calls=[call]))

    document = valid(to_atif(whole).value)

    assert document["steps"][1]["metrics"] == {
        "prompt_tokens": 2,
        "completion_tokens": 1,
        "cached_tokens": 0,
        "cost_usd": 0.1,
        "prompt_token_ids": [1, 2],
        "completion_token_ids": [3],
        "logprobs": [-0.5],
    }
    assert document["final_metrics"]["total_prompt_tokens"] == 2
    assert from_atif(document) == whole


def test_a_sum_with_an_unknown_part_is_not_written() -> None:
    calls = [ModelCall(message_index=0, usage=Usage(input_tokens=2)), ModelCall(message_index=1)]
    whole = Sample(trajectory=Trajectory(messages=[said("a"), said("b")], calls=calls))

    assert to_atif(whole).value["final_metrics"] == {"total_steps": 2}


def test_calls_without_a_step_are_summed_up_and_come_back_in_their_places() -> None:
    paid = [Usage(input_tokens=tokens) for tokens in (2, 30, 400, 5000)]
    calls = [
        ModelCall(usage=paid[0], purpose="title"),
        ModelCall(message_index=1, usage=paid[1], attempts=1),
        ModelCall(usage=paid[2], purpose="summary"),
        ModelCall(message_index=1, usage=paid[3], attempts=2),
    ]
    whole = Sample(id="s", trajectory=Trajectory(messages=[asked("a"), said("b")], calls=calls))

    document = valid(to_atif(whole).value)

    assert document["final_metrics"]["total_prompt_tokens"] == 5432
    assert from_atif(document).trajectory == whole.trajectory


def test_a_cost_that_is_known_as_a_total_is_written_and_read_as_one() -> None:
    calls = [ModelCall(message_index=0, usage=Usage(input_tokens=2))]
    whole = Sample(id="s", trajectory=Trajectory(messages=[said("a")], calls=calls, cost_usd=0.25))

    document = to_atif(whole).value
    of_others = from_atif({**document, "extra": {}})

    assert document["final_metrics"]["total_cost_usd"] == 0.25
    assert from_atif(document).trajectory == whole.trajectory
    assert of_others.trajectory is not None
    assert of_others.trajectory.cost_usd == 0.25


def test_the_session_of_a_subagent_is_embedded_and_pointed_at() -> None:
    (parent,) = (
        each for each in read_opencode(RECORDED / "1.18.33") if each.metadata.get("subagents")
    )

    document = to_atif(parent).value

    (child,) = document["subagent_trajectories"]
    references = [
        reference["trajectory_id"]
        for step in document["steps"]
        for result in step.get("observation", {}).get("results", ())
        for reference in result.get("subagent_trajectory_ref", ())
    ]
    assert references == [child["trajectory_id"]]


@settings(max_examples=60, deadline=None)
@given(st.lists(any_messages(), max_size=5))
def test_any_conversation_is_written_validly_and_losses_are_reported(
    conversation: list[Message],
) -> None:
    whole = Sample(id="s", trajectory=Trajectory(messages=conversation))

    written = to_atif(whole)

    valid(written.value)
    if not written.dropped:
        read = from_atif(json.loads(json.dumps(written.value)))
        assert [m.role for m in read.messages] == [m.role for m in conversation]
        assert [m.text for m in read.messages] == [m.text for m in conversation]


def test_a_call_without_an_id_gets_one_and_loses_it_again() -> None:
    whole = sample(asked("a"), said(None, ToolCall(name="ls")), Message(role="tool", content="x"))

    document = valid(to_atif(whole).value)

    assert document["steps"][1]["tool_calls"][0]["tool_call_id"]
    assert from_atif(document).messages[1] == whole.messages[1]


def test_a_sample_to_which_nothing_happened_yet_comes_back() -> None:
    waiting = Sample(id="s", prompt=[asked("a")], ground_truth=3)

    assert from_atif(valid(to_atif(waiting).value)) == waiting


def test_what_answers_nothing_is_reported() -> None:
    dropped = to_atif(
        sample(asked("a"), answered("x"), Message(role="oracle", content="o"))
    ).dropped

    assert [loss.where for loss in dropped] == ["messages[1]", "messages[2]"]


FOREIGN = {
    "schema_version": "ATIF-v1.6",
    "session_id": "s-1",
    "agent": {"name": "harness", "version": "2", "extra": {"k": 1}},
    "notes": "a note",
    "steps": [
        {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "hi"}]},
        {
            "step_id": 2,
            "source": "agent",
            "message": "",
            "reasoning_effort": "high",
            "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {"a": 1}}],
            "observation": {"results": [{"source_call_id": "c", "content": "r"}]},
            "metrics": {"prompt_tokens": 5, "extra": {"ttft": 1}},
            "extra": {"temperature": 1},
        },
    ],
    "extra": {"task": "t"},
}


def test_a_document_by_others_is_read_and_nothing_of_it_is_dropped() -> None:
    read = from_atif(valid(FOREIGN))

    assert read.id == "s-1"
    assert [message.role for message in read.messages] == ["user", "assistant", "tool"]
    assert read.prompt == read.messages[:1]
    assert read.metadata["source"] == "harness"
    assert read.metadata["atif"]["notes"] == "a note"
    assert read.metadata["atif"]["extra"] == {"task": "t"}
    step = (read.messages[1].__pydantic_extra__ or {})["atif"]
    assert step == {"reasoning_effort": "high", "extra": {"temperature": 1}}
    assert read.trajectory is not None
    assert read.trajectory.calls[0].usage == Usage(input_tokens=5)


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no version": ({}, "schema_version: the value is null, not a string"),
    "another format": ({"schema_version": "2.0"}, "'2.0' is not a supported version of ATIF"),
    "no steps": ({"schema_version": "ATIF-v1.8"}, "steps: the value is null, not a list"),
    "a source": (
        {"schema_version": "ATIF-v1.8", "steps": [{"source": "robot", "message": ""}]},
        r"steps\[0\].source: 'robot' is not a step source",
    ),
    "a message": (
        {"schema_version": "ATIF-v1.8", "steps": [{"source": "user"}]},
        r"steps\[0\].message: the value is null, not a list",
    ),
}


@pytest.mark.parametrize(("broken", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_not_a_document_is_refused(broken: dict[str, Any], message: str) -> None:
    with pytest.raises(WireError, match=message):
        from_atif(broken)


def test_very_many_calls_of_one_step_are_answered_in_one_pass() -> None:
    many = 10_000
    names = [f"call_{number}" for number in range(many)]
    talk = sample(
        said(None, *(called("wc", name) for name in names)), *(answered("4", n) for n in names)
    )

    (step,) = to_atif(talk).value["steps"]

    assert [each["source_call_id"] for each in step["observation"]["results"]] == names
