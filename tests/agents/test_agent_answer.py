"""Answers of agents as trajectories: the question stays, and nothing is invented."""

from typing import Any

import pytest

from assay.agents import RunContext
from assay.agents.agent import AgentFault
from assay.agents.agent_answer import build_trajectory
from assay.types import Message, Sample, Trajectory
from make import asked, said

ASKED = Sample(prompt="2 + 2?", ground_truth="4")


def build(value: object) -> Trajectory:
    return build_trajectory(value, RunContext(messages=ASKED.messages), 0.1)


@pytest.mark.parametrize(
    "value",
    [
        "four",
        said("four"),
        {"role": "assistant", "content": "four"},
        [said("four")],
        [asked("2 + 2?"), said("let me see"), said("four")],
        Trajectory(messages=[asked("2 + 2?"), said("four")]),
    ],
    ids=["text", "message", "dict", "messages", "conversation", "trajectory"],
)
def test_text_messages_and_trajectories_are_answers(value: Any) -> None:
    trajectory = build(value)

    assert [message.role for message in trajectory.messages][:2] == ["user", "assistant"]
    assert trajectory.messages[-1].text == "four"
    assert trajectory.duration == 0.1


@pytest.mark.parametrize("value", ["gr\u00fc\u00df \ud83d", [said("gr\u00fc\u00df \ud83d")]])
def test_an_answer_that_was_cut_inside_an_emoji_can_be_recorded(value: Any) -> None:
    trajectory = build(value)

    assert trajectory.messages[-1].text == "gr\u00fc\u00df \ufffd"
    assert trajectory.to_json()


@pytest.mark.parametrize("value", [None, [], b"four", object()])
def test_anything_else_is_not_an_answer(value: Any) -> None:
    with pytest.raises(AgentFault, match="the agent returned"):
        build(value)


def test_a_trajectory_without_messages_is_not_an_answer() -> None:
    with pytest.raises(AgentFault, match="without messages"):
        build(Trajectory())


@pytest.mark.parametrize("first", [asked("1 + 1?"), said("Sure.")])
def test_a_trajectory_cannot_omit_or_change_its_question(first: Message) -> None:
    made = Trajectory(messages=[first, said("four")])

    messages = build(made).messages

    assert [message.text for message in messages] == ["2 + 2?", first.text, "four"]
    assert len(made.messages) == 2


def test_a_trajectory_may_have_messages_before_the_question() -> None:
    made = Trajectory(messages=[said("Welcome."), asked("2 + 2?"), said("four")], duration=3.0)

    assert build(made) == made


def test_a_conversation_may_begin_with_a_system_message_of_the_agent() -> None:
    own = [{"role": "system", "content": "Be brief."}, asked("2 + 2?").to_dict()]

    messages = build([*own, {"role": "assistant", "content": "four"}]).messages

    assert [message.role for message in messages] == ["system", "user", "assistant"]


def test_parts_that_a_message_cannot_represent_are_counted() -> None:
    parts = [{"part_kind": "text", "content": "four"}, {"part_kind": "hologram"}]

    trajectory = build([{"kind": "response", "parts": parts}])

    assert trajectory.messages[-1].text == "four"
    assert sum((trajectory.model_extra or {})["dropped"].values()) == 1


def test_the_usage_that_an_agent_reports_is_recorded() -> None:
    completion = {
        "choices": [{"message": {"role": "assistant", "content": "four"}}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    }

    (call,) = build(completion).calls

    assert call.usage is not None
    assert (call.usage.input_tokens, call.usage.output_tokens) == (5, 2)
    assert build("four").calls == []
