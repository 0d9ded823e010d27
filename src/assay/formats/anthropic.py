"""Converts Anthropic messages: content blocks, a separate system prompt, alternating roles.

Fields that only Anthropic has are kept in an extra named `anthropic`: on a block or a tool call its
other keys (`cache_control`), on a message `thinking` (signatures), `result` (the keys of a tool
result block, such as `is_error`) and `turn` (the other keys of the turn that begins with it).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from assay.errors import WireError
from assay.types import ContentBlock, Message, ToolCall

from .anthropic_blocks import (
    ANTHROPIC_FORMAT,
    join_thinking,
    read_anthropic_block,
    read_tool_result,
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
    get_namespace,
    make_storable,
    read_items,
    refuse_deep_nesting,
    report_extras,
    report_unsupported_by_role,
    report_unused,
    validate_wire,
    write_plain_arguments,
)
from .turn_writer import TurnWriter, join_content, keep_original, read_tool_use, read_user_turn

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
    writer = _AnthropicWriter.write_all(messages)
    return Converted(AnthropicChat(writer.system, writer.turns), tuple(writer.dropped))


def from_anthropic(
    messages: Iterable[Mapping[str, Any]],
    *,
    system: str | Iterable[Mapping[str, Any]] | None = None,
) -> list[Message]:
    """Read Anthropic messages: each tool result becomes a tool message of its own."""
    read: list[Message] = []
    if system is not None:
        with refuse_deep_nesting("system"):
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
class _AnthropicWriter(TurnWriter):
    format_name = ANTHROPIC_FORMAT
    call_id_prefix = "toolu"

    system: str | list[dict[str, Any]] | None = None
    system_from: str = ""
    ends: list[tuple[str, str]] = field(default_factory=list)
    """For each turn: the role of its last message, and the position of its first message."""

    def read_original(self, wire: Mapping[str, Any], message: Message, where: str) -> list[Message]:
        own = get_namespace(message.__pydantic_extra__, ANTHROPIC_FORMAT)
        return _read_turn(wire, where, again="turn" in own)

    def add_original(self, wire: Mapping[str, Any], read: list[Message], where: str) -> None:
        # A list of its own: a turn that continues this one is added to it.
        content = wire["content"]
        self.turns.append({**wire, "content": content if isinstance(content, str) else [*content]})
        self.track_messages(read)
        self.ends.append((read[-1].role, where))

    def write_message(self, message: Message, index: int, where: str) -> None:
        leads = message.role in ("system", "developer") and not self.turns
        # The system prompt is not a turn, so it uses none of these extras.
        used = () if leads else ("turn", _ANTHROPIC_EXTRAS_BY_ROLE.get(message.role, "turn"))
        report_unused(message.__pydantic_extra__, ANTHROPIC_FORMAT, used, where, self.dropped)
        if leads:
            self._write_system(message, where)
        elif message.role in ("tool", "function"):
            self._write_result(message, index, where)
        else:
            self._write_turn(message, index, where)

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
        identifier = self.choose_result_id(message, index, where)
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

    def _write_turn(self, message: Message, index: int, where: str) -> None:
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
            identifier = self.choose_call_id(call, f"{index}_{position}", at)
            report_extras(call.__pydantic_extra__, ANTHROPIC_FORMAT, at, self.dropped)
            block = {
                "type": "tool_use",
                "id": identifier,
                "name": call.name,
                "input": write_plain_arguments(call, at, self.dropped),
            }
            blocks.append({**get_namespace(call.__pydantic_extra__, ANTHROPIC_FORMAT), **block})
        return blocks

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
        at = f"{where}.content"
        if role == "assistant":
            messages = [_read_assistant_blocks(blocks, at)]
        else:
            alone = not any(map(_is_result, blocks))
            messages = read_user_turn(
                blocks,
                at,
                is_result=_is_result,
                read_result=read_tool_result,
                read_part=read_anthropic_block,
                join=partial(_join_blocks, alone=alone),
            )
    keys = {key: value for key, value in wire.items() if key not in ("role", "content")}
    if keys or again:
        messages[0] = extend_namespace(messages[0], ANTHROPIC_FORMAT, {"turn": make_storable(keys)})
    written = _AnthropicWriter.write_again(messages).turns
    return keep_original(wire, written, messages, ANTHROPIC_FORMAT)


def _is_result(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "tool_result"


def _read_assistant_blocks(blocks: list[Mapping[str, Any]], where: str) -> Message:
    spoken: list[ContentBlock] = []
    calls: list[ToolCall] = []
    thinking: list[Mapping[str, Any]] = []
    for position, block in enumerate(blocks):
        at = f"{where}[{position}]"
        if block.get("type") == "tool_use":
            use = {key: value for key, value in block.items() if key != "type"}
            calls.append(read_tool_use(use, "id", at, ANTHROPIC_FORMAT))
        elif block.get("type") in _THINKING_TYPES:
            if block["type"] == "thinking":
                expect_text(block.get("thinking"), f"{at}.thinking")
            thinking.append(make_storable(dict(block)))
        else:
            spoken.append(read_anthropic_block(block, at))
    data: dict[str, Any] = {"role": "assistant", "tool_calls": tuple(calls)}
    data["content"] = _join_blocks(spoken, alone=not calls and not thinking)
    if thinking:
        data["reasoning"] = join_thinking(thinking)
        if len(thinking) == 1 and thinking[0]["type"] == "thinking":
            known = ("type", "thinking")
            thinking = [{key: thinking[0][key] for key in thinking[0] if key not in known}]
        data[ANTHROPIC_FORMAT] = {"thinking": thinking}
    return validate_wire(Message, data, where)


def _join_blocks(
    blocks: list[ContentBlock], *, alone: bool
) -> str | tuple[ContentBlock, ...] | None:
    # A string is written as a lone text block only beside calls, results or thinking.
    return (tuple(blocks) or None) if alone else join_content(blocks)
