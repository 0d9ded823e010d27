"""Pydantic's complaints in the words of a file."""

from collections.abc import Mapping
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, field_validator

from assay.errors import ConfigError
from assay.types.file_problems import InvalidValue
from assay.types.guarded_yaml import YamlDocument, parse_yaml
from assay.types.model_problems import validate_document


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


def told(data: Any, model: type[BaseModel] = Tree) -> str:
    with pytest.raises(ConfigError) as caught:
        validate_document(YamlDocument(data, "f"), model)
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"leafs": []}, "leafs: unknown field\n  hint: did you mean 'leaves'?"),
        ({"longNam": ""}, "longNam: unknown field\n  hint: did you mean 'longName'?"),
        (
            {"leaves": [{"siez": 1}]},
            "leaves[0].siez: unknown field\n  hint: did you mean 'size'?",
        ),
        (
            {"named": {"size": {"qqq": 1}}},
            "named.size.qqq: unknown field\n  hint: known names: 'size', 'on', 'kind'",
        ),
        (
            {"leaves": [{"size": "5"}]},
            "leaves[0].size: the value is '5', not a whole number\n  hint: remove the quotes",
        ),
        ({"leaves": [{"on": 1}]}, "leaves[0].on: the value is 1, neither true nor false"),
        ({"longName": 5}, "longName: the value is 5, not text\n  hint: quote the value"),
        ({"leaves": [{"kind": "c"}]}, "leaves[0].kind: 'c' is not 'a' or 'b'"),
        (
            {"leaves": [{"size": 0}]},
            "leaves[0].size: the value is 0: Input should be greater than 0",
        ),
        ({"leaves": 5}, "leaves: the value is 5, not a list"),
        ({"leaves": [None]}, "leaves[0]: the value is null, not a mapping"),
    ],
)
def test_a_complaint_says_what_stands_there_and_what_was_meant(data: Any, complaint: str) -> None:
    assert told(data) == f"f: {complaint}"


def test_a_list_is_not_called_too_short_because_of_its_members() -> None:
    class Bush(BaseModel):
        leaves: tuple[Leaf, ...] = Field(min_length=1)

    assert told({"leaves": [{"size": 0}]}, Bush).startswith("f: leaves[0].size: the value is 0")
    assert told({"leaves": []}, Bush) == "f: leaves: the list is empty"


def test_a_wrong_key_is_told_at_its_own_place() -> None:
    class Scale(BaseModel):
        levels: dict[int, str]

    complaint = told({"levels": {"x": "a"}}, Scale)

    assert complaint == "f: levels.x: the value is 'x', not a whole number"


def test_all_complaints_are_told() -> None:
    complaint = told({"leaves": [{"size": 0, "on": "x"}], "other": 1})

    assert complaint.startswith("f: the file has 3 problems\n")


def test_a_file_that_is_no_mapping_names_the_fields_that_it_needs() -> None:
    class Required(BaseModel):
        first: int
        second: int = 0

    message = "f: the file is a list, not a mapping\n  hint: the required fields are first"

    assert told([], Required) == message


def test_a_complaint_of_a_validator_leads_to_the_part_that_is_wrong() -> None:
    class Pairs(BaseModel):
        pairs: dict[str, list[int]]

        @field_validator("pairs")
        @classmethod
        def _ascending(cls, pairs: dict[str, list[int]]) -> dict[str, list[int]]:
            raise InvalidValue("2 comes before 1", hint="swap them", place=("a", 1))

    document = parse_yaml("pairs:\n  a: [2,\n      1]\n", file="f.yaml")
    with pytest.raises(ConfigError) as caught:
        validate_document(document, Pairs)

    assert str(caught.value) == "f.yaml:3:7: pairs.a[1]: 2 comes before 1\n  hint: swap them"


def test_a_short_form_is_named_as_it_was_written() -> None:
    class Names(BaseModel):
        names: list[str]

        @field_validator("names", mode="before")
        @classmethod
        def _wrap(cls, value: Any) -> Any:
            return value if isinstance(value, list) else [value]

    assert told({"names": 5}, Names).startswith("f: names: the value is 5, not text")
