"""Reads items of OpenAI's Responses API: messages, reasoning, calls and their outputs.

Consecutive items of the model become one message, as they were one answer. Calls of tools that
OpenAI itself runs become a call and the message that answers it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.errors import WireError
from assay.types import ContentBlock, Message, ToolCall

from .conversion import Dropped
from .foreign_content import (
    build_image,
    build_media,
    build_message,
    build_text,
    build_tool_call,
    describe_outcome,
    drop_fields,
    drop_unreadable,
    write_answer_text,
)

_TEXT_PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_FILE_PARTS = ("input_image", "input_file", "input_audio", "computer_screenshot")
RESPONSES_PARTS = frozenset({*_TEXT_PARTS, *_FILE_PARTS}) - {"text", "input_audio"}
"""Types of content parts that only this API has."""

# Tools of OpenAI's servers: the item of the call also contains its result, if any is recorded.
_SERVER_CALLS = frozenset(
    {
        *("web_search_call", "file_search_call", "code_interpreter_call"),
        *("image_generation_call", "mcp_call"),
    }
)
_RESULT_KEYS = ("output", "outputs", "results", "result", "error", "tools")
_ITEM_KEYS = ("type", "id", "call_id", "name", "status", "created_by")
_FAILED = ("failed", "incomplete")


def is_responses_item(value: Mapping[str, Any]) -> bool:
    """Whether `value` is an item other than a message."""
    kind = value.get("type")
    return isinstance(kind, str) and (
        kind in ("reasoning", "program", "item_reference", "compaction", "mcp_list_tools")
        or kind.endswith(("_call", "_output", "_approval_request", "_approval_response"))
    )


def read_responses_items(items: Sequence[object], dropped: list[Dropped]) -> list[Message]:
    """Read items as messages. Unknown items and fields are reported as dropped."""
    reader = _ItemReader(dropped)
    for index, item in enumerate(items):
        where = f"items[{index}]"
        try:
            reader.take(item, where)
        except WireError as error:
            drop_unreadable(error, where, dropped)
    return reader.finish()


@dataclass
class _PendingMessage:
    """One answer of the model, while its items are read."""

    said: list[ContentBlock] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


class _ItemReader:
    def __init__(self, dropped: list[Dropped]) -> None:
        self._dropped = dropped
        self._messages: list[Message] = []
        self._names: dict[str, str] = {}
        self._pending: _PendingMessage | None = None

    def take(self, item: object, where: str) -> None:
        """Read the next item."""
        if not isinstance(item, Mapping):
            self._dropped.append(Dropped(where, f"a value of type {type(item).__name__}; left out"))
            return
        kind = item.get("type")
        if kind in (None, "message") and isinstance(item.get("role"), str):
            self._take_message(item, where)
        elif kind == "reasoning":
            self._take_reasoning(item, where)
        elif isinstance(kind, str) and (kind.endswith("_call") or kind == "program"):
            self._take_call(item, kind, where)
        elif isinstance(kind, str) and kind.endswith("_output"):
            self._take_output(item, kind, where)
        else:
            self._dropped.append(Dropped(where, f"an item of type {kind!r}; left out"))

    def finish(self) -> list[Message]:
        """Return the messages after the last item."""
        self._close()
        return self._messages

    def _open(self) -> _PendingMessage:
        if self._pending is None:
            self._pending = _PendingMessage()
        return self._pending

    def _open_after_text(self) -> _PendingMessage:
        # Text after text is another message: a comment and the final answer must stay apart. Text
        # after a server's tool depends on its result. Text beside open calls belongs to them,
        # since their outputs must follow immediately.
        pending = self._pending
        if pending is not None and (pending.results or (pending.said and not pending.calls)):
            self._close()
        return self._open()

    def _close(self) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        message = build_message(
            "assistant",
            pending.said,
            reasoning=pending.reasoning,
            tool_calls=tuple(pending.calls) or None,
            details=pending.details,
            **pending.extra,
        )
        self._messages += [message, *pending.results]

    def _take_message(self, item: Mapping[str, Any], where: str) -> None:
        known = ("type", "id", "role", "status", "content", "phase")
        drop_fields(item, known, where, self._dropped)
        extra: dict[str, Any] = {}
        blocks = self._read_parts(item.get("content"), f"{where}.content", extra)
        if item["role"] != "assistant":
            self._close()
            self._messages.append(build_message(item["role"], blocks, **extra))
            return
        pending = self._open_after_text()
        pending.said += blocks
        # As in a chat message, where both are fields beside the content.
        for key, value in extra.items():
            pending.extra[key] = pending.extra[key] + value if key in pending.extra else value
        for key in ("id", "phase"):
            if isinstance(item.get(key), str):
                pending.details[key] = item[key]

    def _take_reasoning(self, item: Mapping[str, Any], where: str) -> None:
        known = (*_ITEM_KEYS, "summary", "content", "encrypted_content")
        drop_fields(item, known, where, self._dropped)
        pending = self._open_after_text()
        parts = item.get("content") or item.get("summary")
        for part in parts if isinstance(parts, list) else ():
            text = part.get("text") if isinstance(part, Mapping) else None
            if isinstance(text, str) and text:
                pending.reasoning.append(text)
        if item.get("encrypted_content"):
            pending.details.setdefault("reasoning_items", []).append(dict(item))

    def _take_call(self, item: Mapping[str, Any], kind: str, where: str) -> None:
        call_id = item.get("call_id") or item.get("id")
        # Only the tools of OpenAI itself are named by their type.
        own = kind not in ("function_call", "custom_tool_call", "mcp_call")
        name = item.get("name") or (kind.removesuffix("_call") if own else None)
        extra: dict[str, Any] = {}
        read: tuple[str, ...]
        if kind == "custom_tool_call":
            arguments, read, extra = item.get("input"), ("input",), {"type": "custom"}
        elif "arguments" in item:
            arguments, read = item["arguments"], ("arguments",)
        elif isinstance(item.get("action"), Mapping):
            arguments, read = item["action"], ("action",)
        else:
            beside = (*_ITEM_KEYS, *_RESULT_KEYS)
            arguments = {key: value for key, value in item.items() if key not in beside}
            read = tuple(arguments)
        if kind == "mcp_call":
            read = (*read, "server_label")
            name = f"{item['server_label']}.{name}" if item.get("server_label") else name
        call = build_tool_call(call_id, name, arguments, **extra)
        results = _RESULT_KEYS if kind in _SERVER_CALLS else ()
        drop_fields(item, (*_ITEM_KEYS, *read, *results), where, self._dropped)
        pending = self._open()
        pending.calls.append(call)
        self._names[call.id or ""] = call.name
        if kind in _SERVER_CALLS:
            pending.results.append(self._build_server_result(item, call, where))

    def _build_server_result(self, item: Mapping[str, Any], call: ToolCall, where: str) -> Message:
        given = {key: item[key] for key in _RESULT_KEYS if item.get(key) not in (None, [])}
        details = describe_outcome(failed="error" in given or item.get("status") in _FAILED)
        blocks: list[ContentBlock] = []
        if item["type"] == "image_generation_call":
            media = f"image/{item.get('output_format') or 'png'}"
            image = build_image(None, media, given.pop("result", None))
            blocks += [] if image is None else [image]
        if len(given) == 1:
            (only,) = given.values()
            blocks += self._read_output(only, where)
        elif given:
            blocks.append(build_text(write_answer_text(given)))
        if not blocks:
            details["recorded"] = False
        return build_message("tool", blocks, tool_call_id=call.id, name=call.name, details=details)

    def _take_output(self, item: Mapping[str, Any], kind: str, where: str) -> None:
        self._close()
        value = next((item[key] for key in _RESULT_KEYS if item.get(key) is not None), None)
        drop_fields(item, (*_ITEM_KEYS, *_RESULT_KEYS), where, self._dropped)
        call_id = item.get("call_id") or item.get("id")
        name = item.get("name") or self._names.get(str(call_id))
        fields: dict[str, Any] = {"tool_call_id": call_id, "name": name}
        if item.get("status") == "failed":
            fields["details"] = describe_outcome(failed=True)
        blocks = self._read_output(value, f"{where}.output")
        self._messages.append(build_message("tool", blocks, **fields))

    def _read_output(self, value: object, where: str) -> list[ContentBlock]:
        if isinstance(value, Mapping) and str(value.get("type")) in RESPONSES_PARTS:
            value = [value]
        if value is None:
            return []
        if isinstance(value, list) and all(
            isinstance(part, Mapping) and str(part.get("type")) in RESPONSES_PARTS for part in value
        ):
            return self._read_parts(value, where, {})
        return [build_text(write_answer_text(value))]

    def _read_parts(self, content: object, where: str, extra: dict[str, Any]) -> list[ContentBlock]:
        if isinstance(content, str):
            return [build_text(content)]
        blocks: list[ContentBlock] = []
        for position, part in enumerate(content if isinstance(content, list) else ()):
            at = f"{where}[{position}]"
            block = self._read_part(part, at, extra) if isinstance(part, Mapping) else None
            if block is not None:
                blocks.append(block)
            elif not (isinstance(part, Mapping) and part.get("type") == "refusal"):
                kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
                self._dropped.append(Dropped(at, f"a part of type {kind!r}; left out"))
        return blocks

    def _read_part(
        self, part: Mapping[str, Any], where: str, extra: dict[str, Any]
    ) -> ContentBlock | None:
        kind = part.get("type")
        if kind in _TEXT_PARTS and isinstance(part.get("text"), str):
            drop_fields(part, ("type", "text", "annotations"), where, self._dropped)
            if isinstance(part.get("annotations"), list) and part["annotations"]:
                extra.setdefault("annotations", []).extend(part["annotations"])
            return build_text(part["text"])
        if kind == "refusal" and isinstance(part.get("refusal"), str):
            extra["refusal"] = extra.get("refusal", "") + part["refusal"]
            return None
        rest = {key: value for key, value in part.items() if key != "type" and value is not None}
        if kind in ("input_image", "computer_screenshot") and isinstance(
            rest.get("image_url"), str
        ):
            return build_media("image_url", {"image_url": {"url": rest.pop("image_url"), **rest}})
        if kind == "input_file":
            return build_media("file", {"file": rest})
        if kind in _FILE_PARTS:
            return build_media(str(kind), rest)
        return None
