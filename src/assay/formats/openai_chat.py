"""OpenAI chat-completions messages, to and from. Tool arguments are a JSON string there.

A `Message` has this format's own shape, so a key OpenAI knows and `Message` does not (`refusal`,
`audio`, `annotations`) is an extra of the message under its own name.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from assay.errors import ConfigError, WireError
from assay.types import (
    ContentBlock,
    Message,
    TextBlock,
    ToolCall,
    parse_arguments,
    read_arguments,
)

from .conversion import (
    HOMELESS,
    NAMESPACES,
    Converted,
    Lost,
    difference,
    each,
    mapping_at,
    message_at,
    namespace_of,
    object_json,
    report_extras,
    report_homeless,
    respelled,
    same,
    sequence_at,
    spelling_for,
    storable,
    text_at,
    too_deep,
    validated,
    wrong_type,
)

ReasoningKey = Literal["reasoning_content", "reasoning"]

_FORMAT = "openai_chat"
_REASONING_KEYS = ("reasoning_content", "reasoning")
_NEEDS_CARE = NAMESPACES | {"reasoning", "reasoning_content", "function_call"}
_NO_REASONING = "OpenAI accepts no reasoning; left out"
_PLAIN = frozenset({"role", "content"})


def to_openai_chat(
    messages: Iterable[Message], *, reasoning_key: ReasoningKey | None = None
) -> Converted[list[dict[str, Any]]]:
    """Write `messages` for the chat-completions API.

    OpenAI accepts no reasoning: it is reported as lost, unless `reasoning_key` says under which
    key the server wants it (`reasoning_content` for vLLM and DeepSeek).
    """
    if reasoning_key not in (None, *_REASONING_KEYS):
        raise ConfigError(
            f"reasoning_key={reasoning_key!r} is not one of {_REASONING_KEYS} or None",
            where="to_openai_chat()",
        )
    lost: list[Lost] = []
    written: list[dict[str, Any]] = []
    for index, message in enumerate(each(messages, "messages")):
        if _is_plain(message):
            written.append({"role": message.role, "content": message.content})
            continue
        where = f"messages[{index}]"
        message_at(message, where)
        try:
            if message.__pydantic_extra__ and spelling_for(message, _FORMAT):
                written.append(_write_as_read(message, reasoning_key, where, lost))
            else:
                written.append(_write(message, reasoning_key, where, lost))
        except RecursionError as error:
            raise too_deep(where) from error
    return Converted(written, tuple(lost))


def from_openai_chat(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Read chat-completions messages. Unknown keys are kept; wrong types raise `WireError`."""
    read: list[Message] = []
    for index, wire in enumerate(each(messages, "messages")):
        where = f"messages[{index}]"
        try:
            read.append(_read(mapping_at(wire, where), where))
        except RecursionError as error:
            raise too_deep(where) from error
    return read


def _is_plain(message: Message) -> bool:
    """Whether role and content say it all: most messages, so they are spared every other check."""
    return (
        isinstance(message, Message)
        and message.__pydantic_fields_set__ <= _PLAIN
        and not message.__pydantic_extra__
        and isinstance(message.content, str)
    )


def _write(
    message: Message, reasoning_key: str | None, where: str, lost: list[Lost]
) -> dict[str, Any]:
    """The usual spelling: `content` is always there, everything else where it is set."""
    content = message.content
    if content is not None and not isinstance(content, str):
        content = _parts(content, where, lost)  # type: ignore[assignment]  # written form
    wire: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        wire["tool_calls"] = [
            _write_call(call, f"{where}.tool_calls[{position}]", lost)
            for position, call in enumerate(message.tool_calls)
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        wire["name"] = message.name
    if message.reasoning is not None:
        if reasoning_key is None:
            lost.append(Lost(f"{where}.reasoning", _NO_REASONING))
        else:
            wire[reasoning_key] = message.reasoning
    report_homeless(message, where, lost)
    if message.__pydantic_extra__:
        _write_extras(message.__pydantic_extra__, wire, reasoning_key, where, lost)
    return wire


def _write_extras(
    extra: Mapping[str, Any],
    wire: dict[str, Any],
    reasoning_key: str | None,
    where: str,
    lost: list[Lost],
) -> None:
    for key, value in extra.items():
        if key not in NAMESPACES:
            _place(key, value, wire, reasoning_key, f"{where}.{key}", lost)
    if NAMESPACES.isdisjoint(extra):
        return
    for key, value in namespace_of(extra, _FORMAT).items():
        _place(key, value, wire, reasoning_key, f"{where}.{_FORMAT}.{key}", lost)
    foreign = {key: value for key, value in extra.items() if key in NAMESPACES}
    report_extras(foreign, _FORMAT, where, lost)


def _place(
    key: str,
    value: object,
    wire: dict[str, Any],
    reasoning_key: str | None,
    where: str,
    lost: list[Lost],
) -> None:
    """Write an extra under its own name, unless that is reasoning or already says otherwise."""
    if key in _REASONING_KEYS and reasoning_key is None and value is not None:
        lost.append(Lost(where, _NO_REASONING))
    elif key not in wire:
        wire[key] = value
    elif not same(wire[key], value):
        lost.append(Lost(where, f"`{key}` is written with another value; left out"))


def _parts(content: tuple[ContentBlock, ...], where: str, lost: list[Lost]) -> list[dict[str, Any]]:
    parts = (
        _part(block, f"{where}.content[{position}]", lost) for position, block in enumerate(content)
    )
    return [part for part in parts if part is not None]


def _part(block: ContentBlock, where: str, lost: list[Lost]) -> dict[str, Any] | None:
    part: dict[str, Any] = {"type": block.type}
    if isinstance(block, TextBlock):
        part["text"] = block.text
    extra = block.__pydantic_extra__
    if not extra:
        return part
    if NAMESPACES.isdisjoint(extra):
        part.update(extra)
        return part
    for key, value in extra.items():
        if key not in NAMESPACES:
            part[key] = value
    for key, value in namespace_of(extra, _FORMAT).items():
        _place(key, value, part, "reasoning", f"{where}.{_FORMAT}.{key}", lost)
    if len(part) == 1 and _FORMAT not in extra:
        lost.append(Lost(where, f"OpenAI has no `{block.type}` part; left out"))
        return None
    report_extras({key: extra[key] for key in extra if key in NAMESPACES}, _FORMAT, where, lost)
    return part


def _write_call(call: ToolCall, where: str, lost: list[Lost]) -> dict[str, Any]:
    if call.raw_arguments is not None:
        arguments = call.raw_arguments
        _report_second_arguments(call, where, lost)
    else:
        arguments = object_json(call.arguments, f"{where}.arguments")
        if ("NaN" in arguments or "Infinity" in arguments) and parse_arguments(arguments) is None:
            raise WireError(
                "holds NaN or an infinity, which JSON has no word for",
                where=f"{where}.arguments",
                hint="unknown is None",
            )
    wire: dict[str, Any] = {} if call.id is None else {"id": call.id}
    extra = call.__pydantic_extra__
    if not extra:
        wire["type"] = "function"
        wire["function"] = {"name": call.name, "arguments": arguments}
        return wire
    return _with_call_extras(wire, call, arguments, where, lost)


def _with_call_extras(
    wire: dict[str, Any], call: ToolCall, arguments: str, where: str, lost: list[Lost]
) -> dict[str, Any]:
    """A call with other keys than its own, among which may be that it is a custom one."""
    extra = call.__pydantic_extra__ or {}
    wire["type"] = kind = extra.get("type", "function")
    nested, text = ("custom", "input") if kind == "custom" else ("function", "arguments")
    wire[nested] = {**namespace_of(extra, nested), "name": call.name, text: arguments}
    for key, value in extra.items():
        if key not in NAMESPACES and not (key == nested and isinstance(value, Mapping)):
            _place(key, value, wire, "reasoning", f"{where}.{key}", lost)
    for key, value in namespace_of(extra, _FORMAT).items():
        _place(key, value, wire, "reasoning", f"{where}.{_FORMAT}.{key}", lost)
    report_extras({key: extra[key] for key in extra if key in NAMESPACES}, _FORMAT, where, lost)
    return wire


def _report_second_arguments(call: ToolCall, where: str, lost: list[Lost]) -> None:
    """The wire has one string: `arguments` that say something else have no place beside it."""
    if call.arguments and not same(parse_arguments(call.raw_arguments or ""), call.arguments):
        what = "differ from `raw_arguments`, which are written"
        lost.append(Lost(f"{where}.arguments", what))


def _write_as_read(
    message: Message, reasoning_key: str | None, where: str, lost: list[Lost]
) -> dict[str, Any]:
    """The spelling it was read with, as long as that still says what the message says."""
    spelling = spelling_for(message, _FORMAT) or {}
    given = spelling.get("set")
    given = given if isinstance(given, Mapping) else {}
    key = "reasoning" if "reasoning_content" in given else "reasoning_content"
    try:
        still = _read(respelled(_write(message, key, where, []), spelling), where) == message
    except WireError:
        still = False
    found: list[Lost] = []
    usual = _write(message, reasoning_key, where, found)
    if not still:
        lost.extend(found)
        return usual
    lost.extend(loss for loss in found if "reasoning" in loss.where.rpartition(".")[2])
    wire = respelled(usual, spelling)
    if reasoning_key in given and message.reasoning is not None and reasoning_key is not None:
        wire[reasoning_key] = message.reasoning
    return wire


def _read(wire: Mapping[str, Any], where: str) -> Message:
    if wire.keys() == _PLAIN and isinstance(wire["content"], str):
        return validated(Message, wire, where)
    data = dict(wire)
    aside: dict[str, Any] = {}
    if not _NEEDS_CARE.isdisjoint(data):
        _set_aside(data, aside, where)
    if data.get("tool_calls"):
        calls = sequence_at(data["tool_calls"], f"{where}.tool_calls")
        data["tool_calls"] = [
            _read_call(call, f"{where}.tool_calls[{position}]")
            for position, call in enumerate(calls)
        ]
    content = data.get("content")
    if content is not None and not isinstance(content, str):
        parts = sequence_at(content, f"{where}.content")
        data["content"] = [
            _read_part(part, f"{where}.content[{position}]") for position, part in enumerate(parts)
        ]
    message = _message(data, aside, where)
    key = "reasoning_content" if wire.get("reasoning_content") is not None else "reasoning"
    spelling = difference(wire, _write(message, key, where, []), _FORMAT)
    if spelling is None:
        return message
    return message.model_copy(update={"spelling": spelling})


def _message(data: dict[str, Any], aside: dict[str, Any], where: str) -> Message:
    """`data` as a message; values that do not fit a field of ours are set aside."""
    for name in HOMELESS:
        if name in data and not _fits(name, data[name]):
            aside[name] = data.pop(name)
    if aside:
        data[_FORMAT] = storable(aside)
    message = validated(Message, data, where)
    extra = message.__pydantic_extra__
    if extra and (repaired := storable(extra)) is not extra:
        return message.model_copy(update=repaired)
    return message


def _fits(name: str, value: object) -> bool:
    if name == "metadata":
        return value is None or (
            isinstance(value, Mapping)
            and all(isinstance(text, str) for pair in value.items() for text in pair)
        )
    if name == "details":
        return value is None or isinstance(value, dict)
    return value is None or isinstance(value, str)


def _set_aside(data: dict[str, Any], aside: dict[str, Any], where: str) -> None:
    """Move keys that mean something else on a `Message` to where they cannot be mistaken."""
    for name in NAMESPACES & data.keys():
        aside[name] = data.pop(name)
    if "reasoning" in data or "reasoning_content" in data:
        first = data.pop("reasoning_content", None)
        second = data.pop("reasoning", None)
        if first is not None and second is not None:
            aside["reasoning"] = second
        data["reasoning"] = first if first is not None else second
    call = data.get("function_call")
    if call is not None and not data.get("tool_calls"):
        # The one-call form from before tool calls; what it says is the same.
        function = mapping_at(call, f"{where}.function_call")
        data["tool_calls"] = [{"function": function}]
        del data["function_call"]


def _read_part(part: object, where: str) -> dict[str, Any]:
    data = mapping_at(part, where)
    kind = data.get("type")
    if not isinstance(kind, str):
        raise wrong_type(kind, "a string", f"{where}.type")
    if kind == "text":
        text_at(data.get("text"), f"{where}.text")
    return _attributed(data)


def _attributed(data: Mapping[str, Any]) -> dict[str, Any]:
    """`data` with keys that are named like another format's extras under this format's."""
    if NAMESPACES.isdisjoint(data):
        return storable(dict(data))
    plain = {key: value for key, value in data.items() if key not in NAMESPACES}
    plain[_FORMAT] = {key: value for key, value in data.items() if key in NAMESPACES}
    return storable(plain)


def _read_call(call: object, where: str) -> ToolCall:
    data = _attributed(mapping_at(call, where))
    if "raw_arguments" in data:
        data[_FORMAT] = {**data.get(_FORMAT, {}), "raw_arguments": data.pop("raw_arguments")}
    custom = data.get("custom")
    if data.get("type") == "custom" and isinstance(custom, Mapping):
        rest = {key: custom[key] for key in custom if key not in ("name", "input")}
        del data["custom"]
        text = text_at(custom.get("input"), f"{where}.custom.input")
        data |= {"name": custom.get("name"), **read_arguments(text)}
        if rest:
            data["custom"] = rest
    return validated(ToolCall, data, where)
