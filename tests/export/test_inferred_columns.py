"""Column types from values: what they unite, and how a value changes in them."""

from typing import Any

import pytest

from assay.errors import WireError
from assay.export.inferred_columns import (
    PADDED,
    REORDERED,
    RETYPED,
    Shape,
    find_changes,
    fit_to_shape,
    infer_shape,
    select_values,
)


def unite(*values: Any) -> Shape:
    shape = Shape()
    for value in values:
        shape.add(infer_shape(value))
    return shape


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([1, 2], int),
        ([1, 2.5], float),
        ([2.5, 1], float),
        ([None, True], bool),
        ([True, 1], str),
        (["a", {"b": 1}], str),
        ([{"b": 1}, [1]], str),
        ([2**63], str),
        ([None], str),
        ([[]], [str]),
        ([[], [1]], [int]),
        ([[1, "a"]], [str]),
        ([{}], {"_": str}),
        ([{"a": 1}, {"b": "x"}, {}], {"a": int, "b": str}),
        ([{"a": {"x": 1}}, {"a": {"y": [1.5]}}], {"a": {"x": int, "y": [float]}}),
    ],
)
def test_a_column_takes_every_value_that_was_seen(values: list[Any], column: Any) -> None:
    assert unite(*values).build_column() == column


@pytest.mark.parametrize(
    ("values", "fitted", "changes"),
    [
        ([{"a": 1}], {"a": 1}, set()),
        ([{"a": 1}, {"b": 1}], {"a": 1, "b": None}, {PADDED}),
        ([{}], {"_": None}, {PADDED}),
        (
            [{"a": [{"x": 1}, {"y": 2}]}],
            {"a": [{"x": 1, "y": None}, {"x": None, "y": 2}]},
            {PADDED},
        ),
        ([1, 1.5], 1.0, {RETYPED}),
        ([{"a": {"b": True}}, {"a": "x"}], {"a": '{"b": true}'}, {RETYPED}),
        ([2**63], str(2**63), {RETYPED}),
        ([None, "x"], None, set()),
    ],
)
def test_a_fitted_value_is_compared_with_the_original(
    values: list[Any], fitted: Any, changes: set[str]
) -> None:
    first = fit_to_shape(values[0], unite(*values))

    assert first == fitted
    assert find_changes(values[0], first) == changes


def test_another_order_of_keys_is_a_change() -> None:
    shape = unite({"a": 1, "b": 2}, {"b": 2, "a": 1})

    assert find_changes({"b": 2, "a": 1}, fit_to_shape({"b": 2, "a": 1}, shape)) == {REORDERED}


def test_fields_are_counted_at_every_level() -> None:
    assert unite({"a": [{"b": {"c": 1}}], "d": 2}).count_fields() == 4


@pytest.mark.parametrize("value", [float("nan"), {"a": [float("inf")]}])
def test_a_number_that_json_does_not_have_is_refused(value: Any) -> None:
    with pytest.raises(WireError, match="is not a JSON number"):
        infer_shape(value)


def test_endless_nesting_is_refused() -> None:
    value: Any = 1
    for _ in range(50):
        value = [value]

    with pytest.raises(WireError, match="levels deep"):
        infer_shape(value)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a[].b.c", [1, 2]),
        ("a[].b", [{"c": 1}, {"c": 2}]),
        ("d", [3]),
        ("e[].b", []),
        ("d.x", []),
        ("n[].b", []),
    ],
)
def test_a_path_selects_the_values_that_are_there(path: str, found: list[Any]) -> None:
    row = {"a": [{"b": {"c": 1}}, {"x": 0}, {"b": {"c": 2}}], "d": 3, "n": None}

    assert list(select_values(row, path)) == found
