"""What an agent under test is shown: everything but the answer."""

from typing import Any

import pytest

from assay.agents.agent import hide_expected_answer
from assay.types import EvaluateResult, Sample
from make import asked


@pytest.mark.parametrize(
    "row",
    [
        {"question": "?", "expected": "4"},
        {"question": "?", "answer": "4", "note": "4"},
        {"question": "?", "reward_model": {"ground_truth": "4"}},
        {"question": "?", "expected": "4", "more": [{"answer": "4", "hint": "4"}]},
    ],
)
def test_the_expected_answer_is_not_shown(row: dict[str, Any]) -> None:
    sample = Sample(prompt="?", ground_truth="4", input=row, score=EvaluateResult(score=1))

    question = hide_expected_answer(sample)

    assert (question.ground_truth, question.score) == (None, None)
    assert "4" not in str(question.input)
    assert question.input["question"] == "?"
    assert sample.ground_truth == "4"


@pytest.mark.parametrize(
    "options",
    [
        {"a": "Paris", "b": "Rome"},
        {"option_1": "Rome", "option_2": "Paris"},
        {"choiceA": "Paris", "choiceB": "Rome"},
        {"choices": {"A": "Rome", "B": "Paris"}},
        {"choices": ["Paris", "Rome"]},
        {"question": "Paris"},
    ],
)
def test_the_options_of_a_question_are_shown(options: dict[str, Any]) -> None:
    row = {**options, "answer": "Paris", "gold": "Paris", "label_1": "Paris"}

    question = hide_expected_answer(Sample(prompt="?", ground_truth="Paris", input=row))

    assert question.input == options


def test_equal_labels_of_several_people_are_not_options() -> None:
    row = {"label_1": "spam", "label_2": "spam", "text": "Buy!"}

    question = hide_expected_answer(Sample(prompt="?", ground_truth="spam", input=row))

    assert question.input == {"text": "Buy!"}


def test_the_expected_answer_is_not_among_the_metadata() -> None:
    sample = Sample(prompt="?", ground_truth="4", metadata={"answer": "4", "level": 2})

    assert hide_expected_answer(sample).metadata == {"level": 2}
    assert sample.metadata == {"answer": "4", "level": 2}


def test_what_an_agent_does_to_its_question_changes_no_other() -> None:
    sample = Sample(prompt=[asked("Hard?")], input={"more": ["x"]}, metadata={"more": {"a": 1}})
    question = hide_expected_answer(sample)

    question.messages[:] = [asked("Easy?")]
    question.input["more"].append("y")
    question.metadata["more"]["a"] = 2

    assert [message.text for message in sample.messages] == ["Hard?"]
    assert (sample.input, sample.metadata) == ({"more": ["x"]}, {"more": {"a": 1}})
