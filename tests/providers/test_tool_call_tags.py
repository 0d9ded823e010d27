"""Calls as tags around each argument: what is read, and what becomes a malformed call."""

from typing import Any

import pytest

from assay.providers.tool_call_tags import ArgumentTypes, read_glm_tags, read_qwen_tags
from assay.types import ToolSpec

TEXT = ToolSpec(name="f", parameters={"properties": {"x": {"type": "string"}}})
TYPES = ArgumentTypes([TEXT])
BODY = "<function=f>\n<parameter=x>\n7\n</parameter>\n</function>"


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>\n{BODY}\n</tool_call>",
        f"<tool_call>{BODY}",
        BODY,
        "<tool_call><function=f><parameter=x>7</parameter></function></tool_call>",
        '<tool_call>\n{"name": "f", "arguments": {"x": "7"}}\n</tool_call>',
    ],
)
def test_a_call_is_read_in_the_spellings_that_models_use(text: str) -> None:
    written = read_qwen_tags(f"Sure.\n\n{text}", TYPES)

    assert written is not None
    assert [(call.name, call.arguments) for call in written.calls] == [("f", {"x": "7"})]
    assert written.content == "Sure."


def test_only_one_line_break_on_each_side_belongs_to_the_tags() -> None:
    written = read_qwen_tags(BODY.replace("7", "\n  a\n\n"), TYPES)

    assert written is not None
    assert written.calls[0].arguments == {"x": "\n  a\n\n"}


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=f>",
        "<tool_call>\n<function=f>\n<parameter=x>\n7",
        "<tool_call>\n<function=f>\n<parameter=x>\n7\n</parameter>",
        "<tool_call>\n<function=f>\noops\n</function>\n</tool_call>",
    ],
)
def test_a_call_without_its_end_is_malformed_and_keeps_its_text(text: str) -> None:
    written = read_qwen_tags(text, TYPES)

    assert written is not None
    (call,) = written.calls
    assert (call.name, call.malformed, call.raw_arguments) == ("f", True, text)
    assert written.content == ""


def test_a_call_after_a_malformed_one_is_read() -> None:
    broken = "<tool_call>\n<function=f>\noops\n</function>\n</tool_call>"

    written = read_qwen_tags(f"{broken}\n<tool_call>\n{BODY}\n</tool_call>", TYPES)

    assert written is not None
    assert [call.malformed for call in written.calls] == [True, False]


def test_glm_calls_are_read_with_line_breaks_and_without() -> None:
    close = "<tool_call>f<arg_key>x</arg_key><arg_value>7</arg_value></tool_call>"
    lines = "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>7</arg_value>\n</tool_call>"

    for text in (close, lines):
        written = read_glm_tags(text, TYPES)

        assert written is not None
        assert [(call.name, call.arguments) for call in written.calls] == [("f", {"x": "7"})]


def test_tags_without_a_name_stay_text() -> None:
    assert read_qwen_tags("<tool_call>oops</tool_call>", TYPES) is None
    assert read_qwen_tags("<tool_call>{broken</tool_call>", TYPES) is None
    assert read_glm_tags("<tool_call><arg_key>x</arg_key></tool_call>", TYPES) is None


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
