"""Shared code of the formats that combine messages into turns: Anthropic, Bedrock and Gemini."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar, Self

from assay.errors import WireError
from assay.types import ContentBlock, Message, TextBlock, ToolCall

from .conversion import (
    Dropped,
    build_depth_error,
    check_iterable,
    expect_mapping,
    expect_message,
    expect_text,
    find_spelling,
    is_same_json,
    make_storable,
    report_extras,
    report_unsupported_by_role,
    report_unsupported_fields,
    validate_wire,
)
from .open_calls import OpenCalls

_Content = str | tuple[ContentBlock, ...] | None


@dataclass
class TurnWriter:
    """Builds turns one message at a time; each format implements the last three methods."""

    format_name: ClassVar[str]
    call_id_prefix: ClassVar[str] = "call"

    messages: list[Message]
    turns: list[dict[str, Any]] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    pending: OpenCalls[tuple[str | None, str]] = field(default_factory=OpenCalls)
    """Ids and names of the calls that no tool message has answered yet."""

    called: dict[str | None, str] = field(default_factory=dict)
    """Names of all tools called so far, by call id."""

    @classmethod
    def write_all(cls, messages: Iterable[Message]) -> Self:
        """Write messages. Raises `WireError` for one that is nested too deeply."""
        writer = cls(list(check_iterable(messages, "messages")))
        index = 0
        while index < len(writer.messages):
            where = f"messages[{index}]"
            expect_message(writer.messages[index], where)
            try:
                index += writer._write(index, where)
            except RecursionError as error:
                raise build_depth_error(where) from error
        return writer

    @classmethod
    def write_again(cls, messages: list[Message]) -> Self:
        """Write messages that were just read, to see whether that restores their turn."""
        writer = cls(messages)
        for index in range(len(messages)):
            writer._write(index, f"messages[{index}]")
        return writer

    def _write(self, index: int, where: str) -> int:
        """Write the message at `index`; return how many messages were consumed."""
        message = self.messages[index]
        spelling = find_spelling(message, self.format_name)
        if spelling is not None and isinstance(wire := spelling.get("message"), Mapping):
            try:
                read = self.read_original(wire, message, where)
            except WireError:
                read = []
            # The original is used only if it still reads as exactly these messages: they may have
            # been edited since.
            if read and read == self.messages[index : index + len(read)]:
                self.add_original(wire, read, where)
                return len(read)
        report_unsupported_fields(message, where, self.dropped)
        report_extras(message.__pydantic_extra__, self.format_name, where, self.dropped)
        self.write_message(message, index, where)
        return 1

    def track_call(self, call_id: str | None, name: str) -> None:
        """Remember a call until a tool message answers it."""
        self.pending.add(call_id, (call_id, name), name=name)
        if call_id is not None:
            self.called[call_id] = name

    def track_messages(self, messages: Iterable[Message]) -> None:
        """Remember the calls of messages that are written as they were read."""
        for message in messages:
            for call in message.tool_calls:
                self.track_call(call.id, call.name)
            if message.tool_call_id is not None:
                self.pending.close(message.tool_call_id)

    def choose_call_id(self, call: ToolCall, place: str, where: str) -> str:
        """Return the id of a call, or a new one for an API that requires it."""
        identifier = call.id
        if identifier is None:
            identifier = self._make_call_id(place)
            self.dropped.append(Dropped(f"{where}.id", f"none is set; {identifier!r} written"))
        self.track_call(identifier, call.name)
        return identifier

    def choose_result_id(self, message: Message, index: int, where: str) -> str:
        """Return the id that a tool message answers, which the API requires.

        Reports the fields that a result of such an API has no place for.
        """
        report_unsupported_by_role(message, where, self.dropped, ("tool_calls", "reasoning"))
        if message.role != "tool":
            self.dropped.append(Dropped(f"{where}.role", "written as a tool result"))
        identifier = message.tool_call_id
        if identifier is None:
            # That of the first open call of the same tool.
            first = self.pending.get_named(message.name)
            identifier = (first and first[0]) or self._make_call_id(str(index))
            note = f"none is set; {identifier!r} written"
            self.dropped.append(Dropped(f"{where}.tool_call_id", note))
        if message.name is not None and self.called.get(identifier) != message.name:
            self.dropped.append(Dropped(f"{where}.name", "no place for the tool's name; left out"))
        self.pending.close(identifier)
        return identifier

    def _make_call_id(self, place: str) -> str:
        # Derived from the position, so that the same input gives the same request and cache key.
        identifier = f"{self.call_id_prefix}_{place}"
        while identifier in self._given_ids:
            identifier += "_"
        return identifier

    @cached_property
    def _given_ids(self) -> set[str | None]:
        calls = {call.id for message in self.messages for call in message.tool_calls}
        return calls | {message.tool_call_id for message in self.messages}

    def read_original(self, wire: Mapping[str, Any], message: Message, where: str) -> list[Message]:
        """Read the turn that was kept with `message`."""
        raise NotImplementedError

    def add_original(self, wire: Mapping[str, Any], read: list[Message], where: str) -> None:
        """Write a turn as it was read."""
        raise NotImplementedError

    def write_message(self, message: Message, index: int, where: str) -> None:
        """Write one message, and report what the format has no place for."""
        raise NotImplementedError


def keep_original(
    wire: Mapping[str, Any], written: object, messages: list[Message], format_name: str
) -> list[Message]:
    """Return the messages of a turn; the first keeps it if writing them does not restore it."""
    if is_same_json(written, [dict(wire)]):
        return messages
    stored = make_storable(dict(wire))
    if is_same_json(written, [stored]):
        return messages
    spelling = {"format": format_name, "message": stored}
    return [messages[0].model_copy(update={"spelling": spelling}), *messages[1:]]


def join_content(blocks: list[ContentBlock]) -> _Content:
    """Return the content of a message: a lone text is written back the same from a string."""
    if len(blocks) == 1 and isinstance(blocks[0], TextBlock) and not blocks[0].__pydantic_extra__:
        return blocks[0].text
    return tuple(blocks) or None


def read_user_turn(
    parts: Sequence[Mapping[str, Any]],
    where: str,
    *,
    is_result: Callable[[Any], bool],
    read_result: Callable[[Any, str], Message],
    read_part: Callable[[Any, str], ContentBlock],
    join: Callable[[list[ContentBlock]], _Content] = join_content,
) -> list[Message]:
    """Read each tool result as a message of its own, and the parts between two as one."""
    messages: list[Message] = []
    for found, run in groupby(enumerate(parts), lambda item: is_result(item[1])):
        if found:
            messages += [read_result(part, f"{where}[{n}]") for n, part in run]
        else:
            content = join([read_part(part, f"{where}[{n}]") for n, part in run])
            messages.append(validate_wire(Message, {"role": "user", "content": content}, where))
    return messages or [validate_wire(Message, {"role": "user", "content": join([])}, where)]


def read_tool_use(use: Mapping[str, Any], id_key: str, where: str, format_name: str) -> ToolCall:
    """Read a call whose arguments are `input`; its other keys become extras of the format."""
    data: dict[str, Any] = {
        "id": expect_text(use.get(id_key), f"{where}.{id_key}"),
        "name": expect_text(use.get("name"), f"{where}.name"),
        "arguments": make_storable(dict(expect_mapping(use.get("input"), f"{where}.input"))),
    }
    rest = {key: value for key, value in use.items() if key not in (id_key, "name", "input")}
    if rest:
        data[format_name] = make_storable(rest)
    return validate_wire(ToolCall, data, where)
