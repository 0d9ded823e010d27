"""Arguments as plain text: the schema decides what they are."""

from typing import Any

import pytest

from assay.providers.argument_types import ArgumentTypes
from assay.types import ToolSpec


def read(schema: Any, text: str) -> Any:
    parameters = {
        "type": "object",
        "properties": {"x": schema},
        "$defs": {"Size": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
    }
    return ArgumentTypes([ToolSpec(name="f", parameters=parameters)]).read("f", "x", text)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "7", "7"),
        ({"type": "string"}, " a ", " a "),
        ({"type": "integer"}, "7", 7),
        ({"type": "integer"}, "seven", "seven"),
        ({"type": "integer"}, '"7"', '"7"'),
        ({"type": "number"}, "1e999", "1e999"),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, "false", False),
        ({"type": ["string", "null"]}, "None", None),
        ({"type": ["string", "null"]}, "7", "7"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "7", 7),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "true", "true"),
        ({"anyOf": [{"type": "string"}, {}]}, "7", 7),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"const": "1"}, "1", "1"),
        ({"$ref": "#/$defs/Size"}, "7", 7),
        ({"$ref": "#/$defs/Loop"}, "7", 7),
        ({"$ref": "#/$defs/Missing"}, "7", 7),
        ({"type": "array"}, '["a", 1]', ["a", 1]),
        ({"type": "array"}, "['a', None]", ["a", None]),
        ({"type": "object"}, "{'a': {'b': True}}", {"a": {"b": True}}),
        ({"type": "object"}, "{a", "{a"),
        (True, "7", 7),
        (None, "words", "words"),
    ],
)
def test_text_becomes_the_value_that_the_schema_asks_for(
    schema: Any, text: str, value: Any
) -> None:
    found = read(schema, text)

    assert found == value
    assert type(found) is type(value)


def test_without_a_schema_json_is_read_and_strings_stay_as_they_are() -> None:
    types = ArgumentTypes([])

    assert types.read("f", "x", "7") == 7
    assert types.read("f", "x", '"a"') == '"a"'
    assert types.read("f", "x", "a") == "a"
