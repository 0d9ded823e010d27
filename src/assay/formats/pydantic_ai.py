"""Reads pydantic-ai messages: requests and responses made of parts."""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import WireError
from assay.types import ContentBlock, Message, ToolCall, Usage

from .conversion import Dropped
from .foreign_content import (
    build_file,
    build_image,
    build_media,
    build_message,
    build_text,
    build_tool_call,
    describe_outcome,
    drop_fields,
    drop_unreadable,
    to_standard_base64,
    write_answer_text,
)
from .token_usage import add_usage, read_token_usage

_PART_FIELDS = frozenset(
    {
        *("part_kind", "kind", "content", "timestamp", "tool_name", "args", "tool_call_id", "id"),
        *("outcome", "scope", "provider_name", "speaker", "transcript", "audio"),
    }
)
_MESSAGE_FIELDS = frozenset(
    {
        *("parts", "kind", "timestamp", "instructions", "usage", "model_name", "model_id", "state"),
        *("finish_reason", "provider_name", "provider_url", "provider_response_id"),
        # They name a run or repeat other fields.
        *("run_id", "conversation_id", "canonical_system", "vendor_id", "vendor_details"),
    }
)
_CALL_PARTS = ("tool-call", "builtin-tool-call")
_RETURN_PARTS = ("tool-return", "builtin-tool-return")
_FAILED_OUTCOMES = ("failed", "denied", "interrupted", "retried")
_URL_KINDS = {
    "audio-url": "audio_url",
    "video-url": "video_url",
    "document-url": "document_url",
}
_FILE_KINDS = frozenset({"binary", "image-url", "uploaded-file", "text-content", *_URL_KINDS})


def is_pydantic_ai_message(value: Mapping[str, Any]) -> bool:
    """Whether `value` is a request or a response."""
    return value.get("kind") in ("request", "response") and isinstance(value.get("parts"), list)


def read_pydantic_ai_messages(
    values: Sequence[object], dropped: list[Dropped]
) -> tuple[list[Message], Usage | None]:
    """Read requests and responses, and add up the usage of those that report it.

    Instructions become a system message where they change.
    """
    reader = _PydanticAiReader(dropped)
    for index, value in enumerate(values):
        where = f"messages[{index}]"
        if not isinstance(value, Mapping) or not is_pydantic_ai_message(value):
            dropped.append(Dropped(where, "not a message of pydantic-ai; left out"))
            continue
        drop_fields(value, _MESSAGE_FIELDS, where, dropped)
        reader.take(value, where)
    return reader.messages, reader.usage


class _PydanticAiReader:
    def __init__(self, dropped: list[Dropped]) -> None:
        self.messages: list[Message] = []
        self.usage: Usage | None = None
        self._dropped = dropped
        self._instructions: str | None = None

    def take(self, value: Mapping[str, Any], where: str) -> None:
        """Read the next message."""
        parts = []
        for position, part in enumerate(value["parts"]):
            at = f"{where}.parts[{position}]"
            if isinstance(part, Mapping) and isinstance(part.get("part_kind"), str):
                drop_fields(part, _PART_FIELDS, at, self._dropped)
                parts.append((part, at))
            else:
                self._dropped.append(Dropped(at, "not a part; left out"))
        if value["kind"] == "response":
            self.usage = add_usage(self.usage, read_token_usage(value.get("usage")))
            self._take_response(value, parts, where)
            return
        instructions = value.get("instructions")
        if isinstance(instructions, str) and instructions != self._instructions:
            self._instructions = instructions
            self.messages.append(build_message("system", [build_text(instructions)]))
        for part, at in parts:
            try:
                self._take_request_part(part, at)
            except WireError as error:
                drop_unreadable(error, at, self._dropped)

    def _take_request_part(self, part: Mapping[str, Any], where: str) -> None:
        kind = part["part_kind"]
        stamp = _to_optional_text(part.get("timestamp"))
        if kind in _RETURN_PARTS or (kind == "retry-prompt" and part.get("tool_name")):
            self.messages.append(self._build_return(part, where))
        elif kind == "system-prompt":
            self.messages.append(
                build_message("system", self._read_content(part, where), timestamp=stamp)
            )
        elif kind in ("user-prompt", "retry-prompt", "retry-feedback", "speech"):
            self.messages.append(
                build_message("user", self._read_content(part, where), timestamp=stamp)
            )
        else:
            self._dropped.append(Dropped(where, f"a part of kind {kind!r}; left out"))

    def _take_response(
        self, value: Mapping[str, Any], parts: list[tuple[Mapping[str, Any], str]], where: str
    ) -> None:
        said: list[ContentBlock] = []
        thought: list[str] = []
        calls: list[ToolCall] = []
        returns: list[Message] = []
        for part, at in parts:
            kind = part["part_kind"]
            try:
                if kind in _CALL_PARTS:
                    name, arguments = part.get("tool_name"), part.get("args")
                    calls.append(build_tool_call(part.get("tool_call_id"), name, arguments))
                elif kind in _RETURN_PARTS:
                    returns.append(self._build_return(part, at))
                elif kind == "thinking":
                    thought += [part["content"]] if part.get("content") else []
                elif kind in ("text", "file", "speech"):
                    said += self._read_content(part, at)
                else:
                    self._dropped.append(Dropped(at, f"a part of kind {kind!r}; left out"))
            except WireError as error:
                drop_unreadable(error, at, self._dropped)
        details = {
            "id": _to_optional_text(value.get("provider_response_id")),
            "finish_reason": _to_optional_text(value.get("finish_reason")),
        }
        fields = {
            "tool_calls": tuple(calls) or None,
            "model": _to_optional_text(value.get("model_name")),
            "provider": _to_optional_text(value.get("provider_name")),
            "timestamp": _to_optional_text(value.get("timestamp")),
            "details": {key: text for key, text in details.items() if text is not None},
        }
        try:
            message = build_message("assistant", said, reasoning=thought, **fields)
            self.messages += [message, *returns]
        except WireError as error:
            drop_unreadable(error, where, self._dropped)

    def _build_return(self, part: Mapping[str, Any], where: str) -> Message:
        failed = part["part_kind"] == "retry-prompt" or part.get("outcome") in _FAILED_OUTCOMES
        return build_message(
            "tool",
            self._read_content(part, where),
            name=_to_optional_text(part.get("tool_name")),
            tool_call_id=_to_optional_text(part.get("tool_call_id")),
            timestamp=_to_optional_text(part.get("timestamp")),
            details=describe_outcome(failed=failed),
        )

    def _read_content(self, part: Mapping[str, Any], where: str) -> list[ContentBlock]:
        content = part.get("content")
        if part["part_kind"] == "speech":
            spoken = [part.get("transcript"), part.get("audio")]
            content = [item for item in spoken if item is not None]
        items = content if isinstance(content, list) else [content]
        has_files = any(
            isinstance(item, Mapping) and str(item.get("kind")) in _FILE_KINDS for item in items
        )
        if part["part_kind"] in _RETURN_PARTS and not has_files:
            # A tool's own value, which may be any JSON.
            return [] if content is None else [build_text(write_answer_text(content))]
        if part["part_kind"] in ("retry-prompt", "retry-feedback"):
            return [build_text(write_answer_text(content))]
        blocks: list[ContentBlock] = []
        for position, item in enumerate(items):
            block = _read_user_content(item)
            if block is not None:
                blocks.append(block)
            elif not (isinstance(item, Mapping) and item.get("kind") == "cache-point"):
                kind = item.get("kind") if isinstance(item, Mapping) else type(item).__name__
                at = f"{where}.content[{position}]"
                self._dropped.append(Dropped(at, f"content of kind {kind!r}; left out"))
        return blocks


def _read_user_content(item: object) -> ContentBlock | None:
    if isinstance(item, str):
        return build_text(item)
    if not isinstance(item, Mapping):
        return None
    kind = None if item.get("kind") is None else str(item["kind"])
    if kind == "text-content" and isinstance(item.get("content"), str):
        return build_text(item["content"])
    if kind == "image-url":
        return build_image(item.get("url"))
    if kind == "binary":
        return build_file(item.get("media_type"), to_standard_base64(item.get("data")))
    if kind == "uploaded-file":
        return build_media("file", {"file": {"file_id": item.get("file_id")}})
    if kind in _URL_KINDS and isinstance(item.get("url"), str):
        return build_media(_URL_KINDS[kind], {_URL_KINDS[kind]: {"url": item["url"]}})
    # Values in a list beside files, as a tool may return them.
    return None if kind is not None else build_text(write_answer_text(dict(item)))


def _to_optional_text(value: object) -> str | None:
    return value if isinstance(value, str) else None
