"""ShareGPT conversations, to and from: turns of `human`, `gpt`, `function_call`, `observation`.

A call is the JSON of its name and arguments, several calls at once a list of them. Trainers learn
from every `gpt` and `function_call` turn.
"""

import json
from collections.abc import Mapping
from typing import Any

from assay.errors import WireError

from ..message import Message, ToolCall
from ..sample import Sample, Status
from ..trajectory import Trajectory
from .agent_turns import in_words, turns_of
from .conversion import (
    Converted,
    Lost,
    mapping_at,
    plain_arguments,
    report_extras,
    report_homeless,
    sequence_at,
    text_at,
    validated,
)
from .tool_schemas import read_tools, report_untold, tools_json, tools_of

_FROM = {"system": "system", "developer": "system", "user": "human", "tool": "observation"}
_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "observation": "tool",
    "tool": "tool",
}


def to_sharegpt(sample: Sample) -> Converted[dict[str, Any]]:
    """A row with `conversations`, and `tools` as JSON text."""
    lost: list[Lost] = []
    turns = turns_of(sample)
    if turns.foreign:
        raise WireError(
            "assistant turns of the prompt would be trained on", where=f"sample {sample.id}"
        )
    turns.report_cut(lost)
    tools = tools_of(sample)
    report_untold(turns.made, tools, lost)
    written: list[dict[str, Any]] = []
    for n, message in enumerate(in_words([*turns.context, *turns.made])):
        written += _turns(message, f"messages[{n}]", lost)
    return Converted({"conversations": written, "tools": tools_json(tools)}, tuple(lost))


def from_sharegpt(row: Mapping[str, Any]) -> Sample:
    """The sample of a row. Raises `WireError` for what is no such conversation."""
    data = mapping_at(row, "row")
    messages: list[Message] = []
    for n, turn in enumerate(sequence_at(data.get("conversations"), "conversations")):
        _read(mapping_at(turn, f"conversations[{n}]"), f"conversations[{n}]", messages)
    start = next((n for n, each in enumerate(messages) if each.role == "assistant"), len(messages))
    fields: dict[str, Any] = {"id": str(data.get("id") or ""), "prompt": messages[:start]}
    if start < len(messages):
        fields["trajectory"] = Trajectory(messages=messages)
        fields["status"] = Status.COMPLETED
    if data.get("tools"):
        fields["metadata"] = {"tools": read_tools(data["tools"], "tools")}
    return validated(Sample, fields, "row")


def _turns(message: Message, where: str, lost: list[Lost]) -> list[dict[str, Any]]:
    _report(message, where, lost)
    if message.role != "assistant":
        if message.role not in _FROM:
            raise WireError(f"there is no turn of {message.role!r}", where=where)
        return [{"from": _FROM[message.role], "value": message.text}]
    calls = [
        {"name": call.name, "arguments": plain_arguments(call, f"{where}.tool_calls[{n}]", lost)}
        for n, call in enumerate(message.tool_calls)
    ]
    said = [{"from": "gpt", "value": message.text}] if message.text or not calls else []
    if not calls:
        return said
    value = json.dumps(calls[0] if len(calls) == 1 else calls, ensure_ascii=False)
    return [*said, {"from": "function_call", "value": value}]


def _report(message: Message, where: str, lost: list[Lost]) -> None:
    if message.reasoning is not None:
        lost.append(Lost(f"{where}.reasoning", "no place for `reasoning`; left out"))
    if message.role == "developer":
        lost.append(Lost(f"{where}.role", "`developer` is written as `system`"))
    report_homeless(message, where, lost)
    report_extras(message.__pydantic_extra__, "", where, lost)


def _read(turn: Mapping[str, Any], where: str, messages: list[Message]) -> None:
    """Add a turn. A call belongs to the words before it, an answer to the first open call."""
    speaker = turn.get("from", turn.get("role"))
    value = text_at(turn.get("value", turn.get("content")), f"{where}.value")
    if speaker == "function_call":
        calls = _read_calls(value, where, len(messages))
        if messages and messages[-1].role == "assistant" and not messages[-1].tool_calls:
            messages[-1] = messages[-1].model_copy(update={"tool_calls": calls})
        else:
            messages.append(Message(role="assistant", tool_calls=calls))
        return
    if speaker not in _ROLES:
        raise WireError(f"{speaker!r} is none of {', '.join(_ROLES)}", where=f"{where}.from")
    role = _ROLES[speaker]
    fields: dict[str, Any] = {"role": role, "content": value}
    if role == "tool" and (call := _unanswered(messages)) is not None:
        fields |= {"tool_call_id": call.id, "name": call.name}
    messages.append(validated(Message, fields, where))


def _read_calls(value: str, where: str, place: int) -> tuple[ToolCall, ...]:
    try:
        given = json.loads(value)
    except (ValueError, RecursionError):
        raise WireError("is not the JSON of a call", where=f"{where}.value") from None
    listed = given if isinstance(given, list) else [given]
    return tuple(
        validated(ToolCall, {"id": f"call_{place}_{n}", **mapping_at(each, where)}, where)
        for n, each in enumerate(listed)
    )


def _unanswered(messages: list[Message]) -> ToolCall | None:
    for answered, message in enumerate(reversed(messages)):
        if message.role != "tool":
            calls = message.tool_calls
            return calls[answered] if answered < len(calls) else None
    return None
