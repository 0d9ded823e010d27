"""Force tool calls with a JSON schema, for models that do not write them reliably."""

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
# For the grammar engine: no whitespace. It takes half of the tokens, and a forced space before
# a string confuses small models.
_COMPACT = {"whitespace_flexible": False}
_REFERENCE = "#/$defs/"


def build_calls_schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Build the schema of one call of one of the tools."""
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
    """Render tools, calls and results as plain text.

    Works with any chat template: it needs no support for tools, and only the three usual roles.
    `always`: every reply is a call; otherwise replies to a tool's result are free text.
    """
    rendered = [_flatten_tool_message(message, messages) for message in messages]
    rule = "\n".join(
        [
            _ALWAYS_CALL_PROMPT if always else _FIRST_CALL_PROMPT,
            "Tools:",
            *map(_format_tool_line, tools),
        ]
    )
    if rendered and rendered[0].role in ("system", "developer"):
        first = rendered[0]
        return [first.model_copy(update={"content": f"{first.text}\n\n{rule}"}), *rendered[1:]]
    return [Message(role="system", content=rule), *rendered]


def _format_tool_line(tool: ToolSpec) -> str:
    # One line, not a schema: small models copy a schema instead of filling it in.
    required = tool.parameters.get("required") or ()
    properties = tool.parameters.get("properties")
    arguments = [
        f"{name}{'' if name in required else '?'}: {_format_argument_type(schema)}"
        for name, schema in (properties.items() if isinstance(properties, dict) else ())
    ]
    return f"- {tool.name}({', '.join(arguments)}): {' '.join(tool.description.split())}"


def _format_argument_type(schema: Any) -> str:
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
    text = [message.text] if message.text else []
    return Message(role=message.role, content="\n".join([*text, *calls]))


def _close_schema(value: Any, tool: str) -> Any:
    # Objects allow only the properties they name. References are prefixed with the name of the
    # tool, since tools may use the same name for different definitions.
    if isinstance(value, dict):
        copy = {key: _close_schema(inner, tool) for key, inner in value.items()}
        if isinstance(copy.get("properties"), dict) and copy.get("type") == "object":
            copy.setdefault("additionalProperties", False)
        reference = copy.get("$ref")
        if isinstance(reference, str) and reference.startswith(_REFERENCE):
            copy["$ref"] = f"{_REFERENCE}{tool}.{reference.removeprefix(_REFERENCE)}"
        return copy
    return [_close_schema(inner, tool) for inner in value] if isinstance(value, list) else value
