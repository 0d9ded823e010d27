"""Sessions that Claude Code 2.1.325 recorded, and what their samples hold."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.formats.anthropic import to_anthropic
from assay.formats.openai_chat import to_openai_chat
from assay.formats.tool_schemas import find_tools
from assay.sessions import SampleOptions
from assay.sessions.claude_code import read_claude_code
from assay.types import Sample

FOLDER = Path(__file__).parents[1] / "fixtures" / "claude_code_2_1_325"
PROJECT = FOLDER / "-srv-app"
TYPED = "9b6ab2ef-186c-491e-ad03-c57971e8efe3"
HELPED = "e06de9dd-f42c-4dc4-bebe-d912b9a24b78"
COMMAND = "1543d931-6acf-4d20-abd4-d239089cc5b2"
HELPER = f"{HELPED}/agent-acf588fe9130cc53b"


def samples(folder: Path = FOLDER, **options: Any) -> dict[str, Sample]:
    return {sample.id: sample for sample in read_claude_code(folder, **options)}


def said_in(sample: Sample) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in sample.messages]


def turn(kind: str, uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    message = {"id": f"m-{uuid}", "role": kind, "model": "m", "content": content}
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "message": message, **more}


def write(folder: Path, name: str, *records: dict[str, Any]) -> None:
    lines = [json.dumps({"sessionId": name, **record}) for record in records]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def test_genuine_sessions_are_read_with_nothing_unknown() -> None:
    stream = read_claude_code(FOLDER)

    assert {sample.id for sample in stream} == {TYPED, HELPED}
    assert (stream.reading.empty, stream.reading.inlined) == (1, 1)
    assert stream.reading.unknown_kinds == {}
    assert stream.reading.untested_versions == {}
    assert stream.reading.skipped == []


def test_a_subagent_has_its_whole_conversation_and_what_is_noted_beside_it() -> None:
    child = samples(children="separate")[HELPER]

    assert said_in(child) == [
        ("user", "Count the lines of greet.py. [S9]"),
        ("assistant", ""),
        ("tool", "2 greet.py"),
        ("assistant", "Two lines."),
    ]
    assert child.status == "completed"
    assert child.input["title"] == "Count lines"
    assert child.metadata["agent"] == {
        "type": "general-purpose",
        "description": "Count lines",
        "tool_call_id": "toolu_S2_0_0",
    }


def test_a_note_beside_a_subagent_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "s1" / "subagents"
    folder.mkdir(parents=True)
    write(tmp_path, "s1", turn("user", "u1", None, "Ask a helper."))
    write(folder, "agent-x", turn("user", "u1", None, "Count.", isSidechain=True))
    (folder / "agent-x.meta.json").write_text("{")

    stream = read_claude_code(tmp_path)
    (parent,) = stream

    assert parent.metadata["subagents"][0]["id"] == "s1/agent-x"
    assert [each.problem.where for each in stream.reading.damaged] == [
        str(folder / "agent-x.meta.json")
    ]


def test_what_was_typed_while_the_agent_worked_is_a_turn_at_its_place() -> None:
    assert said_in(samples()[TYPED])[:5] == [
        ("user", "Two slow steps. [S15]"),
        ("assistant", ""),
        ("tool", "one"),
        ("user", "By the way: please also mention the colour blue."),
        ("assistant", ""),
    ]


def test_the_outcome_of_a_background_task_is_a_message_that_names_its_call() -> None:
    sample = samples()[HELPED]

    outcome = sample.messages[4]
    assert (outcome.role, sample.messages[3].role, sample.messages[5].role) == (
        "user",
        "assistant",
        "assistant",
    )
    assert outcome.text.startswith("<task-notification>")
    assert outcome.metadata == {
        "kind": "task_notification",
        "tool_call_id": "toolu_S2_0_0",
        "task_id": "acf588fe9130cc53b",
    }
    assert outcome.details is not None
    assert (outcome.details["synthetic"], outcome.details["subagent"]) == (True, HELPER)


def test_providers_accept_a_conversation_with_background_tasks_and_typed_turns() -> None:
    for sample in samples().values():
        answered: list[str | None] = []
        for message in sample.messages:
            answered += [message.tool_call_id] if message.role == "tool" else []
        assert len(answered) == len(set(answered))
        turns = to_anthropic(sample.messages).value.messages
        assert [each["role"] for each in turns[::2]] == ["user"] * len(turns[::2])
        assert to_openai_chat(sample.messages).value[-1]["role"] == "assistant"


def test_records_are_a_small_share_of_a_sample_and_counted() -> None:
    plain = samples()[TYPED]
    whole = samples(options=SampleOptions(raw_records=True))[TYPED]

    assert "records" not in plain.metadata
    assert plain.metadata["omitted_records"]["api-request-blob"] == 3
    assert len(whole.metadata["records"]) == sum(plain.metadata["omitted_records"].values())
    assert len(plain.to_json()) < len(whole.to_json()) / 3


def test_the_cost_of_a_session_is_the_total_that_it_notes_last() -> None:
    for name, cost in ((TYPED, 0.002206), (HELPED, 0.002202)):
        trajectory = samples()[name].trajectory
        assert trajectory is not None
        assert trajectory.cost_usd == pytest.approx(cost)
        assert [call.usage and call.usage.cost_usd for call in trajectory.calls] == [None] * len(
            trajectory.calls
        )


@pytest.mark.parametrize(
    ("noted", "cost"),
    [
        ({"totalCostUSD": 0.5}, 0.5),
        ({"totalCostUSD": 0.5, "hasUnknownModelCost": True}, None),
        ({"totalCostUSD": -1}, None),
        ({"totalCostUSD": True}, None),
        ({"totalCostUSD": "0.5"}, None),
    ],
)
def test_a_cost_that_is_not_known_is_none(
    tmp_path: Path, noted: dict[str, Any], cost: float | None
) -> None:
    talk = (turn("user", "u1", None, "Hi"), turn("assistant", "a1", "u1", "Hello."))
    write(tmp_path, "whole", *talk, {"type": "cost-state", **noted})
    # The process that took the session up again was killed before it noted what it spent.
    more = turn("assistant", "a2", "a1", "And?")
    write(tmp_path, "stale", *talk, {"type": "cost-state", **noted}, more)

    found = {name: each.trajectory for name, each in samples(tmp_path).items()}

    assert {name: each and each.cost_usd for name, each in found.items()} == {
        "whole": cost,
        "stale": None,
    }


def test_the_system_prompt_is_the_first_message_and_tools_are_where_exporters_look(
    tmp_path: Path,
) -> None:
    schema = {"type": "object", "properties": {}}
    told = {
        "system": [{"type": "text", "text": "You are an agent."}],
        "tools": [{"name": "Read", "description": "d", "input_schema": schema}],
    }
    write(
        tmp_path,
        "s1",
        turn("user", "u1", None, "Hi"),
        {"type": "api-request-shape", "shapeHash": "h", "shape": told},
        {"type": "api-request", "id": "r1", "shapeHash": "h"},
        turn("assistant", "a1", "u1", "Hello.", requestRef="r1"),
    )

    sample = samples(tmp_path)["s1"]

    assert said_in(sample) == [
        ("system", "You are an agent."),
        ("user", "Hi"),
        ("assistant", "Hello."),
    ]
    assert sample.prompt == sample.messages[:2]
    assert sample.trajectory is not None
    assert sample.trajectory.calls[0].message_index == 2
    function = {"name": "Read", "description": "d", "parameters": schema}
    assert find_tools(sample) == [{"type": "function", "function": function}]
    assert Sample.from_json(sample.to_json()) == sample


def test_unknown_prompts_and_tools_are_left_out() -> None:
    sample = samples()[TYPED]

    assert sample.messages[0].role == "user"
    assert sample.trajectory is not None
    assert "tools" not in sample.trajectory.to_dict()


def test_a_fork_names_its_origin_and_counts_what_it_inherited(tmp_path: Path) -> None:
    first = (turn("user", "u1", None, "Hi"), turn("assistant", "a1", "u1", "Hello."))
    write(tmp_path, "origin", *first)
    more = (turn("user", "u2", "a1", "More."), turn("assistant", "a2", "u2", "Yes."))
    write(tmp_path, "a-fork", *first, *more)

    found = samples(tmp_path)
    (alone,) = read_claude_code(tmp_path / "a-fork.jsonl")

    forked = {"session_id": "origin", "inherited_messages": 2}
    assert found["a-fork"].metadata["forked_from"] == forked
    assert alone.metadata["forked_from"] == forked
    assert "forked_from" not in found["origin"].metadata
    assert len(found["a-fork"].messages) == 4


def test_a_session_of_one_command_is_empty() -> None:
    stream = read_claude_code(PROJECT / f"{COMMAND}.jsonl")

    assert list(stream) == []
    assert stream.reading.empty == 1


def test_a_system_prompt_alone_makes_no_sample(tmp_path: Path) -> None:
    told = {"type": "prompt_snapshot", "systemPrompt": ["Be brief."]}
    write(tmp_path, "s1", {"type": "attachment", "uuid": "x", "attachment": told})

    stream = read_claude_code(tmp_path)

    assert list(stream) == []
    assert stream.reading.empty == 1
