"""Hugging Face and TRL chat messages, to and from. Tool arguments are an object there."""

from collections.abc import Iterable, Mapping
from typing import Any

from assay.errors import WireError
from assay.types import ContentBlock, Message, TextBlock, ToolCall, read_arguments

from .conversion import (
    Converted,
    Lost,
    difference,
    each,
    mapping_at,
    message_at,
    namespace_of,
    plain_arguments,
    report_extras,
    report_homeless,
    respelled,
    sequence_at,
    spelling_for,
    storable,
    text_at,
    too_deep,
    validated,
)
from .media import image_address, report_beside_address

_FORMAT = "huggingface"
_KNOWN = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"})


def to_huggingface(messages: Iterable[Message]) -> Converted[list[dict[str, Any]]]:
    """Write `messages` as chat templates and TRL datasets take them.

    A tool message without a name gets the name of the tool whose call it answers.
    """
    lost: list[Lost] = []
    written: list[dict[str, Any]] = []
    called: dict[str | None, str] = {}
    for index, message in enumerate(each(messages, "messages")):
        where = f"messages[{index}]"
        message_at(message, where)
        for call in message.tool_calls:
            called[call.id] = call.name
        try:
            wire = _write_as_read(message, where, lost)
        except RecursionError as error:
            raise too_deep(where) from error
        if _unnamed(message, called) and spelling_for(message, _FORMAT) is None:
            wire["name"] = called[message.tool_call_id]
        written.append(wire)
    return Converted(written, tuple(lost))


def from_huggingface(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Read chat messages of a dataset. Unknown keys are kept; wrong types raise `WireError`."""
    read: list[Message] = []
    called: dict[str | None, str] = {}
    for index, wire in enumerate(each(messages, "messages")):
        where = f"messages[{index}]"
        try:
            message = _read(mapping_at(wire, where), where)
        except RecursionError as error:
            raise too_deep(where) from error
        for call in message.tool_calls:
            called[call.id] = call.name
        if _unnamed(message, called) and spelling_for(message, _FORMAT) is None:
            # Writing would add the name.
            spelling = {"format": _FORMAT, "set": {}, "unset": ["name"]}
            message = message.model_copy(update={"spelling": spelling})
        read.append(message)
    return read


def _unnamed(message: Message, called: Mapping[str | None, str]) -> bool:
    """Whether this is a tool message that does not say whose, though its call does."""
    identifier = message.tool_call_id
    unnamed = message.role == "tool" and message.name is None
    return unnamed and identifier is not None and identifier in called


def _write(message: Message, where: str, lost: list[Lost]) -> dict[str, Any]:
    """The usual spelling: only what is set, since templates print a null as the word None."""
    wire: dict[str, Any] = {"role": message.role}
    if isinstance(message.content, str):
        wire["content"] = message.content
    elif message.content is not None:
        wire["content"] = _parts(message.content, where, lost)
    if message.reasoning is not None:
        wire["reasoning_content"] = message.reasoning
    if message.tool_calls:
        wire["tool_calls"] = [
            _write_call(call, f"{where}.tool_calls[{position}]", lost)
            for position, call in enumerate(message.tool_calls)
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        wire["name"] = message.name
    report_homeless(message, where, lost)
    extra = message.__pydantic_extra__
    if extra:
        report_extras(extra, _FORMAT, where, lost)
        wire = {**namespace_of(extra, _FORMAT), **wire}
    return wire


def _write_as_read(message: Message, where: str, lost: list[Lost]) -> dict[str, Any]:
    """The spelling it was read with, as long as that still says what the message says."""
    found: list[Lost] = []
    usual = _write(message, where, found)
    spelling = spelling_for(message, _FORMAT)
    if spelling is not None:
        wire = respelled(usual, spelling)
        try:
            if _read(wire, where) == message:
                return wire
        except WireError:
            pass
    lost.extend(found)
    return usual


def _parts(content: tuple[ContentBlock, ...], where: str, lost: list[Lost]) -> list[dict[str, Any]]:
    parts = (
        _part(block, f"{where}.content[{position}]", lost) for position, block in enumerate(content)
    )
    return [part for part in parts if part is not None]


def _part(block: ContentBlock, where: str, lost: list[Lost]) -> dict[str, Any] | None:
    extra = block.__pydantic_extra__ or {}
    own = namespace_of(extra, _FORMAT)
    if isinstance(block, TextBlock):
        report_extras(extra, _FORMAT, where, lost)
        return {**own, "type": "text", "text": block.text}
    url = image_address(block)
    if url is not None:
        report_beside_address(block, _FORMAT, where, lost)
        return {**own, "type": "image", "url": url}
    if _FORMAT in extra:
        report_extras(extra, _FORMAT, where, lost)
        return {**own, "type": block.type}
    lost.append(Lost(where, f"chat templates have no `{block.type}` part; left out"))
    return None


def _write_call(call: ToolCall, where: str, lost: list[Lost]) -> dict[str, Any]:
    extra = call.__pydantic_extra__
    arguments = plain_arguments(call, where, lost)
    function: dict[str, Any] = {"name": call.name, "arguments": arguments}
    wire: dict[str, Any] = {"type": "function", "function": function}
    if call.id is not None:
        wire["id"] = call.id
    if extra:
        report_extras(extra, _FORMAT, where, lost)
        own = namespace_of(extra, _FORMAT)
        if isinstance(own.get("function"), Mapping):
            wire["function"] = {**own["function"], **function}
        wire = {**own, **wire}
    return wire


def _read(wire: Mapping[str, Any], where: str) -> Message:
    data = {key: value for key, value in wire.items() if key in _KNOWN}
    unknown = {key: value for key, value in wire.items() if key not in _KNOWN}
    if unknown:
        data[_FORMAT] = storable(unknown)
    content = data.get("content")
    if content is not None and not isinstance(content, str):
        parts = sequence_at(content, f"{where}.content")
        data["content"] = [
            _read_part(part, f"{where}.content[{position}]") for position, part in enumerate(parts)
        ]
    if data.get("tool_calls"):
        calls = sequence_at(data["tool_calls"], f"{where}.tool_calls")
        data["tool_calls"] = [
            _read_call(call, f"{where}.tool_calls[{position}]")
            for position, call in enumerate(calls)
        ]
    message = validated(Message, data, where)
    spelling = difference(wire, _write(message, where, []), _FORMAT)
    if spelling is None:
        return message
    return message.model_copy(update={"spelling": spelling})


def _read_part(part: object, where: str) -> dict[str, Any]:
    data = mapping_at(part, where)
    kind = text_at(data.get("type"), f"{where}.type")
    rest = {key: value for key, value in data.items() if key != "type"}
    read: dict[str, Any] = {"type": kind}
    if kind == "text":
        read["text"] = text_at(rest.pop("text", None), f"{where}.text")
    elif kind == "image" and isinstance(rest.get("url"), str):
        read = {"type": "image_url", "image_url": {"url": rest.pop("url")}}
    elif kind == "image_url" and isinstance(rest.get("image_url"), Mapping):
        read["image_url"] = rest.pop("image_url")
    elif not rest:
        # Marked as read here even when bare: `{"type": "image"}` is a placeholder of templates.
        return {"type": kind, _FORMAT: {}}
    if rest:
        read[_FORMAT] = rest
    return storable(read)


def _read_call(call: object, where: str) -> ToolCall:
    data = mapping_at(call, where)
    function = data.get("function")
    unknown = {key: value for key, value in data.items() if key not in ("id", "type", "function")}
    if function is None:
        # TRL also takes a call without the nesting.
        function = {key: unknown.pop(key) for key in ("name", "arguments") if key in unknown}
    function = mapping_at(function, f"{where}.function")
    rest = {key: value for key, value in function.items() if key not in ("name", "arguments")}
    if rest:
        unknown["function"] = rest
    if data.get("type") not in (None, "function"):
        raise WireError(
            f"{data['type']!r} is not a kind of tool call that chat templates know",
            where=f"{where}.type",
            hint="only 'function' is; read OpenAI's custom tool calls with `from_openai_chat`",
        )
    fields: dict[str, Any] = {"id": data.get("id"), "name": function.get("name")}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        fields |= read_arguments(arguments)
    elif arguments is not None:
        fields["arguments"] = storable(dict(mapping_at(arguments, f"{where}.function.arguments")))
    if unknown:
        fields[_FORMAT] = storable(unknown)
    return validated(ToolCall, fields, where)
