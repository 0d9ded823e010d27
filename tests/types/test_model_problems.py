"""Pydantic's complaints in the words of a file."""

from collections.abc import Mapping
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, ValidationError

from assay.types.model_problems import find_model_problems


class Leaf(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: StrictInt = Field(default=1, gt=0)
    on: StrictBool = False
    kind: Literal["a", "b"] = "a"


class Tree(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    leaves: tuple[Leaf, ...] = ()
    named: Mapping[str, Leaf | None] | None = None
    long_name: str = Field(default="", alias="longName")


def told(data: Any) -> list[tuple[tuple[str | int, ...], str, str | None]]:
    with pytest.raises(ValidationError) as caught:
        Tree.model_validate(data)
    return list(find_model_problems(caught.value, Tree))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"leafs": []}, (("leafs",), "unknown field", "did you mean 'leaves'?")),
        (
            {"longNam": ""},
            (("longNam",), "unknown field", "did you mean 'longName'?"),
        ),
        (
            {"leaves": [{"siez": 1}]},
            (("leaves", 0, "siez"), "unknown field", "did you mean 'size'?"),
        ),
        (
            {"named": {"size": {"qqq": 1}}},
            (
                ("named", "size", "qqq"),
                "unknown field",
                "known names: 'size', 'on', 'kind'",
            ),
        ),
        (
            {"leaves": [{"size": "5"}]},
            (("leaves", 0, "size"), "the value is '5', not a whole number", "remove the quotes"),
        ),
        (
            {"leaves": [{"on": 1}]},
            (("leaves", 0, "on"), "the value is 1, neither true nor false", None),
        ),
        ({"longName": 5}, (("longName",), "the value is 5, not text", "quote the value")),
        (
            {"leaves": [{"kind": "c"}]},
            (("leaves", 0, "kind"), "'c' is not 'a' or 'b'", None),
        ),
        (
            {"leaves": [{"size": 0}]},
            (("leaves", 0, "size"), "the value is 0: Input should be greater than 0", None),
        ),
        ({"leaves": 5}, (("leaves",), "the value is 5, not a list", None)),
        ({"leaves": [None]}, (("leaves", 0), "the value is null, not a mapping", None)),
    ],
)
def test_a_complaint_says_what_stands_there_and_what_was_meant(
    data: Any, complaint: tuple[Any, ...]
) -> None:
    assert told(data) == [complaint]


def test_a_list_is_not_called_too_short_because_of_its_members() -> None:
    class Bush(BaseModel):
        leaves: tuple[Leaf, ...] = Field(min_length=1)

    with pytest.raises(ValidationError) as caught:
        Bush.model_validate({"leaves": [{"size": 0}]})
    assert [place for place, _, _ in find_model_problems(caught.value, Bush)] == [
        ("leaves", 0, "size")
    ]

    with pytest.raises(ValidationError) as caught:
        Bush.model_validate({"leaves": []})
    assert [place for place, _, _ in find_model_problems(caught.value, Bush)] == [("leaves",)]


def test_a_wrong_key_is_told_at_its_own_place() -> None:
    class Scale(BaseModel):
        levels: dict[int, str]

    with pytest.raises(ValidationError) as caught:
        Scale.model_validate({"levels": {"x": "a"}})

    (told,) = find_model_problems(caught.value, Scale)
    assert told == (("levels", "x"), "the value is 'x', not a whole number", None)


def test_all_complaints_are_told() -> None:
    assert len(told({"leaves": [{"size": 0, "on": "x"}], "other": 1})) == 3
