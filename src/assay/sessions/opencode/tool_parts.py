"""Convert a stored tool part into a call and the message that answers it."""

from dataclasses import dataclass
from typing import Any

from assay.types import Message, ToolCall

from ..foreign_values import dict_or_empty, format_iso_time, list_or_empty, parse_epoch_ms

INTERRUPTED_RESULT = "[Tool execution was interrupted]"
"""The text that OpenCode sends to the model for a call without a result."""


@dataclass(frozen=True)
class ToolUse:
    """One tool call of the model, and its answer."""

    call: ToolCall
    answer: Message


def read_tool_part(part: dict[str, Any], *, call_id: str, agent_message: str | None) -> ToolUse:
    """Read the call in a part. Values of a wrong type are kept, as text where needed.

    `call_id` is unique in the session, which the id in the part need not be.
    """
    state = dict_or_empty(part.get("state"))
    call, text, details = _read_opencode_call(part, state, call_id)
    details["message_id"] = agent_message
    # Without a second copy of the output.
    metadata = {
        key: value
        for key, value in dict_or_empty(state.get("metadata")).items()
        if not (key == "output" and value == text)
    }
    exit_code = metadata.get("exit")
    details["failed"] = "raw_tool" in details or details["status"] != "completed"
    details["is_error"] = details["failed"]
    if type(exit_code) is int:
        details["exit_code"] = exit_code
        details["is_error"] |= exit_code != 0
    details |= _read_timing(state) | _collect_extra_state(state, part, metadata)
    answer = Message(
        role="tool",
        name=call.name,
        tool_call_id=call_id,
        content=text,
        timestamp=details.get("ended") or details.get("started"),
        details=details,
    )
    return ToolUse(call, answer)


def _read_opencode_call(
    part: dict[str, Any], state: dict[str, Any], call_id: str
) -> tuple[ToolCall, str, dict[str, Any]]:
    """Return the call, the output sent to the model, and the first details of both."""
    status = str(state.get("status", "unknown"))
    given = state.get("input")
    arguments = dict_or_empty(given)
    details: dict[str, Any] = {
        "part_id": part["id"] if isinstance(part.get("id"), str) else None,
        "call_id": part.get("callID"),
        "status": status,
    }
    name = str(part.get("tool", "unknown"))
    if name == "invalid" and isinstance(arguments.get("tool"), str):
        # For an unknown tool or arguments that are not JSON, OpenCode stores a successful call of
        # a tool named `invalid`.
        details |= {"raw_tool": "invalid", "raw_input": arguments}
        call = ToolCall(id=call_id, name=arguments["tool"])
        return call, str(arguments.get("error", "")), details
    if given is not None and not isinstance(given, dict):
        details["raw_input"] = given
    output = state.get("error") if status == "error" else state.get("output")
    text = output if isinstance(output, str) else "" if output is None else str(output)
    if status in ("pending", "running"):
        text = INTERRUPTED_RESULT
    return ToolCall(id=call_id, name=name, arguments=arguments), text, details


def _read_timing(state: dict[str, Any]) -> dict[str, Any]:
    time = dict_or_empty(state.get("time"))
    start, end = parse_epoch_ms(time.get("start")), parse_epoch_ms(time.get("end"))
    found: dict[str, Any] = {}
    if start is not None:
        found["started"] = format_iso_time(start)
    if end is not None:
        found["ended"] = format_iso_time(end)
    if start is not None and end is not None:
        found["duration_s"] = (end - start) / 1000
    if (compacted := parse_epoch_ms(time.get("compacted"))) is not None:
        # Later model calls did not contain this output any more.
        found["compacted"] = format_iso_time(compacted)
    return found


def _collect_extra_state(
    state: dict[str, Any], part: dict[str, Any], metadata: dict[str, Any]
) -> dict[str, Any]:
    """Return all other stored values."""
    known = ("status", "input", "output", "error", "metadata", "time")
    rest = {key: value for key, value in state.items() if key not in known}
    if metadata:
        rest["metadata"] = metadata
    named = ("id", "type", "tool", "callID", "state", "sessionID", "messageID")
    beside = {key: value for key, value in part.items() if key not in named}
    if beside:
        rest["part"] = beside
    if child := find_child_session(metadata):
        rest["subagent"] = child
    return rest


def find_child_session(metadata: dict[str, Any]) -> str | None:
    """Return the session id of the subagent that a call started."""
    if isinstance(metadata.get("sessionId"), str):
        return str(metadata["sessionId"])
    # Before 1.0 only the parts of the subagent's own calls contain the id.
    for each in list_or_empty(metadata.get("summary")):
        if isinstance(each, dict) and isinstance(each.get("sessionID"), str):
            return str(each["sessionID"])
    return None
