"""Converts Hugging Face and TRL chat messages, in which tool arguments are an object."""

from collections.abc import Iterable, Mapping
from typing import Any

from assay.errors import WireError
from assay.types import ContentBlock, Message, TextBlock, ToolCall, read_arguments

from .conversion import (
    Converted,
    Dropped,
    apply_spelling,
    build_depth_error,
    check_iterable,
    compute_spelling,
    expect_mapping,
    expect_message,
    expect_text,
    find_spelling,
    get_namespace,
    make_storable,
    read_items,
    report_extras,
    report_unsupported_fields,
    validate_wire,
    write_blocks,
    write_plain_arguments,
)
from .media import get_image_url, report_image_extras

_HUGGINGFACE_FORMAT = "huggingface"
# All other keys of a message are kept as extras of this format.
_HUGGINGFACE_KEYS = frozenset(
    {"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"}
)


def to_huggingface(messages: Iterable[Message]) -> Converted[list[dict[str, Any]]]:
    """Write `messages` for chat templates and TRL datasets.

    A tool message without a name gets the name of the tool whose call it answers.
    """
    dropped: list[Dropped] = []
    written: list[dict[str, Any]] = []
    # Templates need the tool's name, which OpenAI's tool messages do not have.
    called: dict[str | None, str] = {}
    for index, message in enumerate(check_iterable(messages, "messages")):
        where = f"messages[{index}]"
        expect_message(message, where)
        for call in message.tool_calls:
            called[call.id] = call.name
        try:
            wire = _write_huggingface_as_read(message, where, dropped)
        except RecursionError as error:
            raise build_depth_error(where) from error
        if _lacks_tool_name(message, called):
            wire["name"] = called[message.tool_call_id]
        written.append(wire)
    return Converted(written, tuple(dropped))


def from_huggingface(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Read chat messages of a dataset. Unknown keys are kept; wrong types raise `WireError`."""
    read: list[Message] = []
    called: dict[str | None, str] = {}
    for index, wire in enumerate(check_iterable(messages, "messages")):
        where = f"messages[{index}]"
        try:
            message = _read_huggingface_message(expect_mapping(wire, where), where)
        except RecursionError as error:
            raise build_depth_error(where) from error
        for call in message.tool_calls:
            called[call.id] = call.name
        if _lacks_tool_name(message, called):
            # Writing would add the name, so its absence is recorded.
            spelling = {"format": _HUGGINGFACE_FORMAT, "set": {}, "unset": ["name"]}
            message = message.model_copy(update={"spelling": spelling})
        read.append(message)
    return read


def _lacks_tool_name(message: Message, called: Mapping[str | None, str]) -> bool:
    # A tool message without a name, whose call is known. A recorded spelling decides for itself.
    identifier = message.tool_call_id
    unnamed = message.role == "tool" and message.name is None
    known = identifier is not None and identifier in called
    return unnamed and known and find_spelling(message, _HUGGINGFACE_FORMAT) is None


def _write_huggingface_message(
    message: Message, where: str, dropped: list[Dropped]
) -> dict[str, Any]:
    # Only fields that are set: templates print a null as the word None.
    wire: dict[str, Any] = {"role": message.role}
    if isinstance(message.content, str):
        wire["content"] = message.content
    elif message.content is not None:
        wire["content"] = write_blocks(message.content, where, dropped, _write_huggingface_part)
    if message.reasoning is not None:
        wire["reasoning_content"] = message.reasoning
    if message.tool_calls:
        wire["tool_calls"] = [
            _write_huggingface_call(call, f"{where}.tool_calls[{position}]", dropped)
            for position, call in enumerate(message.tool_calls)
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        wire["name"] = message.name
    report_unsupported_fields(message, where, dropped)
    extra = message.__pydantic_extra__
    if extra:
        report_extras(extra, _HUGGINGFACE_FORMAT, where, dropped)
        wire = {**get_namespace(extra, _HUGGINGFACE_FORMAT), **wire}
    return wire


def _write_huggingface_as_read(
    message: Message, where: str, dropped: list[Dropped]
) -> dict[str, Any]:
    # The recorded spelling is used only if it still reads as this message, which may be edited.
    found: list[Dropped] = []
    usual = _write_huggingface_message(message, where, found)
    spelling = find_spelling(message, _HUGGINGFACE_FORMAT)
    if spelling is not None:
        wire = apply_spelling(usual, spelling)
        try:
            if _read_huggingface_message(wire, where) == message:
                return wire
        except WireError:
            pass
    dropped.extend(found)
    return usual


def _write_huggingface_part(
    block: ContentBlock, where: str, dropped: list[Dropped]
) -> dict[str, Any] | None:
    extra = block.__pydantic_extra__ or {}
    own = get_namespace(extra, _HUGGINGFACE_FORMAT)
    if isinstance(block, TextBlock):
        report_extras(extra, _HUGGINGFACE_FORMAT, where, dropped)
        return {**own, "type": "text", "text": block.text}
    url = get_image_url(block)
    if url is not None:
        report_image_extras(block, _HUGGINGFACE_FORMAT, where, dropped)
        return {**own, "type": "image", "url": url}
    if _HUGGINGFACE_FORMAT in extra:
        report_extras(extra, _HUGGINGFACE_FORMAT, where, dropped)
        return {**own, "type": block.type}
    dropped.append(Dropped(where, f"chat templates have no `{block.type}` part; left out"))
    return None


def _write_huggingface_call(call: ToolCall, where: str, dropped: list[Dropped]) -> dict[str, Any]:
    extra = call.__pydantic_extra__
    arguments = write_plain_arguments(call, where, dropped)
    function: dict[str, Any] = {"name": call.name, "arguments": arguments}
    wire: dict[str, Any] = {"type": "function", "function": function}
    if call.id is not None:
        wire["id"] = call.id
    if extra:
        report_extras(extra, _HUGGINGFACE_FORMAT, where, dropped)
        own = get_namespace(extra, _HUGGINGFACE_FORMAT)
        if isinstance(own.get("function"), Mapping):
            wire["function"] = {**own["function"], **function}
        wire = {**own, **wire}
    return wire


def _read_huggingface_message(wire: Mapping[str, Any], where: str) -> Message:
    data = {key: value for key, value in wire.items() if key in _HUGGINGFACE_KEYS}
    unknown = {key: value for key, value in wire.items() if key not in _HUGGINGFACE_KEYS}
    if unknown:
        data[_HUGGINGFACE_FORMAT] = make_storable(unknown)
    content = data.get("content")
    if content is not None and not isinstance(content, str):
        data["content"] = read_items(content, f"{where}.content", _read_huggingface_part)
    if data.get("tool_calls"):
        data["tool_calls"] = read_items(
            data["tool_calls"], f"{where}.tool_calls", _read_huggingface_call
        )
    message = validate_wire(Message, data, where)
    spelling = compute_spelling(
        wire, _write_huggingface_message(message, where, []), _HUGGINGFACE_FORMAT
    )
    if spelling is None:
        return message
    return message.model_copy(update={"spelling": spelling})


def _read_huggingface_part(part: object, where: str) -> dict[str, Any]:
    data = expect_mapping(part, where)
    kind = expect_text(data.get("type"), f"{where}.type")
    rest = {key: value for key, value in data.items() if key != "type"}
    read: dict[str, Any] = {"type": kind}
    if kind == "text":
        read["text"] = expect_text(rest.pop("text", None), f"{where}.text")
    elif kind == "image" and isinstance(rest.get("url"), str):
        read = {"type": "image_url", "image_url": {"url": rest.pop("url")}}
    elif kind == "image_url" and isinstance(rest.get("image_url"), Mapping):
        read["image_url"] = rest.pop("image_url")
    elif not rest:
        # Marked even without keys: `{"type": "image"}` is a placeholder of chat templates.
        return {"type": kind, _HUGGINGFACE_FORMAT: {}}
    if rest:
        read[_HUGGINGFACE_FORMAT] = rest
    return make_storable(read)


def _read_huggingface_call(call: object, where: str) -> ToolCall:
    data = expect_mapping(call, where)
    function = data.get("function")
    unknown = {key: value for key, value in data.items() if key not in ("id", "type", "function")}
    if function is None:
        # TRL also accepts a call without the nested `function`.
        function = {key: unknown.pop(key) for key in ("name", "arguments") if key in unknown}
    function = expect_mapping(function, f"{where}.function")
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
        fields["arguments"] = make_storable(
            dict(expect_mapping(arguments, f"{where}.function.arguments"))
        )
    if unknown:
        fields[_HUGGINGFACE_FORMAT] = make_storable(unknown)
    return validate_wire(ToolCall, fields, where)
