"""Rows that never were JSON text: what is refused of them, and rows in memory."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from assay.datasets import ReadLimits
from assay.datasets.rows import MemoryRows, check_json_form, check_row
from assay.errors import BadRow, DatasetError
from assay.types import Sample


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_json_has_no_word_for_is_refused_wherever_it_stands(number: float) -> None:
    found = check_row({"a": [{"b": (1.0, number)}]}, where="item 3", max_depth=10)

    assert isinstance(found, BadRow)
    expected = "item 3: the row contains NaN or an infinity\n  hint: write None for unknown"
    assert str(found) == expected


def test_a_number_of_another_float_type_is_seen_too() -> None:
    class Measured(float): ...

    found = check_row({"a": Measured("nan")}, where="item 0", max_depth=10)

    assert isinstance(found, BadRow)


def test_an_object_inside_itself_is_too_deep_rather_than_endless() -> None:
    loop: dict[str, Any] = {}
    loop["again"] = loop

    found = check_row(loop, where="item 0", max_depth=10)

    assert isinstance(found, BadRow)
    assert found.message == "the row is nested deeper than 10"


def test_a_sound_row_is_given_back_itself() -> None:
    row = {"a": [1.5, {"b": None}]}

    assert check_row(row, where="item 0", max_depth=3) is row


def test_dicts_become_copies_and_samples_stay() -> None:
    row, sample = {"prompt": "a"}, Sample(prompt="b")

    found = list(MemoryRows([row, sample], ReadLimits()))

    assert found == [(0, row), (1, sample)]
    assert found[0][1] is not row
    assert found[1][1] is sample


def test_a_list_is_read_as_often_as_asked() -> None:
    rows = MemoryRows([{"prompt": "a"}], ReadLimits())

    assert list(rows) == list(rows)


def test_a_generator_is_refused_the_second_time() -> None:
    def generated() -> Iterator[dict[str, Any]]:
        yield {"prompt": "a"}

    rows = MemoryRows(generated(), ReadLimits())
    list(rows)

    with pytest.raises(DatasetError, match="was already read and cannot be read again"):
        list(rows)


@pytest.mark.parametrize("item", ["text", 3, None, ["prompt"]])
def test_an_item_that_is_no_row_is_a_bad_row(item: object) -> None:
    ((_, found),) = MemoryRows([item], ReadLimits())

    assert isinstance(found, BadRow)
    assert str(found) == f"item 0: the item is a {type(item).__name__}, not a dict or a Sample"


def test_nan_is_refused_as_it_is_in_a_file() -> None:
    ((_, found),) = MemoryRows([{"prompt": "a", "answer": float("nan")}], ReadLimits())

    assert isinstance(found, BadRow)
    assert found.where == "item 0"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"\x89PNG\xff", "invalid utf-8 sequence"),
        (object(), "Unable to serialize unknown type"),
        ({"a": ["\ud83d"]}, "it contains a lone surrogate"),
        ({"a": [float("nan")]}, "it contains NaN"),
    ],
)
@pytest.mark.parametrize("place", ["input", "metadata"])
def test_a_value_that_no_result_could_hold_is_refused_by_its_name(
    value: Any, problem: str, place: str
) -> None:
    given = {"fine": 'NaN "Infinity"', "photo": value}
    sample = Sample.model_validate({"id": "1", "prompt": "a", place: given})

    with pytest.raises(BadRow, match=f"'photo' cannot be written as JSON: .*{problem}"):
        check_json_form(sample)


def test_values_that_are_written_as_text_are_accepted() -> None:
    day = datetime(2026, 1, 2, tzinfo=UTC)

    check_json_form(Sample(prompt="a", input={"day": day, "n": Decimal(1)}, ground_truth=b"x"))
