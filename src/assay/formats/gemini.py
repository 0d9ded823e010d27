"""Converts Gemini contents: parts, the roles `user` and `model`, a separate instruction.

Fields that only Gemini has are kept in an extra named `gemini`: on a block or a tool call its other
keys (`thoughtSignature`), on a message `thinking`, `result` (the other fields of a function
response) and `turn` (the other keys of the content that begins with it).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.errors import WireError
from assay.types import Message, ToolCall

from .conversion import (
    Converted,
    Dropped,
    build_depth_error,
    check_iterable,
    expect_mapping,
    expect_optional_text,
    expect_text,
    extend_namespace,
    get_mappings,
    get_namespace,
    join_reasoning,
    make_storable,
    read_items,
    refuse_deep_nesting,
    report_extras,
    report_unsupported_by_role,
    report_unused,
    validate_wire,
    write_plain_arguments,
)
from .gemini_parts import (
    GEMINI_FORMAT,
    read_function_response,
    read_gemini_part,
    to_camel_part,
    write_function_response,
    write_gemini_parts,
)
from .turn_writer import TurnWriter, join_content, keep_original, read_user_turn

# The extra of this format that a message of each role may have, besides `turn`.
_GEMINI_EXTRAS_BY_ROLE = {"assistant": "thinking", "tool": "result", "function": "result"}
# A function response must have a name, also where neither message nor call has one.
_UNKNOWN_TOOL_NAME = "unknown"


@dataclass(frozen=True)
class GeminiChat:
    """A conversation as the two arguments of Gemini's API."""

    contents: list[dict[str, Any]]
    system_instruction: dict[str, Any] | None


def to_gemini(messages: Iterable[Message]) -> Converted[GeminiChat]:
    """Write `messages` as contents and a system instruction, in camelCase.

    Consecutive tool messages become one content, as parallel calls require. Text that a tool
    returned is written as `{"output": text}`, under the name of the tool whose call it answers.
    """
    writer = _GeminiWriter.write_all(messages)
    return Converted(GeminiChat(writer.turns, writer.system), tuple(writer.dropped))


def from_gemini(
    contents: Iterable[Mapping[str, Any]],
    *,
    system_instruction: Mapping[str, Any] | str | None = None,
) -> list[Message]:
    """Read Gemini contents, in camelCase or snake_case.

    Each function response becomes a tool message. An instruction that is a string is written back
    as an object.
    """
    read: list[Message] = []
    if isinstance(system_instruction, str):
        system_instruction = {"parts": [{"text": system_instruction}]}
    if system_instruction is not None:
        with refuse_deep_nesting("system_instruction"):
            read.extend(_read_system_instruction(system_instruction))
    after_tool = False
    for index, wire in enumerate(check_iterable(contents, "contents")):
        where = f"contents[{index}]"
        try:
            read.extend(
                _read_gemini_content(expect_mapping(wire, where), where, after_tool=after_tool)
            )
        except RecursionError as error:
            raise build_depth_error(where) from error
        after_tool = read[-1].role == "tool"
    return read


@dataclass
class _GeminiWriter(TurnWriter):
    format_name = GEMINI_FORMAT

    system: dict[str, Any] | None = None
    system_from: str = ""
    in_results: bool = False
    """Whether the last content contains function responses that another one may join."""

    def read_original(self, wire: Mapping[str, Any], message: Message, where: str) -> list[Message]:
        if message.role == "system" and not self.turns and self.system is None:
            return _read_system_instruction(wire)
        after_tool = "turn" in get_namespace(message.__pydantic_extra__, GEMINI_FORMAT)
        return _read_gemini_content(wire, where, after_tool=after_tool)

    def add_original(self, wire: Mapping[str, Any], read: list[Message], where: str) -> None:
        if read[0].role == "system":
            self.system, self.system_from = dict(wire), where
            return
        self.turns.append({**wire, "parts": list(wire["parts"])})
        for message in read:
            for call in message.tool_calls:
                self.track_call(call.id, call.name)
            if message.role == "tool":
                self._resolve_tool_name(message)
        self.in_results = read[-1].role == "tool"

    def write_message(self, message: Message, index: int, where: str) -> None:
        used = ("turn", _GEMINI_EXTRAS_BY_ROLE.get(message.role, "turn"))
        report_unused(message.__pydantic_extra__, GEMINI_FORMAT, used, where, self.dropped)
        if message.role in ("system", "developer") and not self.turns:
            self._write_system(message, where)
        elif message.role in ("tool", "function"):
            self._write_result(message, where)
        else:
            self._write_content(message, where)

    def _write_system(self, message: Message, where: str) -> None:
        report_unsupported_by_role(
            message, where, self.dropped, ("tool_calls", "tool_call_id", "name", "reasoning")
        )
        if message.role == "developer":
            self.dropped.append(Dropped(f"{where}.role", "written as the system instruction"))
        parts = write_gemini_parts(message.content, where, self.dropped)
        if self.system is not None and not self.system["parts"]:
            self.dropped.append(Dropped(self.system_from, "an empty message; left out"))
            self.system = None
        if self.system is None:
            self.system, self.system_from = {**_get_turn_keys(message), "parts": parts}, where
            return
        self.dropped.append(Dropped(where, "joined to the system instruction before it"))
        self.system = {**self.system, "parts": self.system["parts"] + parts}

    def _write_result(self, message: Message, where: str) -> None:
        report_unsupported_by_role(message, where, self.dropped, ("tool_calls", "reasoning"))
        if message.role != "tool":
            self.dropped.append(Dropped(f"{where}.role", "written as a function response"))
        name = self._resolve_tool_name(message)
        if name is None:
            name = _UNKNOWN_TOOL_NAME
            self.dropped.append(Dropped(f"{where}.name", f"none is known; {name!r} written"))
        own = get_namespace(message.__pydantic_extra__, GEMINI_FORMAT)
        response = {
            "name": name,
            "response": write_function_response(message, own, where, self.dropped),
        }
        if message.tool_call_id is not None:
            response["id"] = message.tool_call_id
        beside = get_namespace(get_namespace(own, "result"), "keys")
        part = {
            **get_namespace(get_namespace(own, "result"), "part"),
            "functionResponse": {**beside, **response},
        }
        if self.in_results and "turn" not in own:
            self.turns[-1]["parts"].append(part)
            return
        self.turns.append({**_get_turn_keys(message), "role": "user", "parts": [part]})
        self.in_results = True

    def _resolve_tool_name(self, message: Message) -> str | None:
        # A function response must have the name of its tool. The call then counts as answered.
        call = self.pending.take_named(message.tool_call_id, message.name)
        name = self.called.get(message.tool_call_id) if call is None else call[1]
        return message.name if message.name is not None else name

    def _write_content(self, message: Message, where: str) -> None:
        role = "model" if message.role == "assistant" else "user"
        if message.role not in ("user", "assistant"):
            self.dropped.append(Dropped(f"{where}.role", "written as a user message"))
        report_unsupported_by_role(message, where, self.dropped, ("tool_call_id", "name"))
        parts = write_gemini_parts(message.content, where, self.dropped)
        if role == "model":
            calls = self._write_calls(message, where)
            parts = [*_write_thinking_parts(message, where, self.dropped), *parts, *calls]
        else:
            report_unsupported_by_role(message, where, self.dropped, ("tool_calls", "reasoning"))
        self.turns.append({**_get_turn_keys(message), "role": role, "parts": parts})
        self.in_results = False

    def _write_calls(self, message: Message, where: str) -> list[dict[str, Any]]:
        parts = []
        for position, call in enumerate(message.tool_calls):
            at = f"{where}.tool_calls[{position}]"
            self.track_call(call.id, call.name)
            report_extras(call.__pydantic_extra__, GEMINI_FORMAT, at, self.dropped)
            own = get_namespace(call.__pydantic_extra__, GEMINI_FORMAT)
            function = {"name": call.name, "args": write_plain_arguments(call, at, self.dropped)}
            if call.id is not None:
                function["id"] = call.id
            inner = {**get_namespace(own, "functionCall"), **function}
            parts.append({**own, "functionCall": inner})
        return parts


def _get_turn_keys(message: Message) -> Mapping[str, Any]:
    return get_namespace(get_namespace(message.__pydantic_extra__, GEMINI_FORMAT), "turn")


def _write_thinking_parts(
    message: Message, where: str, dropped: list[Dropped]
) -> list[dict[str, Any]]:
    own = get_namespace(message.__pydantic_extra__, GEMINI_FORMAT)
    kept = get_mappings(own.get("thinking"))
    if len(kept) == 1 and "text" not in kept[0] and message.reasoning is not None:
        return [{**kept[0], "text": message.reasoning, "thought": True}]
    if kept and join_reasoning(item.get("text") for item in kept) == message.reasoning:
        return [dict(item) for item in kept]
    if kept:
        dropped.append(Dropped(f"{where}.gemini", "the signatures of other thinking; left out"))
    return [] if message.reasoning is None else [{"text": message.reasoning, "thought": True}]


def _read_system_instruction(wire: object) -> list[Message]:
    where = "system_instruction"
    data = expect_mapping(wire, where)
    blocks = read_items(
        data.get("parts"),
        f"{where}.parts",
        lambda part, at: read_gemini_part(to_camel_part(part, at), at),
    )
    message = validate_wire(Message, {"role": "system", "content": join_content(blocks)}, where)
    keys = {key: value for key, value in data.items() if key != "parts"}
    if keys:
        message = extend_namespace(message, GEMINI_FORMAT, {"turn": make_storable(keys)})
    written = [_GeminiWriter.write_again([message]).system]
    return keep_original(data, written, [message], GEMINI_FORMAT)


def _read_gemini_content(wire: Mapping[str, Any], where: str, *, after_tool: bool) -> list[Message]:
    # `after_tool`: the previous content ended with a response, which the writer would join.
    role = wire.get("role")
    if role not in (None, "user", "model", "function"):
        raise WireError(
            f"the role {role!r} is not 'user' or 'model'",
            where=f"{where}.role",
            hint="pass the system prompt as `system_instruction=`",
        )
    parts = read_items(wire.get("parts"), f"{where}.parts", to_camel_part)
    at = f"{where}.parts"
    if role == "model":
        messages = [_read_model_parts(parts, at)]
    else:
        messages = read_user_turn(
            parts,
            at,
            is_result=lambda part: "functionResponse" in part,
            read_result=read_function_response,
            read_part=read_gemini_part,
        )
    keys = {key: value for key, value in wire.items() if key not in ("role", "parts")}
    if keys or (after_tool and messages[0].role == "tool"):
        messages[0] = extend_namespace(messages[0], GEMINI_FORMAT, {"turn": make_storable(keys)})
    written = _GeminiWriter.write_again(messages).turns
    return keep_original(wire, written, messages, GEMINI_FORMAT)


def _read_model_parts(parts: list[dict[str, Any]], where: str) -> Message:
    spoken, calls = [], []
    thinking: list[dict[str, Any]] = []
    for position, part in enumerate(parts):
        at = f"{where}[{position}]"
        if "functionCall" in part:
            calls.append(_read_function_call(part, at))
        elif part.get("thought") is True and isinstance(part.get("text"), str):
            thinking.append(make_storable(part))
        else:
            spoken.append(read_gemini_part(part, at))
    data: dict[str, Any] = {"role": "assistant", "content": join_content(spoken)}
    data["tool_calls"] = tuple(calls)
    if thinking:
        data["reasoning"] = join_reasoning(part["text"] for part in thinking)
        if len(thinking) == 1:
            rest = {key: thinking[0][key] for key in thinking[0] if key not in ("text", "thought")}
            thinking = [rest] if rest else []
        if thinking:
            data[GEMINI_FORMAT] = {"thinking": thinking}
    return validate_wire(Message, data, where)


def _read_function_call(part: dict[str, Any], where: str) -> ToolCall:
    call = expect_mapping(part["functionCall"], f"{where}.functionCall")
    arguments = call.get("args")
    data: dict[str, Any] = {
        "id": expect_optional_text(call.get("id"), f"{where}.functionCall.id"),
        "name": expect_text(call.get("name"), f"{where}.functionCall.name"),
        "arguments": make_storable(
            dict(
                expect_mapping({} if arguments is None else arguments, f"{where}.functionCall.args")
            )
        ),
    }
    own = {key: value for key, value in part.items() if key != "functionCall"}
    inner = {key: value for key, value in call.items() if key not in ("id", "name", "args")}
    if inner:
        own["functionCall"] = inner
    if own:
        data[GEMINI_FORMAT] = make_storable(own)
    return validate_wire(ToolCall, data, where)
