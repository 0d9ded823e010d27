"""Converts Anthropic messages: content blocks, a separate system prompt, alternating roles.

Fields that only Anthropic has are kept in an extra named `anthropic`: on a block or a tool call its
other keys (`cache_control`), on a message `thinking` (signatures), `result` (the keys of a tool
result block, such as `is_error`) and `turn` (the other keys of the turn that begins with it).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.errors import WireError
from assay.types import ContentBlock, Message, TextBlock, ToolCall

from .anthropic_blocks import (
    ANTHROPIC_FORMAT,
    join_thinking,
    read_anthropic_block,
    read_tool_result,
    read_tool_use,
    write_anthropic_blocks,
    write_thinking,
)
from .conversion import (
    Converted,
    Dropped,
    build_depth_error,
    check_iterable,
    expect_mapping,
    expect_text,
    extend_namespace,
    find_spelling,
    get_namespace,
    is_same_json,
    make_storable,
    read_items,
    report_extras,
    report_unsupported_by_role,
    report_unsupported_fields,
    report_unused,
    validate_wire,
    write_all,
    write_plain_arguments,
)

# The extra of this format that a message of each role may have, besides `turn`.
_ANTHROPIC_EXTRAS_BY_ROLE = {"assistant": "thinking", "tool": "result", "function": "result"}
_EMPTY_MESSAGE_NOTE = "an empty message; left out"
_EMPTY_TEXT_NOTE = "an empty text is not accepted beside other blocks; left out"
# The system prompt is only text, so it has none of a message's other fields.
_UNSUPPORTED_IN_SYSTEM = ("tool_calls", "tool_call_id", "name", "reasoning")
# Blocks that must be sent back unchanged together with their signatures.
_THINKING_TYPES = ("thinking", "redacted_thinking")


@dataclass(frozen=True)
class AnthropicChat:
    """A conversation as the two arguments of Anthropic's API."""

    system: str | list[dict[str, Any]] | None
    messages: list[dict[str, Any]]


def to_anthropic(messages: Iterable[Message]) -> Converted[AnthropicChat]:
    """Write `messages` as a system prompt and turns of alternating roles.

    Neighbours of one role become one turn, tool messages become user turns, and a system message
    after the first turn becomes a user turn. Missing tool-call ids are generated.
    """
    writer = _AnthropicWriter(list(check_iterable(messages, "messages")))
    write_all(writer)
    return Converted(AnthropicChat(writer.system, writer.turns), tuple(writer.dropped))


def from_anthropic(
    messages: Iterable[Mapping[str, Any]],
    *,
    system: str | Iterable[Mapping[str, Any]] | None = None,
) -> list[Message]:
    """Read Anthropic messages: each tool result becomes a tool message of its own."""
    read: list[Message] = []
    if system is not None:
        content: Any = system
        if not isinstance(system, str):
            content = tuple(read_items(system, "system", read_anthropic_block))
        read.append(validate_wire(Message, {"role": "system", "content": content}, "system"))
    # Anthropic joins consecutive turns of one role, so a repeated role is marked to restore it.
    before = None
    for index, wire in enumerate(check_iterable(messages, "messages")):
        where = f"messages[{index}]"
        try:
            turn = expect_mapping(wire, where)
            read.extend(_read_turn(turn, where, again=turn.get("role") == before))
        except RecursionError as error:
            raise build_depth_error(where) from error
        before = turn.get("role")
    return read


@dataclass
class _AnthropicWriter:
    """Builds turns one message at a time."""

    messages: list[Message]
    system: str | list[dict[str, Any]] | None = None
    turns: list[dict[str, Any]] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    ends: list[tuple[str, str]] = field(default_factory=list)
    """For each turn: the role of its last message, and the position of its first message."""

    system_from: str = ""
    pending: list[tuple[str, str]] = field(default_factory=list)
    """Ids and names of the calls that no tool message has answered yet."""

    called: dict[str, str] = field(default_factory=dict)
    """Names of all tools called so far, by call id."""

    def write(self, index: int) -> int:
        """Write the message at `index`; return how many messages were consumed."""
        message, where = self.messages[index], f"messages[{index}]"
        spelling = find_spelling(message, ANTHROPIC_FORMAT)
        if spelling is not None and (count := self._write_as_read(index, spelling)):
            return count
        report_unsupported_fields(message, where, self.dropped)
        report_extras(message.__pydantic_extra__, ANTHROPIC_FORMAT, where, self.dropped)
        leads = message.role in ("system", "developer") and not self.turns
        # The system prompt is not a turn, so it uses none of these extras.
        used = () if leads else ("turn", _ANTHROPIC_EXTRAS_BY_ROLE.get(message.role, "turn"))
        report_unused(message.__pydantic_extra__, ANTHROPIC_FORMAT, used, where, self.dropped)
        if leads:
            self._write_system(message, where)
        elif message.role in ("tool", "function"):
            self._write_result(message, index, where)
        else:
            self._write_message(message, index, where)
        return 1

    def _write_as_read(self, index: int, spelling: Mapping[str, Any]) -> int:
        wire = spelling.get("message")
        if not isinstance(wire, Mapping):
            return 0
        # The original is used only if it still reads as exactly these messages: they may have been
        # edited since.
        own = get_namespace(self.messages[index].__pydantic_extra__, ANTHROPIC_FORMAT)
        try:
            read = _read_turn(wire, f"messages[{index}]", again="turn" in own)
        except WireError:
            return 0
        if read != self.messages[index : index + len(read)]:
            return 0
        # A list of its own: a turn that continues this one is added to it.
        content = wire["content"]
        self.turns.append({**wire, "content": content if isinstance(content, str) else [*content]})
        for message in read:
            for call in message.tool_calls:
                self.pending.append((call.id or "", call.name))
                self.called[call.id or ""] = call.name
            self._mark_answered(message.tool_call_id)
        self.ends.append((read[-1].role, f"messages[{index}]"))
        return len(read)

    def _write_system(self, message: Message, where: str) -> None:
        report_unsupported_by_role(message, where, self.dropped, _UNSUPPORTED_IN_SYSTEM)
        if message.role == "developer":
            self.dropped.append(Dropped(f"{where}.role", "written as the system prompt"))
        content = message.content
        written: str | list[dict[str, Any]]
        written = (
            content
            if isinstance(content, str)
            else write_anthropic_blocks(content, where, self.dropped)
        )
        if self.system in ("", []):
            self.dropped.append(Dropped(self.system_from, _EMPTY_MESSAGE_NOTE))
            self.system = None
        if self.system is None:
            self.system, self.system_from = written, where
            return
        self.dropped.append(Dropped(where, "joined to the system prompt before it"))
        self.system = _to_block_list(self.system) + _to_block_list(written)

    def _write_result(self, message: Message, index: int, where: str) -> None:
        report_unsupported_by_role(message, where, self.dropped, ("tool_calls", "reasoning"))
        if message.role != "tool":
            self.dropped.append(Dropped(f"{where}.role", "written as a tool result"))
        identifier = message.tool_call_id
        if identifier is None:
            # Anthropic requires an id: take that of the first open call of the same tool.
            identifier = next(
                (key for key, name in self.pending if message.name in (None, name)),
                self._make_call_id(str(index)),
            )
            self.dropped.append(
                Dropped(f"{where}.tool_call_id", f"none is set; {identifier!r} written")
            )
        if message.name is not None and self.called.get(identifier) != message.name:
            self.dropped.append(Dropped(f"{where}.name", "no place for the tool's name; left out"))
        self._mark_answered(identifier)
        own = get_namespace(message.__pydantic_extra__, ANTHROPIC_FORMAT)
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": identifier}
        if isinstance(message.content, str):
            block["content"] = message.content
        elif message.content is not None:
            block["content"] = write_anthropic_blocks(message.content, where, self.dropped)
        block = {**get_namespace(own, "result"), **block}
        if self._opens_turn("user", own):
            self._open_turn("user", [block], message, where)
        else:
            self._extend_turn("tool", [block])

    def _mark_answered(self, identifier: str | None) -> None:
        self.pending = [call for call in self.pending if call[0] != identifier]

    def _write_message(self, message: Message, index: int, where: str) -> None:
        role = message.role if message.role in ("user", "assistant") else "user"
        if message.role != role:
            self.dropped.append(Dropped(f"{where}.role", f"written as a {role} message"))
        report_unsupported_by_role(message, where, self.dropped, ("tool_call_id", "name"))
        if role == "user":
            report_unsupported_by_role(message, where, self.dropped, ("tool_calls", "reasoning"))
        own = get_namespace(message.__pydantic_extra__, ANTHROPIC_FORMAT)
        thinking = write_thinking(message, own, where, self.dropped) if role == "assistant" else []
        calls = self._write_calls(message, index, where) if role == "assistant" else []
        opens = self._opens_turn(role, own)
        content: str | list[dict[str, Any]]
        if isinstance(message.content, str) and opens and not thinking and not calls:
            content = message.content
        else:
            given = message.content
            if given == "":
                self.dropped.append(Dropped(f"{where}.content", _EMPTY_TEXT_NOTE))
            blocks = (
                _to_block_list(given)
                if isinstance(given, str)
                else write_anthropic_blocks(given, where, self.dropped)
            )
            content = [*thinking, *blocks, *calls]
        if opens:
            self._open_turn(role, content, message, where)
            return
        if not content:
            self.dropped.append(Dropped(where, _EMPTY_MESSAGE_NOTE))
        elif self.ends[-1][0] == role:
            self.dropped.append(Dropped(where, f"joined to the {role} message before it"))
        self._extend_turn(role, content)

    def _write_calls(self, message: Message, index: int, where: str) -> list[dict[str, Any]]:
        blocks = []
        for position, call in enumerate(message.tool_calls):
            at = f"{where}.tool_calls[{position}]"
            identifier = call.id
            if identifier is None:
                identifier = self._make_call_id(f"{index}_{position}")
                self.dropped.append(Dropped(f"{at}.id", f"none is set; {identifier!r} written"))
            self.pending.append((identifier, call.name))
            self.called[identifier] = call.name
            report_extras(call.__pydantic_extra__, ANTHROPIC_FORMAT, at, self.dropped)
            block = {
                "type": "tool_use",
                "id": identifier,
                "name": call.name,
                "input": write_plain_arguments(call, at, self.dropped),
            }
            blocks.append({**get_namespace(call.__pydantic_extra__, ANTHROPIC_FORMAT), **block})
        return blocks

    def _make_call_id(self, place: str) -> str:
        # Derived from the position, so that the same input gives the same request and cache key.
        taken = {call.id for message in self.messages for call in message.tool_calls}
        taken |= {message.tool_call_id for message in self.messages}
        identifier = f"toolu_{place}"
        while identifier in taken:
            identifier += "_"
        return identifier

    def _opens_turn(self, role: str, own: Mapping[str, Any]) -> bool:
        # Anthropic refuses empty turns: an empty turn of the same role is dropped.
        if isinstance(own.get("turn"), Mapping):
            return True
        while self.turns and self.turns[-1]["role"] == role and not self.turns[-1]["content"]:
            self.turns.pop()
            self.dropped.append(Dropped(self.ends.pop()[1], _EMPTY_MESSAGE_NOTE))
        return not self.turns or self.turns[-1]["role"] != role

    def _open_turn(
        self, role: str, content: str | list[dict[str, Any]], message: Message, where: str
    ) -> None:
        own = get_namespace(message.__pydantic_extra__, ANTHROPIC_FORMAT)
        self.turns.append({**get_namespace(own, "turn"), "role": role, "content": content})
        self.ends.append(("tool" if message.role in ("tool", "function") else role, where))

    def _extend_turn(self, kind: str, content: str | list[dict[str, Any]]) -> None:
        if content:
            last = self.turns[-1]
            blocks = _to_block_list(last["content"])
            blocks += _to_block_list(content)
            last["content"] = blocks
            self.ends[-1] = (kind, self.ends[-1][1])


def _to_block_list(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content


def _read_turn(wire: Mapping[str, Any], where: str, *, again: bool) -> list[Message]:
    # `again`: the previous turn had the same role. The mark keeps both apart when written back.
    role = wire.get("role")
    if role not in ("user", "assistant"):
        raise WireError(
            f"the role {role!r} is not 'user' or 'assistant'",
            where=f"{where}.role",
            hint="pass the system prompt as `system=`",
        )
    content = wire.get("content")
    if isinstance(content, str):
        messages = [validate_wire(Message, {"role": role, "content": content}, where)]
        if len(wire) == 2 and not again:
            return messages
    else:
        blocks = read_items(content, f"{where}.content", expect_mapping)
        read = _read_assistant_blocks if role == "assistant" else _read_user_blocks
        messages = read(blocks, f"{where}.content")
    keys = {key: value for key, value in wire.items() if key not in ("role", "content")}
    if keys or again:
        messages[0] = extend_namespace(messages[0], ANTHROPIC_FORMAT, {"turn": make_storable(keys)})
    return _keep_original_turn(wire, messages)


def _keep_original_turn(wire: Mapping[str, Any], messages: list[Message]) -> list[Message]:
    # The original turn is kept only where writing the messages would not restore it.
    writer = _AnthropicWriter(messages)
    for index in range(len(messages)):
        writer.write(index)
    if is_same_json(writer.turns, [dict(wire)]):
        return messages
    spelling = {"format": ANTHROPIC_FORMAT, "message": make_storable(dict(wire))}
    if is_same_json(writer.turns, [spelling["message"]]):
        return messages
    return [messages[0].model_copy(update={"spelling": spelling}), *messages[1:]]


def _read_assistant_blocks(blocks: list[Mapping[str, Any]], where: str) -> list[Message]:
    spoken: list[ContentBlock] = []
    calls: list[ToolCall] = []
    thinking: list[Mapping[str, Any]] = []
    for position, block in enumerate(blocks):
        at = f"{where}[{position}]"
        if block.get("type") == "tool_use":
            calls.append(read_tool_use(block, at))
        elif block.get("type") in _THINKING_TYPES:
            if block["type"] == "thinking":
                expect_text(block.get("thinking"), f"{at}.thinking")
            thinking.append(make_storable(dict(block)))
        else:
            spoken.append(read_anthropic_block(block, at))
    data: dict[str, Any] = {"role": "assistant", "tool_calls": tuple(calls)}
    data["content"] = _build_anthropic_content(spoken, alone=not calls and not thinking)
    if thinking:
        data["reasoning"] = join_thinking(thinking)
        if len(thinking) == 1 and thinking[0]["type"] == "thinking":
            known = ("type", "thinking")
            thinking = [{key: thinking[0][key] for key in thinking[0] if key not in known}]
        data[ANTHROPIC_FORMAT] = {"thinking": thinking}
    return [validate_wire(Message, data, where)]


def _build_anthropic_content(
    blocks: list[ContentBlock], *, alone: bool
) -> str | tuple[Any, ...] | None:
    # A string is written as a lone text block beside calls or thinking, so such a block is read
    # as a string.
    if not blocks:
        return None
    only = blocks[0]
    if alone or len(blocks) > 1 or not isinstance(only, TextBlock) or only.__pydantic_extra__:
        return tuple(blocks)
    return only.text


def _read_user_blocks(blocks: list[Mapping[str, Any]], where: str) -> list[Message]:
    messages: list[Message] = []
    spoken: list[ContentBlock] = []
    alone = all(block.get("type") != "tool_result" for block in blocks)
    for position, block in enumerate(blocks):
        at = f"{where}[{position}]"
        if block.get("type") != "tool_result":
            spoken.append(read_anthropic_block(block, at))
            continue
        if spoken:
            messages.append(_build_user_message(spoken, where, alone=alone))
            spoken = []
        messages.append(read_tool_result(block, at))
    if spoken or not messages:
        messages.append(_build_user_message(spoken, where, alone=alone))
    return messages


def _build_user_message(blocks: list[ContentBlock], where: str, *, alone: bool) -> Message:
    content = _build_anthropic_content(blocks, alone=alone)
    return validate_wire(Message, {"role": "user", "content": content}, where)
