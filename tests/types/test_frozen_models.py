"""Values that cannot be changed: all the way down, hashable, and written as they came."""

import copy
import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from assay.types.frozen_models import (
    ExtensibleModel,
    FrozenDict,
    FrozenJson,
    FrozenMapping,
    FrozenModel,
    FrozenOpenModel,
    freeze,
    thaw,
)


class Point(FrozenModel):
    x: int
    notes: FrozenDict[FrozenJson] = FrozenMapping({})


class Open(FrozenOpenModel):
    name: str


class Extended(ExtensibleModel):
    name: str


def test_a_frozen_mapping_reads_like_a_dict_and_cannot_be_changed() -> None:
    frozen = FrozenMapping({"a": 1})

    assert frozen == {"a": 1}
    assert (frozen["a"], list(frozen), len(frozen), repr(frozen)) == (1, ["a"], 1, "{'a': 1}")
    assert hash(frozen) == hash(FrozenMapping({"a": 1}))
    assert pickle.loads(pickle.dumps(frozen)) == frozen
    assert copy.copy(frozen) is copy.deepcopy(frozen) is frozen
    with pytest.raises(TypeError):
        frozen["a"] = 2  # type: ignore[index]  # what is tested


def test_plain_data_is_frozen_all_the_way_down_and_comes_back() -> None:
    given = {"a": [1, {"b": [None, True, 1.5, "x"]}]}

    frozen = freeze(given)

    assert frozen["a"][1]["b"] == (None, True, 1.5, "x")
    assert isinstance(hash(frozen), int)
    assert thaw(frozen) == given


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "nan is not a finite number"),
        ([float("inf")], "inf is not a finite number"),
        ({1: "a"}, "the key 1 is not text"),
        ({"a": object()}, "a object is not plain data"),
        (b"x", "a bytes is not plain data"),
    ],
)
def test_what_is_not_plain_is_refused(value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        freeze(value)


def test_a_fixed_value_is_hashable_and_cannot_be_assigned_to() -> None:
    point = Point(x=1, notes={"a": [1]})

    assert hash(point) == hash(Point(x=1, notes={"a": [1]}))
    with pytest.raises(ValidationError, match="frozen"):
        point.x = 2  # type: ignore[misc]  # what is tested
    assert point.notes["a"] == (1,)
    assert point.model_dump() == {"x": 1, "notes": {"a": [1]}}
    assert Point.model_validate_json(point.model_dump_json()) == point


def test_a_copy_is_checked_like_a_new_value() -> None:
    point = Point(x=1)

    assert point.model_copy(update={"x": 2}).x == 2
    assert point.model_copy() == point
    with pytest.raises(ValidationError):
        point.model_copy(update={"x": "garbage"})
    with pytest.raises(ValidationError):
        point.model_copy(update={"y": 1})


def test_an_open_ended_value_keeps_what_it_does_not_know() -> None:
    kept = Open.model_validate({"name": "a", "more": {"deep": [1]}})

    assert kept.model_dump() == {"name": "a", "more": {"deep": [1]}}
    assert Open.model_validate_json(kept.model_dump_json()) == kept
    assert hash(kept) == hash(Open.model_validate({"name": "a", "more": {"deep": [1]}}))
    assert kept.model_copy(update={"name": "b"}).model_dump()["more"] == {"deep": [1]}
    with pytest.raises(ValidationError, match="not plain data"):
        Open.model_validate({"name": "a", "more": object()})


def test_extensions_begin_with_x_and_are_written_where_they_stood() -> None:
    extended = Extended.model_validate({"name": "a", "x-design": {"color": "red"}})

    assert extended.extensions == {"x-design": {"color": "red"}}
    assert extended.model_dump() == {"name": "a", "x-design": {"color": "red"}}
    assert Extended.model_validate(extended.model_dump()) == extended
    with pytest.raises(ValidationError, match="Extra inputs"):
        Extended.model_validate({"name": "a", "design": 1})
    with pytest.raises(ValidationError, match="does not begin with 'x-'"):
        Extended.model_validate({"name": "a", "extensions": {"design": 1}})
