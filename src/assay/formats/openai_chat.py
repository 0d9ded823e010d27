"""Converts OpenAI chat-completions messages, in which tool arguments are a JSON string.

A `Message` has the same layout, so a key OpenAI knows and `Message` does not (`refusal`,
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
    FORMAT_NAMESPACES,
    UNSUPPORTED_FIELDS,
    Converted,
    Dropped,
    apply_spelling,
    build_depth_error,
    build_type_error,
    check_iterable,
    compute_spelling,
    expect_mapping,
    expect_message,
    expect_text,
    find_spelling,
    get_namespace,
    is_same_json,
    make_storable,
    read_items,
    report_extras,
    report_unsupported_fields,
    validate_wire,
    write_blocks,
    write_json_object,
)

ReasoningKey = Literal["reasoning_content", "reasoning"]

_OPENAI_CHAT_FORMAT = "openai_chat"
_REASONING_KEYS = ("reasoning_content", "reasoning")
# Keys with another meaning on a `Message`, or with several names on servers.
_AMBIGUOUS_KEYS = FORMAT_NAMESPACES | {"reasoning", "reasoning_content", "function_call"}
_REASONING_NOTE = "OpenAI accepts no reasoning; left out"
# A message with no other keys takes the fast path in both directions.
_PLAIN_KEYS = frozenset({"role", "content"})


def to_openai_chat(
    messages: Iterable[Message], *, reasoning_key: ReasoningKey | None = None
) -> Converted[list[dict[str, Any]]]:
    """Write `messages` for the chat-completions API.

    OpenAI accepts no reasoning: it is reported as dropped, unless `reasoning_key` names the key
    that the server expects (`reasoning_content` for vLLM and DeepSeek).
    """
    if reasoning_key not in (None, *_REASONING_KEYS):
        raise ConfigError(
            f"reasoning_key={reasoning_key!r} is not one of {_REASONING_KEYS} or None",
            where="to_openai_chat()",
        )
    dropped: list[Dropped] = []
    written: list[dict[str, Any]] = []
    for index, message in enumerate(check_iterable(messages, "messages")):
        # The fast path: most messages have only a role and a text.
        if (
            isinstance(message, Message)
            and message.__pydantic_fields_set__ <= _PLAIN_KEYS
            and not message.__pydantic_extra__
            and isinstance(message.content, str)
        ):
            written.append({"role": message.role, "content": message.content})
            continue
        where = f"messages[{index}]"
        expect_message(message, where)
        try:
            if message.__pydantic_extra__ and find_spelling(message, _OPENAI_CHAT_FORMAT):
                written.append(_write_openai_as_read(message, reasoning_key, where, dropped))
            else:
                written.append(_write_openai_message(message, reasoning_key, where, dropped))
        except RecursionError as error:
            raise build_depth_error(where) from error
    return Converted(written, tuple(dropped))


def from_openai_chat(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Read chat-completions messages. Unknown keys are kept; wrong types raise `WireError`."""
    read: list[Message] = []
    for index, wire in enumerate(check_iterable(messages, "messages")):
        where = f"messages[{index}]"
        try:
            read.append(_read_openai_chat_message(expect_mapping(wire, where), where))
        except RecursionError as error:
            raise build_depth_error(where) from error
    return read


def _write_openai_message(
    message: Message, reasoning_key: str | None, where: str, dropped: list[Dropped]
) -> dict[str, Any]:
    # `content` is always written, even as null; other fields only where they are set.
    content = message.content
    wire: dict[str, Any] = {"role": message.role, "content": content}
    if content is not None and not isinstance(content, str):
        wire["content"] = write_blocks(content, where, dropped, _write_openai_part)
    if message.tool_calls:
        wire["tool_calls"] = [
            _write_openai_call(call, f"{where}.tool_calls[{position}]", dropped)
            for position, call in enumerate(message.tool_calls)
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        wire["name"] = message.name
    if message.reasoning is not None:
        if reasoning_key is None:
            dropped.append(Dropped(f"{where}.reasoning", _REASONING_NOTE))
        else:
            wire[reasoning_key] = message.reasoning
    report_unsupported_fields(message, where, dropped)
    if extra := message.__pydantic_extra__:
        for key, value in extra.items():
            if key not in FORMAT_NAMESPACES:
                _write_extra(key, value, wire, reasoning_key, f"{where}.{key}", dropped)
        _write_namespaces(extra, wire, reasoning_key, where, dropped)
    return wire


def _write_namespaces(
    extra: Mapping[str, Any],
    wire: dict[str, Any],
    reasoning_key: str | None,
    where: str,
    dropped: list[Dropped],
) -> None:
    # The keys of this format's own namespace are written, those of the others are reported.
    if FORMAT_NAMESPACES.isdisjoint(extra):
        return
    for key, value in get_namespace(extra, _OPENAI_CHAT_FORMAT).items():
        place = f"{where}.{_OPENAI_CHAT_FORMAT}.{key}"
        _write_extra(key, value, wire, reasoning_key, place, dropped)
    foreign = {key: value for key, value in extra.items() if key in FORMAT_NAMESPACES}
    report_extras(foreign, _OPENAI_CHAT_FORMAT, where, dropped)


def _write_extra(
    key: str,
    value: object,
    wire: dict[str, Any],
    reasoning_key: str | None,
    where: str,
    dropped: list[Dropped],
) -> None:
    if key in _REASONING_KEYS and reasoning_key is None and value is not None:
        dropped.append(Dropped(where, _REASONING_NOTE))
    elif key not in wire:
        wire[key] = value
    elif not is_same_json(wire[key], value):
        dropped.append(Dropped(where, f"`{key}` is written with another value; left out"))


def _write_openai_part(
    block: ContentBlock, where: str, dropped: list[Dropped]
) -> dict[str, Any] | None:
    part: dict[str, Any] = {"type": block.type}
    if isinstance(block, TextBlock):
        part["text"] = block.text
    extra = block.__pydantic_extra__
    if not extra:
        return part
    if FORMAT_NAMESPACES.isdisjoint(extra):
        part.update(extra)
        return part
    for key, value in extra.items():
        if key not in FORMAT_NAMESPACES:
            part[key] = value
    if len(part) == 1 and _OPENAI_CHAT_FORMAT not in extra:
        dropped.append(Dropped(where, f"OpenAI has no `{block.type}` part; left out"))
        return None
    _write_namespaces(extra, part, "reasoning", where, dropped)
    return part


def _write_openai_call(call: ToolCall, where: str, dropped: list[Dropped]) -> dict[str, Any]:
    if call.raw_arguments is not None:
        arguments = call.raw_arguments
        # The format has one string for the arguments, and `raw_arguments` wins.
        if call.arguments and not is_same_json(parse_arguments(arguments), call.arguments):
            note = "`arguments` differ from `raw_arguments`, which are written instead"
            dropped.append(Dropped(f"{where}.arguments", note))
    else:
        arguments = write_json_object(call.arguments, f"{where}.arguments")
        if ("NaN" in arguments or "Infinity" in arguments) and parse_arguments(arguments) is None:
            raise WireError(
                "the arguments contain NaN or an infinity, which JSON cannot represent",
                where=f"{where}.arguments",
                hint="use None for an unknown number",
            )
    wire: dict[str, Any] = {} if call.id is None else {"id": call.id}
    extra = call.__pydantic_extra__
    if not extra:
        wire["type"] = "function"
        wire["function"] = {"name": call.name, "arguments": arguments}
        return wire
    return _add_call_extras(wire, call, arguments, where, dropped)


def _add_call_extras(
    wire: dict[str, Any], call: ToolCall, arguments: str, where: str, dropped: list[Dropped]
) -> dict[str, Any]:
    # A custom tool call nests its text under `custom.input` instead of `function.arguments`.
    extra = call.__pydantic_extra__ or {}
    wire["type"] = kind = extra.get("type", "function")
    nested, text = ("custom", "input") if kind == "custom" else ("function", "arguments")
    wire[nested] = {**get_namespace(extra, nested), "name": call.name, text: arguments}
    for key, value in extra.items():
        if key not in FORMAT_NAMESPACES and not (key == nested and isinstance(value, Mapping)):
            _write_extra(key, value, wire, "reasoning", f"{where}.{key}", dropped)
    _write_namespaces(extra, wire, "reasoning", where, dropped)
    return wire


def _write_openai_as_read(
    message: Message, reasoning_key: str | None, where: str, dropped: list[Dropped]
) -> dict[str, Any]:
    # The recorded spelling is used only if it still reads as this message, which may be edited.
    spelling = find_spelling(message, _OPENAI_CHAT_FORMAT) or {}
    given = spelling.get("set")
    given = given if isinstance(given, Mapping) else {}
    key = "reasoning" if "reasoning_content" in given else "reasoning_content"
    try:
        still = (
            _read_openai_chat_message(
                apply_spelling(_write_openai_message(message, key, where, []), spelling), where
            )
            == message
        )
    except WireError:
        still = False
    found: list[Dropped] = []
    usual = _write_openai_message(message, reasoning_key, where, found)
    if not still:
        dropped.extend(found)
        return usual
    dropped.extend(loss for loss in found if "reasoning" in loss.where.rpartition(".")[2])
    wire = apply_spelling(usual, spelling)
    if reasoning_key in given and message.reasoning is not None and reasoning_key is not None:
        wire[reasoning_key] = message.reasoning
    return wire


def _read_openai_chat_message(wire: Mapping[str, Any], where: str) -> Message:
    if wire.keys() == _PLAIN_KEYS and isinstance(wire["content"], str):
        return validate_wire(Message, wire, where)
    data = dict(wire)
    aside: dict[str, Any] = {}
    if not _AMBIGUOUS_KEYS.isdisjoint(data):
        _move_ambiguous_keys(data, aside, where)
    if data.get("tool_calls"):
        data["tool_calls"] = read_items(
            data["tool_calls"], f"{where}.tool_calls", _read_openai_call
        )
    content = data.get("content")
    if content is not None and not isinstance(content, str):
        data["content"] = read_items(content, f"{where}.content", _read_openai_part)
    message = _build_openai_message(data, aside, where)
    key = "reasoning_content" if wire.get("reasoning_content") is not None else "reasoning"
    spelling = compute_spelling(
        wire, _write_openai_message(message, key, where, []), _OPENAI_CHAT_FORMAT
    )
    if spelling is None:
        return message
    return message.model_copy(update={"spelling": spelling})


def _build_openai_message(data: dict[str, Any], aside: dict[str, Any], where: str) -> Message:
    # A foreign `metadata` or `model` of another type must not make the message invalid.
    for name in UNSUPPORTED_FIELDS:
        if name in data and not _fits_field(name, data[name]):
            aside[name] = data.pop(name)
    if aside:
        data[_OPENAI_CHAT_FORMAT] = make_storable(aside)
    message = validate_wire(Message, data, where)
    extra = message.__pydantic_extra__
    if extra and (repaired := make_storable(extra)) is not extra:
        return message.model_copy(update=repaired)
    return message


def _fits_field(name: str, value: object) -> bool:
    if name == "metadata":
        return value is None or (
            isinstance(value, Mapping)
            and all(isinstance(text, str) for pair in value.items() for text in pair)
        )
    if name == "details":
        return value is None or isinstance(value, dict)
    return value is None or isinstance(value, str)


def _move_ambiguous_keys(data: dict[str, Any], aside: dict[str, Any], where: str) -> None:
    # Keys that have another meaning on a `Message` are moved to the format's own namespace.
    for name in FORMAT_NAMESPACES & data.keys():
        aside[name] = data.pop(name)
    if "reasoning" in data or "reasoning_content" in data:
        first = data.pop("reasoning_content", None)
        second = data.pop("reasoning", None)
        if first is not None and second is not None:
            aside["reasoning"] = second
        data["reasoning"] = first if first is not None else second
    call = data.get("function_call")
    if call is not None and not data.get("tool_calls"):
        # The deprecated predecessor of `tool_calls`, with the same content.
        function = expect_mapping(call, f"{where}.function_call")
        data["tool_calls"] = [{"function": function}]
        del data["function_call"]


def _read_openai_part(part: object, where: str) -> dict[str, Any]:
    data = expect_mapping(part, where)
    kind = data.get("type")
    if not isinstance(kind, str):
        raise build_type_error(kind, "a string", f"{where}.type")
    if kind == "text":
        expect_text(data.get("text"), f"{where}.text")
    return _namespace_foreign_keys(data)


def _namespace_foreign_keys(data: Mapping[str, Any]) -> dict[str, Any]:
    # A foreign key such as `gemini` must not be mistaken for that format's extras.
    if FORMAT_NAMESPACES.isdisjoint(data):
        return make_storable(dict(data))
    plain = {key: value for key, value in data.items() if key not in FORMAT_NAMESPACES}
    plain[_OPENAI_CHAT_FORMAT] = {
        key: value for key, value in data.items() if key in FORMAT_NAMESPACES
    }
    return make_storable(plain)


def _read_openai_call(call: object, where: str) -> ToolCall:
    data = _namespace_foreign_keys(expect_mapping(call, where))
    if "raw_arguments" in data:
        data[_OPENAI_CHAT_FORMAT] = {
            **data.get(_OPENAI_CHAT_FORMAT, {}),
            "raw_arguments": data.pop("raw_arguments"),
        }
    custom = data.get("custom")
    if data.get("type") == "custom" and isinstance(custom, Mapping):
        rest = {key: custom[key] for key in custom if key not in ("name", "input")}
        del data["custom"]
        text = expect_text(custom.get("input"), f"{where}.custom.input")
        data |= {"name": custom.get("name"), **read_arguments(text)}
        if rest:
            data["custom"] = rest
    return validate_wire(ToolCall, data, where)
