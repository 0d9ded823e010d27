"""Converts items of OpenAI's Responses API: messages, reasoning, calls and their outputs.

Consecutive items of the model become one message, as they were one answer. Calls of tools that
OpenAI itself runs become a call and the message that answers it. A message that was read from an
answer keeps its items in the extra `openai_responses`, since only they contain the encrypted
reasoning that the next request sends back.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.errors import WireError
from assay.types import ContentBlock, Message, TextBlock, ToolCall

from .conversion import (
    Converted,
    Dropped,
    check_iterable,
    expect_message,
    get_namespace,
    make_storable,
    report_extras,
    report_unsupported_by_role,
    report_unsupported_fields,
    write_json_object,
)
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
from .open_calls import OpenCalls

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
RESPONSES_FORMAT = "openai_responses"


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


def read_responses_answer(items: Sequence[object], dropped: list[Dropped]) -> Message:
    """Read the output of one request as one message, which keeps the items.

    Its tool calls are those that the caller has to answer: not those of OpenAI's own tools.
    """
    read = read_responses_items(items, dropped)
    resolved = {message.tool_call_id for message in read if message.role == "tool"}
    spoken = [message for message in read if message.role == "assistant"]
    blocks: list[ContentBlock] = []
    extra: dict[str, Any] = {}
    for message in spoken:
        content = message.content or ()
        blocks += [build_text(content)] if isinstance(content, str) else content
        for key, value in (message.__pydantic_extra__ or {}).items():
            extra[key] = extra[key] + value if key in extra else value
    calls = tuple(
        call for message in spoken for call in message.tool_calls if call.id not in resolved
    )
    # Nulls are left out: some fields may be null in an answer, but not in a request.
    kept = [
        {key: value for key, value in item.items() if value is not None}
        for item in items
        if isinstance(item, Mapping)
    ]
    return build_message(
        "assistant",
        blocks,
        reasoning=[message.reasoning for message in spoken if message.reasoning is not None],
        tool_calls=calls or None,
        **{**extra, RESPONSES_FORMAT: {"items": make_storable(kept)}},
    )


def to_openai_responses(messages: Iterable[Message]) -> Converted[list[dict[str, Any]]]:
    """Write `messages` as the items of a request.

    An answer is written as the items it was read from, unless it was changed since then. Other
    reasoning is left out: the API accepts its own, encrypted items only.
    """
    writer = _ItemWriter()
    for index, message in enumerate(check_iterable(messages, "messages")):
        where = f"messages[{index}]"
        writer.write(expect_message(message, where), where)
    return Converted(writer.items, tuple(writer.dropped))


class _ItemWriter:
    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.dropped: list[Dropped] = []
        self._unanswered: OpenCalls[str] = OpenCalls()
        self._custom_ids: set[str] = set()

    def write(self, message: Message, where: str) -> None:
        """Write the items of one message."""
        if message.role == "assistant" and (kept := _find_kept_items(message)):
            self.items += kept
            customs = (item for item in kept if item.get("type") == "custom_tool_call")
            self._custom_ids.update(str(item.get("call_id")) for item in customs)
            for call in message.tool_calls:
                if call.id is not None:
                    self._unanswered.add(call.id, call.id)
            return
        report_unsupported_fields(message, where, self.dropped)
        report_extras(message.__pydantic_extra__, RESPONSES_FORMAT, where, self.dropped)
        if message.role == "assistant":
            self._write_answer(message, where)
        elif message.role in ("tool", "function"):
            self._write_output(message, where)
        else:
            names = ("tool_calls", "tool_call_id", "name", "reasoning")
            report_unsupported_by_role(message, where, self.dropped, names)
            content = self._write_content(message, where, "input_text")
            self.items.append({"role": message.role, "content": content})

    def _write_answer(self, message: Message, where: str) -> None:
        report_unsupported_by_role(message, where, self.dropped, ("tool_call_id", "name"))
        if message.reasoning is not None:
            note = "no place for reasoning without its encrypted item; left out"
            self.dropped.append(Dropped(f"{where}.reasoning", note))
        content = self._write_content(message, where, "output_text")
        if content or not message.tool_calls:
            self.items.append({"role": "assistant", "content": content})
        for position, call in enumerate(message.tool_calls):
            # A call must have an id, also where another provider gave none.
            call_id = call.id if call.id is not None else f"call_{len(self.items)}"
            self._unanswered.add(call_id, call_id)
            at = f"{where}.tool_calls[{position}]"
            arguments = call.raw_arguments
            if arguments is None:
                arguments = write_json_object(call.arguments, at)
            own = (call.__pydantic_extra__ or {}).get("type") == "custom"
            kind, key = ("custom_tool_call", "input") if own else ("function_call", "arguments")
            if own:
                self._custom_ids.add(call_id)
            self.items.append({"type": kind, "call_id": call_id, "name": call.name, key: arguments})

    def _write_output(self, message: Message, where: str) -> None:
        names = ("tool_calls", "reasoning")
        report_unsupported_by_role(message, where, self.dropped, names)
        answered = self._unanswered.take(message.tool_call_id)
        call_id = message.tool_call_id if message.tool_call_id is not None else answered
        call_id = "unknown" if call_id is None else call_id
        custom = call_id in self._custom_ids
        kind = "custom_tool_call_output" if custom else "function_call_output"
        output = self._write_content(message, where, "input_text")
        self.items.append({"type": kind, "call_id": call_id, "output": output})

    def _write_content(self, message: Message, where: str, text: str) -> str | list[dict[str, Any]]:
        content = message.content
        if content is None or isinstance(content, str):
            return content or ""
        parts = []
        for position, block in enumerate(content):
            part = _write_part(block, text)
            if part is None:
                note = f"a block of type {block.type!r}; left out"
                self.dropped.append(Dropped(f"{where}.content[{position}]", note))
            else:
                parts.append(part)
        return parts


def _write_part(block: ContentBlock, text: str) -> dict[str, Any] | None:
    if isinstance(block, TextBlock):
        return {"type": text, "text": block.text}
    fields = block.__pydantic_extra__ or {}
    if text == "output_text":
        return None  # the API accepts only text as an earlier answer of the model
    image, file = fields.get("image_url"), fields.get("file")
    if block.type == "image_url" and isinstance(image, Mapping) and image.get("url"):
        rest = {key: value for key, value in image.items() if key != "url"}
        return {"type": "input_image", "image_url": image["url"], **rest}
    if block.type == "file" and isinstance(file, Mapping):
        return {"type": "input_file", **file}
    return None


def _find_kept_items(message: Message) -> list[dict[str, Any]] | None:
    # Compared with a new reading: a message that was edited must be sent as it is now.
    items = get_namespace(message.__pydantic_extra__, RESPONSES_FORMAT).get("items")
    if not isinstance(items, list) or not items:
        return None
    try:
        read = read_responses_answer(items, [])
    except WireError:
        return None
    same = (read.content, read.reasoning, read.tool_calls) == (
        message.content,
        message.reasoning,
        message.tool_calls,
    )
    return items if same else None
