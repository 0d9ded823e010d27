"""Convert messages of OpenCode 0.1 and 0.2, which embed their parts, to the later layout."""

from typing import Any

from assay.errors import BadRow

from ..foreign_values import dict_or_empty
from .archive import StoredMessage

# The recorded result of a call to a tool that does not exist.
_ABORTED_REQUEST = "request was aborted"


def is_embedded(message: dict[str, Any]) -> bool:
    """Whether a message has the oldest layout."""
    return isinstance(message.get("parts"), list) and isinstance(message.get("metadata"), dict)


def extract_parts(message: dict[str, Any], *, where: str) -> StoredMessage:
    """Convert a message to the later layout. Unknown keys are kept."""
    metadata: dict[str, Any] = message["metadata"]
    info = {key: value for key, value in message.items() if key not in ("parts", "metadata")}
    tools = dict_or_empty(metadata.get("tool"))
    info |= {key: value for key, value in metadata.items() if key not in ("tool", "assistant")}
    info |= dict_or_empty(metadata.get("assistant"))
    parts: list[dict[str, Any]] = []
    pieces: list[str] = []
    for number, part in enumerate(message["parts"]):
        if not isinstance(part, dict):
            raise BadRow(f"part {number} is not an object", where=where)
        own = {"id": f"{info['id']}:{number:05}", **part}
        call = part.get("toolInvocation")
        if part.get("type") == "tool-invocation" and isinstance(call, dict):
            details = tools.get(str(call.get("toolCallId")))
            own = {
                "id": own["id"],
                "type": "tool",
                "callID": call.get("toolCallId"),
                "tool": call.get("toolName"),
                "state": _build_tool_state(call, details if isinstance(details, dict) else None),
            }
        if parts and own.get("type") == parts[-1].get("type") == "text":
            # Texts were stored in the chunks in which they were streamed.
            pieces.append(str(own.get("text", "")))
        else:
            _join_pieces(parts, pieces)
            pieces = [str(own.get("text", ""))]
            parts.append(own)
    _join_pieces(parts, pieces)
    return StoredMessage(info, parts)


def _join_pieces(parts: list[dict[str, Any]], pieces: list[str]) -> None:
    """Join the chunks of a text in the last part."""
    if len(pieces) > 1:
        parts[-1]["text"] = "".join(pieces)


def _build_tool_state(call: dict[str, Any], details: dict[str, Any] | None) -> dict[str, Any]:
    # Only `details` records that a call failed.
    state: dict[str, Any] = {"input": call.get("args") or {}}
    if details is not None:
        state["metadata"] = {k: v for k, v in details.items() if k not in ("title", "time")}
        state |= {key: details[key] for key in ("title", "time") if key in details}
    result = call.get("result")
    if call.get("state") != "result":
        state["status"] = "running" if call.get("state") == "call" else "pending"
    elif (details or {}).get("error") is True or (details is None and result == _ABORTED_REQUEST):
        state |= {"status": "error", "error": str(result)}
    else:
        state |= {"status": "completed", "output": result}
    return state
