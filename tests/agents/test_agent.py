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


@pytest.mark.parametrize(
    ("truth", "row"),
    [
        (4, {"gold": "4"}),
        (4, {"gold": 4.0, "copy": [4]}),
        ("4", {"gold": 4}),
        ("Lima", {"gold": " lima ", "aliases": ["Lima", "LIMA"]}),
        (["Lima", "Ciudad de los Reyes"], {"gold": "Lima", "aliases": ["lima"]}),
        (["Lima", "Ciudad de los Reyes"], {"gold": ["Lima", "Ciudad de los Reyes"]}),
        ([3, 4], {"gold": [3, 4]}),
        ({"city": "Lima"}, {"gold": {"city": "Lima"}}),
    ],
)
def test_an_answer_of_any_type_is_not_shown_under_another_name(
    truth: Any, row: dict[str, Any]
) -> None:
    kept = {"question": "?", "level": True, "year": 1535, "numbers": [4, 3], "notes": []}

    question = hide_expected_answer(
        Sample(prompt="?", ground_truth=truth, input={**kept, **row}, metadata=row, extra=row)
    )

    assert (question.input, question.metadata) == (kept, {})
    assert question.model_extra == {"extra": {}}


@pytest.mark.parametrize(
    ("truth", "row"),
    [
        (["b", "a"], {"words": ["a", "b"]}),
        (["a", "b"], {"options": ["a", "b"]}),
        ("Lima", {"places": [{"name": "Lima"}, {"name": "Cusco"}]}),
        ("A", {"choices": {"label": ["A", "B"], "text": ["Lima", "Cusco"]}}),
        (1, {"options": ["Cusco", "Lima"], "verified": True}),
        (None, {"note": None, "empty": ""}),
    ],
)
def test_the_items_of_a_question_are_shown_beside_an_answer_of_any_type(
    truth: Any, row: dict[str, Any]
) -> None:
    assert hide_expected_answer(Sample(prompt="?", ground_truth=truth, input=row)).input == row


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
