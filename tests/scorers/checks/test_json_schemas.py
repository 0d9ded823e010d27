"""Schemas: what they find, and what they may not do."""

import time
from typing import Any

import pytest

from assay.errors import MissingExtra
from assay.scorers.checks.json_schemas import Schema, compile_schema
from assay.types import InvalidValue, ValuePath


def schema(value: Any) -> Schema:
    return compile_schema(value)


def test_a_problem_names_the_place() -> None:
    held = schema({"type": "object", "properties": {"a": {"items": {"type": "integer"}}}})

    assert held.problem({"a": [1, 2]}) is None
    assert held.problem({"a": [1, "x"]}) == "$.a[1]: 'x' is not of type 'integer'"
    assert str(held.problem("x" * 900)).endswith("…")


def test_patterns_in_a_schema_are_safe_too() -> None:
    hostile = "a" * 40 + "!"
    held = schema(
        {
            "properties": {"a": {"pattern": "(a+)+$"}},
            "patternProperties": {"(a+)+$": {"type": "integer"}},
            "additionalProperties": {"type": "string"},
        }
    )
    started = time.process_time()

    assert str(held.problem({"a": hostile})).startswith("$.a: ")
    assert held.problem({hostile: "x"}) is None
    assert held.problem({hostile: 1}) is not None
    assert held.problem({"aa": 1}) is None
    assert held.problem({"aa": "x"}) == "$.aa: 'x' is not of type 'integer'"

    assert time.process_time() - started < 2


def test_a_long_list_of_objects_is_checked_for_duplicates_in_linear_time() -> None:
    held = schema({"uniqueItems": True})
    rows: list[Any] = [{"a": [n, {"b": None}]} for n in range(20_000)]
    started = time.process_time()

    assert held.problem(rows) is None
    assert str(held.problem([*rows, rows[7]])).startswith("$: item 20000 occurs twice: {'a': [7")

    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([1, True, "1", [1], [True], {}, [], None], True),
        ([0, False, {"a": 0}, {"a": False}], True),
        ([1, 1.0], False),
        ([[{"a": 1, "b": 2}], [{"b": 2.0, "a": 1}]], False),
        ([True, True], False),
    ],
)
def test_duplicates_are_equal_json_values(items: list[Any], unique: bool) -> None:
    assert (schema({"uniqueItems": True}).problem(items) is None) is unique
    assert schema({"uniqueItems": False}).problem(items) is None


def test_additional_properties_are_refused_by_name() -> None:
    held = schema({"properties": {"a": {}}, "additionalProperties": False})

    assert held.problem({"a": 1}) is None
    assert held.problem({"a": 1, "b": 2}) == "$: 'b' is not allowed here"
    assert held.problem([1]) is None


def test_references_within_the_schema_work() -> None:
    held = schema({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}})

    assert held.problem(1) is None
    assert held.problem("1") == "$: '1' is not of type 'integer'"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"$ref": "https://example.com/x.json"}, ("$ref",)),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, ("properties", "a", "$ref")),
        ({"$ref": "#/$defs/none"}, ("$ref",)),
        ({"anyOf": [{}, {"$ref": "other"}]}, ("anyOf", 1, "$ref")),
        ({"$id": "https://example.com/"}, ("$id",)),
        ({"unevaluatedProperties": False}, ("unevaluatedProperties",)),
        ({"pattern": "(?=a)"}, ("pattern",)),
        ({"patternProperties": {"(?=a)": {}}}, ("patternProperties", "(?=a)")),
        ({"type": "text"}, ("type",)),
        ({"properties": {"a": {"minimum": "1"}}}, ("properties", "a", "minimum")),
        ([], ()),
        ("object", ()),
    ],
)
def test_what_reaches_out_or_is_wrong_is_refused(value: Any, place: ValuePath) -> None:
    with pytest.raises(InvalidValue) as caught:
        schema(value)

    assert caught.value.place == place


def test_names_in_data_are_not_taken_for_keywords() -> None:
    held = schema(
        {
            "const": {"$ref": "x"},
            "properties": {"pattern": {"type": "object"}},
            "dependentRequired": {"pattern": ["$ref"]},
        }
    )

    assert held.problem({"$ref": "x"}) is None


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.scorers.checks.json_schemas.find_spec", lambda name: None)

    with pytest.raises(MissingExtra, match=r"jsonschema.*\n.*assay-eval\[checks\]"):
        schema({})
