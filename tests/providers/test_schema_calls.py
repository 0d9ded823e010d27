"""Forced tool calls: the schema, and the conversation in words."""

from typing import Any

import jsonschema
import pytest

from assay.providers.schema_calls import build_calls_schema, render_tools_as_text
from assay.types import Message, ToolSpec
from make import answered, asked, called, said


def tool(name: str, **properties: Any) -> ToolSpec:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolSpec(name=name, description=f"The tool\n {name}.", parameters=parameters)


ADD = tool("add", a={"type": "integer"}, b={"type": "integer"})
FIND = tool("find", order={"type": "string", "description": "Its number."})


@pytest.mark.parametrize(
    ("call", "fits"),
    [
        ({"name": "add", "arguments": {"a": 1, "b": 2}}, True),
        ({"name": "find", "arguments": {"order": "A"}}, True),
        ({"name": "add", "arguments": {"order": "A"}}, False),
        ({"name": "add", "arguments": {"a": 1, "b": 2, "c": 3}}, False),
        ({"name": "sub", "arguments": {}}, False),
        ({"name": "add"}, False),
        ({"name": "add", "arguments": {"a": 1, "b": 2}, "more": 1}, False),
    ],
)
def test_the_schema_holds_one_call_of_one_tool(call: dict[str, Any], fits: bool) -> None:
    schema = build_calls_schema([ADD, FIND])

    assert jsonschema.Draft202012Validator(schema).is_valid(call) == fits


def test_shared_parts_of_two_tools_do_not_mix() -> None:
    def with_part(name: str, kind: str) -> ToolSpec:
        made = tool(
            name,
            x={"$ref": "#/$defs/Part"},
            y={"type": "array", "items": [{"$ref": "#/$defs/Part"}]},
        )
        return made.model_copy(
            update={"parameters": {**made.parameters, "$defs": {"Part": {"type": kind}}}}
        )

    schema = build_calls_schema([with_part("a", "string"), with_part("b", "integer")])

    assert schema["$defs"] == {"a.Part": {"type": "string"}, "b.Part": {"type": "integer"}}
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid({"name": "a", "arguments": {"x": "s", "y": []}}) is True
    assert validator.is_valid({"name": "b", "arguments": {"x": "s", "y": []}}) is False


def test_the_tools_given_are_left_as_they_were() -> None:
    before = ADD.model_dump()

    build_calls_schema([ADD])

    assert ADD.model_dump() == before


def test_tools_are_told_in_one_line_each_after_what_the_system_says() -> None:
    optional = tool("mode", kind={"enum": ["a", "b"]}, loose=True)
    optional = optional.model_copy(update={"parameters": {**optional.parameters, "required": []}})

    told = render_tools_as_text(
        [Message(role="system", content="Be brief."), asked("hi")],
        [ADD, FIND, optional],
        always=True,
    )

    assert [message.role for message in told] == ["system", "user"]
    lines = told[0].text.splitlines()
    assert lines[:2] == ["Be brief.", ""]
    assert lines[2].startswith("You act by calling tools.")
    assert lines[-3:] == [
        "- add(a: integer, b: integer): The tool add.",
        "- find(order: string (Its number.)): The tool find.",
        '- mode(kind?: "a" or "b", loose?: any): The tool mode.',
    ]


def test_without_a_system_message_one_is_put_first() -> None:
    told = render_tools_as_text([asked("hi")], [ADD], always=False)

    assert [message.role for message in told] == ["system", "user"]
    assert told[0].text.startswith("Call a tool first")


def test_calls_and_results_are_told_in_words() -> None:
    happened = [
        asked("hi"),
        said("So:", called("add", a=1, b=2)),
        answered("3"),
        Message(role="tool", content="lost", tool_call_id="other"),
    ]

    told = render_tools_as_text(happened, [ADD], always=True)

    assert [(message.role, message.text) for message in told[2:]] == [
        ("assistant", 'So:\n{"name":"add","arguments":{"a":1,"b":2}}'),
        ("user", "Result of add: 3"),
        ("user", "Result of the tool: lost"),
    ]
    assert all(not message.tool_calls for message in told)
