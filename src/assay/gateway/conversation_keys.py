"""What a conversation consists of, in a form that two requests can be compared by.

A key is one text, tool call or tool result. Reasoning, cache marks, ids of items and the spelling
of arguments are not part of it: agents change them when they send an answer back.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic_core import from_json, to_json

from assay.types import parse_arguments, stable_id

from .recorded_call import RecordedCall

Key = tuple[str, ...]

_SKIPPED_BLOCKS = frozenset({"thinking", "redacted_thinking", "reasoning"})
_SYSTEM_ROLES = frozenset({"system", "developer"})
_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_VOLATILE_FIELDS = frozenset({"cache_control", "id", "status", "annotations", "logprobs"})


class KeyReader:
    """Reads the keys of requests; parts that are sent again are read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], tuple[Key, ...]] = {}

    def read_request(self, call: RecordedCall) -> tuple[Key, ...]:
        """Return the keys of a call's conversation, without the system prompt."""
        if call.request.items is None:
            given = call.request.fields.get(call.dialect.list_field)
            text = from_json(given) if given is not None else ""
            return _list_text_keys("user", text)
        keys: list[Key] = []
        for item in call.request.items:
            known = (call.dialect.name, item)
            found = self._known.get(known)
            if found is None:
                found = self._known[known] = _read_any_item(call.dialect.name, from_json(item))
            keys += found
        return tuple(keys)

    def read_answer(self, call: RecordedCall) -> tuple[Key, ...]:
        """Return the keys of a call's answer."""
        return tuple(_read_answer(call.dialect.name, call.answer or {}))


def _read_answer(dialect: str, answer: Mapping[str, Any]) -> Iterator[Key]:
    if dialect == "anthropic":
        yield from _read_any_item(dialect, {"role": "assistant", "content": answer.get("content")})
    elif dialect == "openai_responses":
        for item in answer.get("output") or []:
            yield from _read_any_item(dialect, item)
    else:
        for choice in (answer.get("choices") or [])[:1]:
            message = {"role": "assistant", **(choice.get("message") or {})}
            yield from _read_any_item(dialect, message)


def _read_any_item(dialect: str, item: object) -> tuple[Key, ...]:
    try:
        return tuple(_read_item(dialect, item))
    except (AttributeError, TypeError):
        # Of another shape than in the API, such as in a request that the model's server refused.
        return (("value", to_json(item).decode()),)


def _read_item(dialect: str, item: object) -> Iterator[Key]:
    if not isinstance(item, Mapping):
        yield ("value", stable_id(item))
        return
    if dialect == "openai_responses" and item.get("type", "message") != "message":
        yield from _read_responses_item(item)
        return
    role = str(item.get("role"))
    if role in _SYSTEM_ROLES:
        return
    if role in ("tool", "function"):
        yield ("result", str(item.get("tool_call_id")), _join_text(item.get("content")))
        return
    yield from _read_content(role, item.get("content"))
    for call in item.get("tool_calls") or []:
        function = call.get("function") or call.get("custom") or {}
        arguments = function.get("arguments", function.get("input"))
        yield _build_call_key(call.get("id"), function.get("name"), arguments)


def _read_content(role: str, content: object) -> Iterator[Key]:
    if not isinstance(content, list):
        yield from _list_text_keys(role, content)
        return
    for block in content:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind in _SKIPPED_BLOCKS:
            continue
        if kind in _TEXT_TYPES:
            yield from _list_text_keys(role, block.get("text"))
        elif kind == "tool_use":
            yield _build_call_key(block.get("id"), block.get("name"), block.get("input"))
        elif kind == "tool_result":
            yield ("result", str(block.get("tool_use_id")), _join_text(block.get("content")))
        else:
            yield (role, stable_id(_drop_volatile_fields(block)))


def _read_responses_item(item: Mapping[str, Any]) -> Iterator[Key]:
    kind = str(item.get("type"))
    if kind in _SKIPPED_BLOCKS:
        return
    if kind in ("function_call", "custom_tool_call"):
        arguments = item.get("arguments", item.get("input"))
        yield _build_call_key(item.get("call_id"), item.get("name"), arguments)
    elif kind.endswith("_output"):
        yield ("result", str(item.get("call_id")), _join_text(item.get("output")))
    else:
        yield (kind, stable_id(_drop_volatile_fields(item)))


def _build_call_key(call_id: object, name: object, arguments: object) -> Key:
    if isinstance(arguments, str):
        text = arguments.strip()
        # Also None for numbers such as NaN, which models write and JSON lacks.
        if (arguments := parse_arguments(text)) is None:
            return ("call", str(call_id), str(name), text)
    return ("call", str(call_id), str(name), stable_id(arguments or {}))


def _list_text_keys(role: str, text: object) -> tuple[Key, ...]:
    # Agents trim answers, and leave out empty ones.
    plain = text.strip() if isinstance(text, str) else ""
    return ((role, plain),) if plain else ()


def _join_text(content: object) -> str:
    if isinstance(content, str):
        return content.strip()
    if not isinstance(content, list):
        return "" if content is None else stable_id(content)
    parts = [
        str(part["text"])
        if isinstance(part, Mapping) and "text" in part
        else stable_id(_drop_volatile_fields(part))
        for part in content
    ]
    return "".join(parts).strip()


def _drop_volatile_fields(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {key: inner for key, inner in value.items() if key not in _VOLATILE_FIELDS}


def list_call_texts(keys: Iterable[Key], answer: Mapping[str, Any]) -> list[str]:
    """Return the strings in the arguments of the tool calls of an answer."""
    if not any(key[0] == "call" for key in keys):
        return []
    return list(_find_strings(answer))


def _find_strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        if value.startswith("{"):
            try:
                yield from _find_strings(from_json(value))
            except ValueError:
                return
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _find_strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _find_strings(inner)
