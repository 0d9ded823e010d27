"""Conversations without a rollout: what is asked in them, and what they show."""

from typing import Any

import pytest

from assay.datasets import load_samples
from assay.errors import TokenError
from assay.train import to_demonstration
from assay.train.retokenize import find_answer_places
from assay.types import Sample, Trajectory
from make import asked, said, sample

TALK = [asked("one?"), said("1"), asked("two?"), said("2")]


def test_all_answers_of_a_conversation_are_shown() -> None:
    made = to_demonstration(Sample(prompt=TALK))

    assert made.prompt == TALK[:1]
    assert made.messages == TALK
    assert find_answer_places(made) == [1, 3]


def test_only_the_last_answer_where_that_is_asked_for() -> None:
    made = to_demonstration(Sample(prompt=TALK), turns="last")

    assert made.prompt == TALK[:3]
    assert find_answer_places(made) == [3]


def read(row: dict[str, Any]) -> Sample:
    (made,) = load_samples([row])
    return made


def test_a_completion_answers_its_prompt_and_the_prompt_is_context() -> None:
    history = [message.to_dict() for message in TALK[:3]]
    completion = [{"role": "assistant", "content": "2"}]

    made = to_demonstration(read({"prompt": history, "completion": completion}))

    assert made.messages == TALK
    assert find_answer_places(made) == [3]


def test_a_completion_may_be_text() -> None:
    made = to_demonstration(read({"prompt": "one?", "completion": "1"}))

    assert made.messages == TALK[:2]


def test_a_sample_with_a_trajectory_stays_as_it_is() -> None:
    given = sample(*TALK)

    assert to_demonstration(given) is given


@pytest.mark.parametrize("messages", [TALK[:1], TALK[:3]])
def test_a_conversation_that_waits_for_an_answer_shows_nothing(messages: list[Any]) -> None:
    with pytest.raises(TokenError, match="does not end with an answer"):
        to_demonstration(Sample(prompt=messages))


@pytest.mark.parametrize("completion", [3, [{"content": "no role"}]])
def test_a_completion_of_another_kind_is_refused(completion: object) -> None:
    with pytest.raises(TokenError, match="neither text nor a list of messages"):
        to_demonstration(Sample(prompt="one?", input={"completion": completion}))


def test_the_sample_itself_is_left_as_it_was() -> None:
    given = Sample(prompt=TALK)

    to_demonstration(given)

    assert given.trajectory is None
    assert given.prompt == TALK
    assert Trajectory(messages=TALK).messages == TALK
