"""Gemini contents, to and from: parts, the roles `user` and `model`, a separate instruction.

What only Gemini has is kept in an extra named `gemini`: on a block or a tool call its other keys
(`thoughtSignature`), on a message `thinking`, `result` (what a function response says beside its
text) and `turn` (the other keys of the content that begins with it).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.errors import WireError
from assay.types import Message, TextBlock, ToolCall

from .conversion import (
    Converted,
    Lost,
    each,
    joined_reasoning,
    keeping,
    mapping_at,
    message_at,
    namespace_of,
    optional_text_at,
    plain_arguments,
    report_extras,
    report_homeless,
    report_unspoken,
    report_unused,
    same,
    sequence_at,
    spelling_for,
    storable,
    text_at,
    too_deep,
    validated,
)
from .gemini_parts import (
    FORMAT,
    camel_part,
    read_block,
    read_result,
    write_parts,
    write_response,
)

_USED_BY_ROLE = {"assistant": "thinking", "tool": "result", "function": "result"}
_UNKNOWN_NAME = "unknown"


@dataclass(frozen=True)
class GeminiChat:
    """The two arguments that Gemini takes a conversation as."""

    contents: list[dict[str, Any]]
    system_instruction: dict[str, Any] | None


def to_gemini(messages: Iterable[Message]) -> Converted[GeminiChat]:
    """Write `messages` as contents and a system instruction, in camelCase.

    Neighbouring tool messages become one content, as parallel calls need it. Text that a tool
    returned is written as `{"output": text}`, under the name of the tool whose call it answers.
    """
    writer = _Writer(list(each(messages, "messages")))
    index = 0
    while index < len(writer.messages):
        message_at(writer.messages[index], f"messages[{index}]")
        try:
            index += writer.write(index)
        except RecursionError as error:
            raise too_deep(f"messages[{index}]") from error
    return Converted(GeminiChat(writer.contents, writer.system), tuple(writer.lost))


def from_gemini(
    contents: Iterable[Mapping[str, Any]],
    *,
    system_instruction: Mapping[str, Any] | str | None = None,
) -> list[Message]:
    """Read Gemini contents, in camelCase or snake_case.

    Each function response becomes a tool message. An instruction that is a mere string is written
    back as the object it stands for.
    """
    read: list[Message] = []
    if isinstance(system_instruction, str):
        system_instruction = {"parts": [{"text": system_instruction}]}
    try:
        if system_instruction is not None:
            read.extend(_read_system(system_instruction))
    except RecursionError as error:
        raise too_deep("system_instruction") from error
    after_tool = False
    for index, wire in enumerate(each(contents, "contents")):
        where = f"contents[{index}]"
        try:
            read.extend(_read_content(mapping_at(wire, where), where, after_tool=after_tool))
        except RecursionError as error:
            raise too_deep(where) from error
        after_tool = read[-1].role == "tool"
    return read


@dataclass
class _Writer:
    """Contents as they grow, one message at a time."""

    messages: list[Message]
    system: dict[str, Any] | None = None
    system_from: str = ""
    contents: list[dict[str, Any]] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    in_results: bool = False
    """Whether the last content holds function responses that another may join."""

    pending: list[tuple[str | None, str]] = field(default_factory=list)
    """Ids and names of the calls that no tool message has answered yet."""

    called: dict[str | None, str] = field(default_factory=dict)
    """Names of all tools called so far, by call id."""

    def write(self, index: int) -> int:
        """Write the message at `index`, and say how many messages that took care of."""
        message, where = self.messages[index], f"messages[{index}]"
        spelling = spelling_for(message, FORMAT)
        if spelling is not None and (count := self._write_as_read(index, spelling)):
            return count
        report_homeless(message, where, self.lost)
        report_extras(message.__pydantic_extra__, FORMAT, where, self.lost)
        used = ("turn", _USED_BY_ROLE.get(message.role, "turn"))
        report_unused(message.__pydantic_extra__, FORMAT, used, where, self.lost)
        if message.role in ("system", "developer") and not self.contents:
            self._write_system(message, where)
        elif message.role in ("tool", "function"):
            self._write_result(message, where)
        else:
            self._write_spoken(message, where)
        return 1

    def _write_as_read(self, index: int, spelling: Mapping[str, Any]) -> int:
        wire = spelling.get("message")
        if not isinstance(wire, Mapping):
            return 0
        message, where = self.messages[index], f"messages[{index}]"
        first = message.role == "system" and not self.contents and self.system is None
        after_tool = "turn" in namespace_of(message.__pydantic_extra__, FORMAT)
        try:
            read = (
                _read_system(wire) if first else _read_content(wire, where, after_tool=after_tool)
            )
        except WireError:
            return 0
        if read != self.messages[index : index + len(read)]:
            return 0
        if first:
            self.system, self.system_from = dict(wire), where
            return 1
        self.contents.append({**wire, "parts": list(wire["parts"])})
        for item in read:
            for call in item.tool_calls:
                self._expect(call)
            if item.role == "tool":
                self._name(item)
        self.in_results = read[-1].role == "tool"
        return len(read)

    def _write_system(self, message: Message, where: str) -> None:
        report_unspoken(
            message, where, self.lost, ("tool_calls", "tool_call_id", "name", "reasoning")
        )
        if message.role == "developer":
            self.lost.append(Lost(f"{where}.role", "written as the system instruction"))
        parts = write_parts(message.content, where, self.lost)
        if self.system is not None and not self.system["parts"]:
            self.lost.append(Lost(self.system_from, "says nothing; left out"))
            self.system = None
        if self.system is None:
            self.system, self.system_from = {**_turn(message), "parts": parts}, where
            return
        self.lost.append(Lost(where, "joined to the system instruction before it"))
        self.system = {**self.system, "parts": self.system["parts"] + parts}

    def _write_result(self, message: Message, where: str) -> None:
        report_unspoken(message, where, self.lost, ("tool_calls", "reasoning"))
        if message.role != "tool":
            self.lost.append(Lost(f"{where}.role", "written as a function response"))
        name = self._name(message)
        if name is None:
            name = _UNKNOWN_NAME
            self.lost.append(Lost(f"{where}.name", f"none is known; {name!r} written"))
        own = namespace_of(message.__pydantic_extra__, FORMAT)
        response = {"name": name, "response": write_response(message, own, where, self.lost)}
        if message.tool_call_id is not None:
            response["id"] = message.tool_call_id
        beside = namespace_of(namespace_of(own, "result"), "keys")
        part = {
            **namespace_of(namespace_of(own, "result"), "part"),
            "functionResponse": {**beside, **response},
        }
        if self.in_results and "turn" not in own:
            self.contents[-1]["parts"].append(part)
            return
        self.contents.append({**_turn(message), "role": "user", "parts": [part]})
        self.in_results = True

    def _expect(self, call: ToolCall) -> None:
        self.pending.append((call.id, call.name))
        if call.id is not None:
            self.called[call.id] = call.name

    def _name(self, message: Message) -> str | None:
        """The name of the tool that answers here; its call counts as answered."""
        for position, (identifier, name) in enumerate(self.pending):
            by_id = identifier is not None and message.tool_call_id is not None
            if message.tool_call_id == identifier if by_id else message.name in (None, name):
                del self.pending[position]
                return message.name if message.name is not None else name
        return message.name if message.name is not None else self.called.get(message.tool_call_id)

    def _write_spoken(self, message: Message, where: str) -> None:
        role = "model" if message.role == "assistant" else "user"
        if message.role not in ("user", "assistant"):
            self.lost.append(Lost(f"{where}.role", "written as a user message"))
        report_unspoken(message, where, self.lost, ("tool_call_id", "name"))
        parts = write_parts(message.content, where, self.lost)
        if role == "model":
            calls = self._calls(message, where)
            parts = [*_thinking(message, where, self.lost), *parts, *calls]
        else:
            report_unspoken(message, where, self.lost, ("tool_calls", "reasoning"))
        self.contents.append({**_turn(message), "role": role, "parts": parts})
        self.in_results = False

    def _calls(self, message: Message, where: str) -> list[dict[str, Any]]:
        parts = []
        for position, call in enumerate(message.tool_calls):
            at = f"{where}.tool_calls[{position}]"
            self._expect(call)
            report_extras(call.__pydantic_extra__, FORMAT, at, self.lost)
            own = namespace_of(call.__pydantic_extra__, FORMAT)
            function = {"name": call.name, "args": plain_arguments(call, at, self.lost)}
            if call.id is not None:
                function["id"] = call.id
            inner = {**namespace_of(own, "functionCall"), **function}
            parts.append({**own, "functionCall": inner})
        return parts


def _turn(message: Message) -> Mapping[str, Any]:
    return namespace_of(namespace_of(message.__pydantic_extra__, FORMAT), "turn")


def _thinking(message: Message, where: str, lost: list[Lost]) -> list[dict[str, Any]]:
    own = namespace_of(message.__pydantic_extra__, FORMAT)
    kept = own.get("thinking")
    kept = [item for item in kept if isinstance(item, Mapping)] if isinstance(kept, list) else []
    if len(kept) == 1 and "text" not in kept[0] and message.reasoning is not None:
        return [{**kept[0], "text": message.reasoning, "thought": True}]
    if kept and joined_reasoning(item.get("text") for item in kept) == message.reasoning:
        return [dict(item) for item in kept]
    if kept:
        lost.append(Lost(f"{where}.gemini", "the signatures of other thinking; left out"))
    return [] if message.reasoning is None else [{"text": message.reasoning, "thought": True}]


def _read_system(wire: object) -> list[Message]:
    where = "system_instruction"
    data = mapping_at(wire, where)
    parts = sequence_at(data.get("parts"), f"{where}.parts")
    blocks = [
        read_block(camel_part(part, f"{where}.parts[{position}]"), f"{where}.parts[{position}]")
        for position, part in enumerate(parts)
    ]
    message = validated(Message, {"role": "system", "content": _said(blocks)}, where)
    keys = {key: value for key, value in data.items() if key != "parts"}
    if keys:
        message = keeping(message, FORMAT, {"turn": storable(keys)})
    writer = _Writer([message])
    writer.write(0)
    return _spelled(data, writer.system, [message])


def _read_content(wire: Mapping[str, Any], where: str, *, after_tool: bool) -> list[Message]:
    """The messages of one content. `after_tool`: the content before it ended with a response."""
    role = wire.get("role")
    if role not in (None, "user", "model", "function"):
        raise WireError(
            f"{role!r} is not a role of Gemini's: 'user' and 'model' are",
            where=f"{where}.role",
            hint="the system prompt is given as `system_instruction=`",
        )
    parts = [
        camel_part(part, f"{where}.parts[{position}]")
        for position, part in enumerate(sequence_at(wire.get("parts"), f"{where}.parts"))
    ]
    read = _read_model if role == "model" else _read_user
    messages = read(parts, f"{where}.parts")
    keys = {key: value for key, value in wire.items() if key not in ("role", "parts")}
    if keys or (after_tool and messages[0].role == "tool"):
        messages[0] = keeping(messages[0], FORMAT, {"turn": storable(keys)})
    writer = _Writer(messages)
    for index in range(len(messages)):
        writer.write(index)
    usual = writer.contents[0] if len(writer.contents) == 1 else None
    return _spelled(wire, usual, messages)


def _spelled(
    wire: Mapping[str, Any], usual: dict[str, Any] | None, messages: list[Message]
) -> list[Message]:
    """Keep the content as it came where the usual writing of its messages would differ."""
    if same(usual, dict(wire)):
        return messages
    stored = storable(dict(wire))
    if same(usual, stored):
        return messages
    spelling = {"format": FORMAT, "message": stored}
    return [messages[0].model_copy(update={"spelling": spelling}), *messages[1:]]


def _said(blocks: list[Any]) -> str | tuple[Any, ...] | None:
    """Blocks as content: a lone plain text is what a string is written as."""
    if len(blocks) == 1 and isinstance(blocks[0], TextBlock) and not blocks[0].__pydantic_extra__:
        return blocks[0].text
    return tuple(blocks) or None


def _read_model(parts: list[dict[str, Any]], where: str) -> list[Message]:
    spoken, calls = [], []
    thinking: list[dict[str, Any]] = []
    for position, part in enumerate(parts):
        at = f"{where}[{position}]"
        if "functionCall" in part:
            calls.append(_read_call(part, at))
        elif part.get("thought") is True and isinstance(part.get("text"), str):
            thinking.append(storable(part))
        else:
            spoken.append(read_block(part, at))
    data: dict[str, Any] = {"role": "assistant", "content": _said(spoken)}
    data["tool_calls"] = tuple(calls)
    if thinking:
        data["reasoning"] = joined_reasoning(part["text"] for part in thinking)
        if len(thinking) == 1:
            rest = {key: thinking[0][key] for key in thinking[0] if key not in ("text", "thought")}
            thinking = [rest] if rest else []
        if thinking:
            data[FORMAT] = {"thinking": thinking}
    return [validated(Message, data, where)]


def _read_call(part: dict[str, Any], where: str) -> ToolCall:
    call = mapping_at(part["functionCall"], f"{where}.functionCall")
    arguments = call.get("args")
    data: dict[str, Any] = {
        "id": optional_text_at(call.get("id"), f"{where}.functionCall.id"),
        "name": text_at(call.get("name"), f"{where}.functionCall.name"),
        "arguments": storable(
            dict(mapping_at({} if arguments is None else arguments, f"{where}.functionCall.args"))
        ),
    }
    own = {key: value for key, value in part.items() if key != "functionCall"}
    inner = {key: value for key, value in call.items() if key not in ("id", "name", "args")}
    if inner:
        own["functionCall"] = inner
    if own:
        data[FORMAT] = storable(own)
    return validated(ToolCall, data, where)


def _read_user(parts: list[dict[str, Any]], where: str) -> list[Message]:
    messages: list[Message] = []
    spoken: list[Any] = []
    for position, part in enumerate(parts):
        at = f"{where}[{position}]"
        if "functionResponse" not in part:
            spoken.append(read_block(part, at))
            continue
        if spoken:
            messages.append(validated(Message, {"role": "user", "content": _said(spoken)}, where))
            spoken = []
        messages.append(read_result(part, at))
    if spoken or not messages:
        messages.append(validated(Message, {"role": "user", "content": _said(spoken)}, where))
    return messages
