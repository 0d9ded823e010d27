"""Reads messages of OpenAI chat, Anthropic and Gemini as agents return them.

More tolerant than the readers of these formats, which it calls: malformed arguments of tool calls
are kept as text, unused fields are ignored, and the outcome of a tool is marked as everywhere else.
"""

from collections.abc import Mapping
from typing import Any

from assay.types import Message

from .anthropic import from_anthropic
from .conversion import Dropped, get_namespace
from .foreign_content import describe_outcome, to_standard_base64, write_answer_text
from .gemini import from_gemini
from .gemini_parts import to_camel_part
from .openai_chat import from_openai_chat

# Roles of other libraries in messages that are otherwise those of OpenAI.
_ROLE_NAMES = {"human": "user", "ai": "assistant", "model": "assistant"}


def read_chat_messages(messages: list[Any], dropped: list[Dropped]) -> list[Message]:
    """Read chat messages; raises `WireError` if one is invalid."""
    return from_openai_chat([_tidy_chat_message(wire, dropped) for wire in messages])


def _tidy_chat_message(wire: Any, dropped: list[Dropped]) -> Any:
    if not isinstance(wire, Mapping):
        return wire
    # Without the null and empty fields that servers and SDKs write for unused ones.
    tidy = {"content": None} | {
        key: value for key, value in wire.items() if value not in (None, [])
    }
    role, content = tidy.get("role"), tidy["content"]
    if isinstance(role, str):
        tidy["role"] = _ROLE_NAMES.get(role, role)
    if isinstance(tidy.get("tool_calls"), list):
        tidy["tool_calls"] = [_tidy_chat_call(call) for call in tidy["tool_calls"]]
    if isinstance(content, Mapping | int | float) or (
        isinstance(content, list)
        and not any(isinstance(part, Mapping) and "type" in part for part in content)
    ):
        # The value of a tool that was not written as text.
        kind = type(content).__name__
        dropped.append(Dropped("content", f"content of type {kind}; written as JSON text"))
        tidy["content"] = write_answer_text(content)
    return tidy


def _tidy_chat_call(call: Any) -> Any:
    if not isinstance(call, Mapping):
        return call
    if "function" not in call and "args" in call and "arguments" not in call:
        # As LangChain writes a call.
        known = ("args", "type")
        rest = {key: value for key, value in call.items() if key not in known}
        return _tidy_chat_call({**rest, "arguments": call["args"]})
    function = call.get("function")
    place = function if isinstance(function, Mapping) else call
    arguments = place.get("arguments")
    if arguments is None or isinstance(arguments, str | Mapping):
        return call
    # Neither an object nor its text: kept as text, as malformed arguments are.
    text = {"arguments": write_answer_text(arguments)}
    return {**call, **text} if place is call else {**call, "function": {**place, **text}}


def read_anthropic_turns(turns: list[Any]) -> list[Message]:
    """Read turns of Anthropic; raises `WireError` if one is invalid."""
    raw, repaired = _set_malformed_aside(turns, "content", "input")
    return [
        _mark_outcome(
            message,
            get_namespace(get_namespace(message.__pydantic_extra__, "anthropic"), "result"),
        )
        for message in _restore_malformed(from_anthropic(repaired), raw)
    ]


def read_gemini_contents(contents: list[Any]) -> list[Message]:
    """Read contents of Gemini; raises `WireError` if one is invalid."""
    raw, repaired = _set_malformed_aside(contents, "parts", "args")
    for content in repaired:
        if isinstance(content, dict) and isinstance(content.get("parts"), list):
            content["parts"] = [_normalize_part(part) for part in content["parts"]]
    read = []
    for message in _restore_malformed(from_gemini(repaired), raw):
        own = get_namespace(message.__pydantic_extra__, "gemini")
        response = get_namespace(get_namespace(own, "result"), "response")
        # Gemini's convention for a function that failed.
        failed = "error" in response and "output" not in response
        read.append(_mark_outcome(message, {"is_error": True}) if failed else message)
    return read


def _normalize_part(part: Any) -> dict[str, Any]:
    # In camelCase, or every message of the Python SDK would keep its original beside it.
    camel = to_camel_part(part, "parts")
    for key in ("inlineData", "fileData", "functionResponse"):
        if key in camel:
            camel[key] = _strip_nulls(camel[key])
    media = camel.get("inlineData")
    if isinstance(media, dict) and "data" in media:
        media["data"] = to_standard_base64(media["data"])
    return camel


def _mark_outcome(message: Message, result: Mapping[str, Any]) -> Message:
    if message.role != "tool":
        return message
    details = describe_outcome(failed=result.get("is_error") is True)
    return message.model_copy(update={"details": details})


def _set_malformed_aside(
    turns: list[Any], parts_key: str, arguments_key: str
) -> tuple[list[str | None], list[Any]]:
    """Replace arguments that are not an object with an empty one; return their texts per call."""
    texts: list[str | None] = []
    repaired = []
    for turn in turns:
        parts = turn.get(parts_key) if isinstance(turn, Mapping) else None
        if not isinstance(parts, list):
            repaired.append(turn)
            continue
        changed = []
        for part in parts:
            place, call = _find_call(part)
            if call is None:
                changed.append(_strip_nulls(part))
                continue
            given = call.get(arguments_key)
            good = given is None or isinstance(given, Mapping)
            texts.append(None if good else write_answer_text(given))
            fixed = {**_strip_nulls(call), arguments_key: given if good and given else {}}
            changed.append(fixed if place is None else {**_strip_nulls(part), place: fixed})
        repaired.append({**turn, parts_key: changed})
    return texts, repaired


def _strip_nulls(part: Any) -> Any:
    # Servers write null for fields that do not apply, such as `citations`.
    if not isinstance(part, Mapping):
        return part
    return {key: value for key, value in part.items() if value is not None}


def _find_call(part: object) -> tuple[str | None, Mapping[str, Any] | None]:
    if not isinstance(part, Mapping):
        return None, None
    if part.get("type") == "tool_use":
        return None, part
    for place in ("functionCall", "function_call"):
        if isinstance(part.get(place), Mapping):
            return place, part[place]
    return None, None


def _restore_malformed(messages: list[Message], texts: list[str | None]) -> list[Message]:
    if not any(text is not None for text in texts):
        return messages
    left = iter(texts)
    restored = []
    for message in messages:
        calls = tuple(
            call if text is None else call.model_copy(update={"raw_arguments": text})
            for call, text in zip(message.tool_calls, left, strict=False)
        )
        restored.append(message.model_copy(update={"tool_calls": calls}) if calls else message)
    return restored
