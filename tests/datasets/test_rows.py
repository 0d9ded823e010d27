"""Rows that never were JSON text: what is refused of them."""

from typing import Any

import pytest

from assay.datasets.rows import check_row
from assay.errors import BadRow


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
