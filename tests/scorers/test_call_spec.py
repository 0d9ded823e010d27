"""A function takes what it names."""

from __future__ import annotations

import typing

import pytest

from assay.errors import ConfigError
from assay.scorers.call_spec import read_call_spec
from assay.types import EvaluationRow, Message, Sample

ROW = Sample(
    id="a",
    prompt=[{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}],
    ground_truth="4",
    input={"question": "2+2?", "level": 3, "ground_truth": "from the row"},
    metadata={"dataset": "sums"},
)


def test_names_of_the_sample_and_fields_of_the_row_are_filled() -> None:
    def score(messages, ground_truth, response, level):  # type: ignore[no-untyped-def]  # as users write
        return None

    assert read_call_spec(score).of(ROW) == {
        "messages": ROW.messages,
        "ground_truth": "4",
        "response": "4",
        "level": 3,
    }


def test_sample_and_row_are_the_sample_itself() -> None:
    def score(sample, row):  # type: ignore[no-untyped-def]  # as users write
        return None

    assert read_call_spec(score).of(ROW) == {"sample": ROW, "row": ROW}


def test_an_annotation_is_enough_also_when_it_is_a_string() -> None:
    def score(it: Sample, again: EvaluationRow) -> None:
        return None

    assert read_call_spec(score).of(ROW) == {"it": ROW, "again": ROW}


def test_an_annotation_that_cannot_be_looked_up_is_no_obstacle() -> None:
    def score(messages: list[NoSuchType]) -> None:  # type: ignore[name-defined]  # noqa: F821
        return None

    assert read_call_spec(score).of(ROW) == {"messages": ROW.messages}


def test_keywords_take_the_rest_of_the_row() -> None:
    def score(messages: list[Message], **kwargs: object) -> None:
        return None

    assert read_call_spec(score).of(ROW) == {
        "messages": ROW.messages,
        "question": "2+2?",
        "level": 3,
        "ground_truth": "from the row",
    }


def test_a_default_stands_in_for_a_field_that_is_not_there() -> None:
    def score(level: int, weight: float = 0.5) -> None:
        return None

    assert read_call_spec(score).of(ROW) == {"level": 3}


def test_what_comes_from_elsewhere_is_left_alone() -> None:
    def score(level: int, tmp_path: object) -> None:
        return None

    assert read_call_spec(score, given=["tmp_path"]).of(ROW) == {"level": 3}


def test_a_field_that_is_not_there_is_named_with_those_that_are() -> None:
    def score(levle: int) -> None:
        return None

    with pytest.raises(ConfigError, match=r"sample 'a' has no field 'levle'; .*'level'"):
        read_call_spec(score).of(ROW)


def test_several_samples_become_lists() -> None:
    def score(ground_truth: list[str], rows: object = None) -> None:
        return None

    other = ROW.model_copy(update={"ground_truth": "5"})

    assert read_call_spec(score).lists([ROW, other]) == {"ground_truth": ["4", "5"]}


def test_positional_only_parameters_are_refused() -> None:
    def starred(*messages: object) -> None:
        return None

    with pytest.raises(ConfigError, match="cannot be passed by name"):
        read_call_spec(starred)


def test_a_list_of_samples_is_filled_whatever_its_name() -> None:
    def score(rows: list[Sample], others: typing.List[Sample]) -> None:  # noqa: UP006
        return None

    assert read_call_spec(score).lists([ROW, ROW]) == {"rows": [ROW, ROW], "others": [ROW, ROW]}
