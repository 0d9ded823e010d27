"""Labels beside ids."""

from typing import Any

import pytest

from assay.datasets import PromptTemplate, load_samples
from assay.types import Message, Sample, TextBlock, build_label
from make import asked, said, sample


def session_sample(**given: Any) -> Sample:
    metadata = {"source": "opencode", "content_id": "c"}
    return sample(asked("Do the tests pass?"), said("No."), input=given, metadata=metadata)


def test_a_title_goes_before_the_question() -> None:
    assert build_label(session_sample(title="Failing test")) == "Failing test"
    assert build_label(session_sample(title=" ")) == "Do the tests pass?"
    assert build_label(session_sample(title=5)) == "Do the tests pass?"


@pytest.mark.parametrize(
    "made",
    [
        Sample(prompt="\n  What is 2+2?\nShow your work."),
        Sample(prompt=[Message(role="system", content="Be brief."), asked("What is 2+2?")]),
        sample(Message(role="user", content=(TextBlock(type="text", text="What is 2+2?"),))),
    ],
)
def test_the_label_of_a_sample_is_the_first_line_of_its_question(made: Sample) -> None:
    assert build_label(made) == "What is 2+2?"


def test_a_sample_that_asks_nothing_has_no_label() -> None:
    assert build_label(sample(said("Hello."))) == ""


def test_a_row_of_a_dataset_may_have_a_title() -> None:
    assert build_label(sample(asked("2+2?"), said("4"), input={"title": "Sums"})) == "Sums"


def test_the_label_of_a_filled_prompt_is_its_first_line_of_the_row() -> None:
    template = PromptTemplate("You are a poet.\n\nTopic: {topic}\nTone: {tone}")
    rows: list[Sample | dict[str, Any]] = [
        {"topic": "bread", "tone": "sad"},
        {"topic": " ", "tone": "kind"},
        {"topic": 1, "tone": 2},
    ]

    labels = [build_label(each) for each in load_samples(rows).with_prompt(template)]

    assert labels == ["Topic: bread", "Tone: kind", "You are a poet."]


def test_the_label_of_a_question_is_its_first_line_whatever_the_row_contains() -> None:
    row = {"question": "Read this.\nName the sea.", "topic": "sea"}

    assert [build_label(each) for each in load_samples([row])] == ["Read this."]
