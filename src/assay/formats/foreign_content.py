"""Builds messages from foreign parts: content blocks, tool calls, outcomes and notes."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import to_json

from assay.errors import WireError
from assay.types import ContentBlock, DataBlock, Message, TextBlock, ToolCall

from .conversion import Dropped, join_reasoning, validate_wire
from .media import build_data_url


def build_text(text: str) -> TextBlock:
    """Return a block of text."""
    return TextBlock(type="text", text=text)


def build_media(kind: str, fields: Mapping[str, Any]) -> DataBlock:
    """Return a block that is not text."""
    return validate_wire(DataBlock, {**fields, "type": kind}, kind)


def to_standard_base64(data: Any) -> Any:
    """Return base64 text in the alphabet of `data:` URLs; pydantic writes the one for URLs."""
    return data.replace("-", "+").replace("_", "/") if isinstance(data, str) else data


def build_image(url: object, media_type: object = None, data: object = None) -> DataBlock | None:
    """Return the image at a URL or of base64 data; None when neither is valid."""
    found = url if isinstance(url, str) and url else build_data_url(media_type, data)
    return None if found is None else build_media("image_url", {"image_url": {"url": found}})


def build_file(media_type: object, data: object) -> DataBlock | None:
    """Return base64 data as an image or a file; None when the data is invalid."""
    if isinstance(media_type, str) and media_type.startswith("image/"):
        return build_image(None, media_type, data)
    url = build_data_url(media_type, data)
    return None if url is None else build_media("file", {"file": {"file_data": url}})


def write_answer_text(value: object) -> str:
    """Return a string as it is, and any other plain value as JSON."""
    return value if isinstance(value, str) else to_json(value).decode()


def build_tool_call(call_id: object, name: object, arguments: object, **extra: Any) -> ToolCall:
    """Return a call whose arguments are an object, or the text that the model wrote."""
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping | str):
        arguments = write_answer_text(arguments)
    fields = {"id": call_id if isinstance(call_id, str) else None, "name": name}
    return validate_wire(ToolCall, {**fields, "arguments": arguments, **extra}, "tool call")


def describe_outcome(*, failed: bool) -> dict[str, Any]:
    """Return the `details` of a tool message for a call that failed or succeeded."""
    return {"status": "error" if failed else "completed", "failed": failed, "is_error": failed}


def read_tool_outcome(message: Message) -> tuple[bool | None, int | None]:
    """Return whether a tool's message records a failure, and its exit code; None if unknown."""
    if message.role not in ("tool", "function") or not message.details:
        return None, None
    details = message.details
    # Session sources record failures under different keys.
    marks = [details[key] for key in ("failed", "is_error") if isinstance(details.get(key), bool)]
    if isinstance(status := details.get("status"), str):
        marks.append(status == "error")
    code = details.get("exit_code")
    return any(marks) if marks else None, code if type(code) is int else None


def build_message(
    role: str, blocks: list[ContentBlock], *, reasoning: Iterable[str] = (), **fields: Any
) -> Message:
    """Return a message of content blocks; fields that are None are left out.

    The content of a single text is a string.
    """
    data: dict[str, Any] = {"role": role, "content": tuple(blocks) or None}
    if len(blocks) == 1 and isinstance(blocks[0], TextBlock) and not blocks[0].__pydantic_extra__:
        data["content"] = blocks[0].text
    thought = join_reasoning(reasoning)
    if thought is not None:
        data["reasoning"] = thought
    data |= {key: value for key, value in fields.items() if value is not None and value != {}}
    return validate_wire(Message, data, "message")


def drop_fields(
    value: Mapping[str, Any], known: Iterable[str], where: str, dropped: list[Dropped]
) -> None:
    """Report the fields of a foreign value that are set and not `known`."""
    known = frozenset(known)
    for key, inner in value.items():
        if key not in known and inner not in (None, [], {}, ""):
            dropped.append(Dropped(f"{where}.{key}", f"no place for `{key}`; left out"))


def drop_unreadable(error: WireError, where: str, dropped: list[Dropped]) -> None:
    """Report a message or part that cannot be read."""
    # Readers of single messages name the field after the index: `messages[0].tool_calls[1].id`.
    field = (error.where or "").partition("]")[2]
    dropped.append(Dropped(where + field, f"unreadable: {error.message}; left out"))
