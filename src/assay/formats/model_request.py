"""One request to a model and its answer, independent of the API that they are written for."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.errors import WireError
from assay.types import Message, ToolCall, ToolSpec, Usage

from .conversion import Dropped, expect_mapping

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]

_FINISH_REASONS: dict[str, FinishReason] = {
    "function_call": "tool_calls",
    "length": "length",
    "max_output_tokens": "length",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
}
_OTHER_API_HINT = "turn it off in the agent, or use a model with the agent's own API"
# The schema of a tool that takes free text: APIs without such tools pass it as one argument.
_FREE_TEXT_ARGUMENT = "input"
_FREE_TEXT_SCHEMA = {
    "type": "object",
    "properties": {_FREE_TEXT_ARGUMENT: {"type": "string"}},
    "required": [_FREE_TEXT_ARGUMENT],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class ModelRequest:
    """A request as assay's own types."""

    messages: list[Message]
    tools: tuple[ToolSpec, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    """Named like the fields of an `Endpoint`, and `seed`, `top_k`, `tool_choice` (`auto`, `none`,
    `required` or the name of a tool as `{"name": …}`), `parallel_tool_calls` and
    `response_schema` (`{"name": …, "schema": …}`; an empty schema is any JSON object)."""

    free_text_tools: frozenset[str] = frozenset()
    """Names of the tools that take text instead of arguments."""

    namespaces: dict[str, str] = field(default_factory=dict)
    """The namespaces of tools that are in one, by their names here: `namespace__name`."""

    dropped: tuple[Dropped, ...] = ()
    """Fields of the request that do not change what the model is asked."""


@dataclass(frozen=True)
class ModelAnswer:
    """The answer to a request."""

    message: Message
    finish_reason: FinishReason
    usage: Usage | None
    model: str
    id: str
    """Random, without the prefix that an API gives its ids."""

    created: int
    """Seconds since 1970."""

    free_text_tools: frozenset[str] = frozenset()
    namespaces: dict[str, str] = field(default_factory=dict)


def normalize_finish_reason(reason: str | None, message: Message) -> FinishReason:
    """Return the common name of a provider's reason. An unknown one is a plain stop."""
    found = _FINISH_REASONS.get((reason or "").lower(), "stop")
    return "tool_calls" if found == "stop" and message.tool_calls else found


def collect_settings(
    body: Mapping[str, Any],
    *,
    names: Mapping[str, str],
    known: Collection[str],
    ignored: Collection[str],
) -> tuple[dict[str, Any], list[Dropped]]:
    """Collect the settings of a request by the names on `ModelRequest.settings`.

    `known` fields are read elsewhere; `ignored` ones do not change the answer and are reported.
    Raises `WireError` for any other field that is set.
    """
    settings: dict[str, Any] = {}
    dropped: list[Dropped] = []
    for key, value in body.items():
        if value is None or key in known:
            continue
        if key in names:
            settings[names[key]] = value
        elif key in ignored:
            dropped.append(Dropped(key, f"`{key}` has no equivalent; left out"))
        elif value not in (False, [], {}):
            raise build_translation_error(key)
    return settings, dropped


def build_translation_error(field: str) -> WireError:
    """Return the error for a part of a request that another API cannot represent."""
    return WireError(
        f"`{field}` cannot be translated to the API of the model",
        where=field,
        hint=_OTHER_API_HINT,
    )


def join_namespace(namespace: str, name: str) -> str:
    """Return the name of a tool of a namespace, for APIs without namespaces."""
    return f"{namespace}__{name}"


def read_answer_format(
    given: object, where: str, *, nested: str | None = None
) -> dict[str, Any] | None:
    """Read the form that an answer must have: the name and the schema of its JSON; None for text.

    `nested` is the key of an object that contains both, for an API that has one.
    """
    data = expect_mapping({"type": "text"} if given is None else given, where)
    if data.get("type") == "text":
        return None
    if data.get("type") == "json_object":
        return {"name": "answer", "schema": {}}
    if data.get("type") == "json_schema":
        if nested is not None:
            data = expect_mapping(data.get(nested), f"{where}.{nested}")
        return {"name": data.get("name") or "answer", "schema": data.get("schema") or {}}
    raise build_translation_error(where)


def read_tool_choice(choice: object, named: object) -> str | dict[str, str]:
    """Read a choice of tools: a word, or the object `named` that has the name of one tool."""
    if isinstance(choice, str) and choice in ("auto", "none", "required"):
        return choice
    if isinstance(named, Mapping) and isinstance(named.get("name"), str):
        return {"name": named["name"]}
    raise build_translation_error("tool_choice")


def build_free_text_tool(name: str, description: str) -> ToolSpec:
    """Return a tool with one text argument, for a tool that takes free text."""
    return ToolSpec(name=name, description=description, parameters=_FREE_TEXT_SCHEMA)


def describe_free_text_tool(tool: Mapping[str, Any]) -> str:
    """Return the description with the grammar, which a plain tool has no other place for."""
    text, form = str(tool.get("description") or ""), tool.get("format")
    if isinstance(form, Mapping) and form.get("definition"):
        syntax = form.get("syntax") or "a"
        text += f"\n\nThe input must match this {syntax} grammar:\n{form['definition']}"
    return text


def wrap_free_text_calls(messages: Iterable[Message]) -> list[Message]:
    """Write calls of free-text tools as calls with one argument."""
    wrapped = []
    for message in messages:
        # Most messages have no such call, and stay the same object.
        if any(map(_is_free_text_call, message.tool_calls)):
            calls = list(message.tool_calls)
            for place, call in enumerate(calls):
                if _is_free_text_call(call):
                    text = {_FREE_TEXT_ARGUMENT: call.arguments_text}
                    calls[place] = ToolCall(id=call.id, name=call.name, arguments=text)
            message = message.model_copy(update={"tool_calls": tuple(calls)})
        wrapped.append(message)
    return wrapped


def _is_free_text_call(call: ToolCall) -> bool:
    return (call.__pydantic_extra__ or {}).get("type") == "custom"


def get_free_text(call: ToolCall) -> str:
    """Return the text of a call that `wrap_free_text_calls` would write with one argument."""
    text = call.arguments.get(_FREE_TEXT_ARGUMENT)
    return text if isinstance(text, str) else call.arguments_text
