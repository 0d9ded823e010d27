"""Tool calls forced by a JSON schema, for models that would not write them by themselves."""

import json
from collections.abc import Sequence
from typing import Any

from assay.types import Message, ToolSpec

_CALL_FORM = '{"name": the tool, "arguments": its arguments}'
_ALWAYS_CALL_PROMPT = (
    f"You act by calling tools. Answer with one JSON object and nothing else: {_CALL_FORM}."
)
_FIRST_CALL_PROMPT = (
    f"Call a tool first, with one JSON object: {_CALL_FORM}. Once you have its result, answer."
)
# To the grammar engine: no spaces between. They cost half of the tokens, and a forced space
# before a string leads small models astray.
_COMPACT = {"whitespace_flexible": False}
_REFERENCE = "#/$defs/"


def build_calls_schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """A schema that holds one call of one of the tools."""
    shared: dict[str, Any] = {}
    choices = []
    for tool in tools:
        own = _close_schema(tool.parameters, tool.name)
        for name, value in (own.pop("$defs", None) or {}).items():
            shared[f"{tool.name}.{name}"] = value
        choices.append(
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "arguments": own},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    schema = {"anyOf": choices, "x-guidance": _COMPACT}
    return {**schema, "$defs": shared} if shared else schema


def render_tools_as_text(
    messages: Sequence[Message], tools: Sequence[ToolSpec], *, always: bool
) -> list[Message]:
    """The conversation in words alone: what tools there are, what was called, what came back.

    For any chat template: it needs no place for tools, and no role beside the three usual ones.
    `always`: every reply is a call; otherwise replies to a tool's result are free.
    """
    told = [_flatten_tool_message(message, messages) for message in messages]
    rule = "\n".join(
        [
            _ALWAYS_CALL_PROMPT if always else _FIRST_CALL_PROMPT,
            "Tools:",
            *map(_format_tool_line, tools),
        ]
    )
    if told and told[0].role in ("system", "developer"):
        first = told[0]
        return [first.model_copy(update={"content": f"{first.text}\n\n{rule}"}), *told[1:]]
    return [Message(role="system", content=rule), *told]


def _format_tool_line(tool: ToolSpec) -> str:
    """A tool in one line: a small model copies a schema that it is shown instead of filling it."""
    required = tool.parameters.get("required") or ()
    properties = tool.parameters.get("properties")
    arguments = [
        f"{name}{'' if name in required else '?'}: {_format_argument_type(schema)}"
        for name, schema in (properties.items() if isinstance(properties, dict) else ())
    ]
    return f"- {tool.name}({', '.join(arguments)}): {' '.join(tool.description.split())}"


def _format_argument_type(schema: Any) -> str:
    """What an argument may be, in a word or two."""
    if not isinstance(schema, dict):
        return "any"
    if isinstance(schema.get("enum"), list):
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    kind = schema.get("type", "any")
    text = " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)
    words = schema.get("description")
    return f"{text} ({' '.join(words.split())})" if isinstance(words, str) else text


def _flatten_tool_message(message: Message, messages: Sequence[Message]) -> Message:
    if message.role in ("tool", "function"):
        name = message.name or next(
            (
                call.name
                for each in messages
                for call in each.tool_calls
                if call.id is not None and call.id == message.tool_call_id
            ),
            "the tool",
        )
        return Message(role="user", content=f"Result of {name}: {message.text}")
    if not message.tool_calls:
        return message
    calls = [
        json.dumps(
            {"name": call.name, "arguments": call.arguments},
            ensure_ascii=False,
            separators=(",", ":"),
        )
        for call in message.tool_calls
    ]
    said = [message.text] if message.text else []
    return Message(role=message.role, content="\n".join([*said, *calls]))


def _close_schema(value: Any, tool: str) -> Any:
    """A copy in which objects have no other properties than they name, and references to shared
    parts carry the tool's name, since another tool may use the same one."""
    if isinstance(value, dict):
        copy = {key: _close_schema(inner, tool) for key, inner in value.items()}
        if isinstance(copy.get("properties"), dict) and copy.get("type") == "object":
            copy.setdefault("additionalProperties", False)
        reference = copy.get("$ref")
        if isinstance(reference, str) and reference.startswith(_REFERENCE):
            copy["$ref"] = f"{_REFERENCE}{tool}.{reference.removeprefix(_REFERENCE)}"
        return copy
    return [_close_schema(inner, tool) for inner in value] if isinstance(value, list) else value
