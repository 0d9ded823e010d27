"""Reads LangChain messages: their fields, the forms of `messages_to_dict` and `dumpd`."""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import WireError
from assay.types import ContentBlock, Message, ToolCall, Usage

from .conversion import Dropped, get_mappings, validate_wire
from .foreign_content import (
    build_image,
    build_media,
    build_message,
    build_text,
    build_tool_call,
    describe_outcome,
    drop_fields,
    drop_unreadable,
)
from .provider_turns import read_chat_messages
from .token_usage import add_usage, read_token_usage

_LANGCHAIN_ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
    "chat": "chat",
    "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
    "FunctionMessageChunk": "function",
    "ChatMessageChunk": "chat",
}
_LANGCHAIN_FIELDS = frozenset(
    {
        *("type", "content", "id", "name", "role", "additional_kwargs", "response_metadata"),
        *("tool_calls", "invalid_tool_calls", "tool_call_chunks", "tool_call_id", "status"),
        *("usage_metadata", "example", "chunk_position"),
    }
)
# Calls inside the content repeat `tool_calls`.
_REPEATED_BLOCKS = (
    "tool_use",
    "tool_call",
    "tool_call_chunk",
    "function_call",
    "invalid_tool_call",
)
_MEDIA_BLOCKS = ("image_url", "audio", "video", "file", "input_audio", "document", "media")


def is_langchain_message(value: Mapping[str, Any]) -> bool:
    """Whether `value` has the fields of a message in one of the three forms."""
    return _unwrap_langchain(value) is not None


def read_langchain_messages(
    values: Sequence[object], dropped: list[Dropped]
) -> tuple[list[Message], Usage | None]:
    """Read messages, and add up the usage of those that report it."""
    read: list[Message] = []
    usage = None
    for index, value in enumerate(values):
        where = f"messages[{index}]"
        try:
            fields = _unwrap_langchain(value) if isinstance(value, Mapping) else None
            if fields is not None:
                read.append(_read_langchain_message(fields, where, dropped))
                usage = add_usage(usage, read_token_usage(fields.get("usage_metadata")))
            elif isinstance(value, Mapping) and {"role", "content"} <= value.keys():
                # A graph also accepts the messages of OpenAI.
                read += read_chat_messages([value], dropped)
            else:
                dropped.append(Dropped(where, "not a message of LangChain; left out"))
        except WireError as error:
            drop_unreadable(error, where, dropped)
    return read, usage


def _unwrap_langchain(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    kwargs, data = value.get("kwargs"), value.get("data")
    if value.get("lc") == 1 and isinstance(kwargs, Mapping):
        path = value.get("id")
        name = path[-1] if isinstance(path, list) and path else None
        kind = kwargs.get("type") or str(name).removesuffix("Message").lower()
        return {**kwargs, "type": kind} if kind in (*_LANGCHAIN_ROLES, "remove") else None
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in (*_LANGCHAIN_ROLES, "remove"):
        return None
    if isinstance(data, Mapping) and "content" in data:
        return {**data, "type": kind}
    return value if "content" in value else None


def _read_langchain_message(
    fields: Mapping[str, Any], where: str, dropped: list[Dropped]
) -> Message:
    role = _LANGCHAIN_ROLES.get(fields["type"])
    if role is None:
        raise WireError("the message removes another one")
    more = fields.get("additional_kwargs")
    more = more if isinstance(more, Mapping) else {}
    if role == "chat":
        role = str(fields.get("role") or "assistant")
    elif role == "system" and more.get("__openai_role__") == "developer":
        role = "developer"
    reasoning: list[str] = []
    calls = _read_langchain_calls(fields, more)
    # LangChain writes empty text for an answer that only calls tools.
    content = None if calls and fields.get("content") == "" else fields.get("content")
    blocks = _read_langchain_content(content, f"{where}.content", reasoning, dropped)
    if isinstance(more.get("reasoning_content"), str):
        reasoning.append(more["reasoning_content"])
    made = fields.get("response_metadata")
    made = made if isinstance(made, Mapping) else {}
    ending = made.get("finish_reason") or made.get("stop_reason")
    details: dict[str, Any] = {"id": fields.get("id"), "finish_reason": ending}
    if role == "tool" and fields.get("status") in ("success", "error"):
        details |= describe_outcome(failed=fields["status"] == "error")
    drop_fields(fields, _LANGCHAIN_FIELDS, where, dropped)
    kept = ("tool_calls", "function_call", "reasoning_content", "__openai_role__", "refusal")
    drop_fields(more, kept, f"{where}.additional_kwargs", dropped)
    known = ("model_name", "model", "finish_reason", "stop_reason", "token_usage", "usage")
    drop_fields(made, known, f"{where}.response_metadata", dropped)
    return build_message(
        role,
        blocks,
        reasoning=reasoning,
        tool_calls=calls or None,
        tool_call_id=fields.get("tool_call_id"),
        name=fields.get("name"),
        model=made.get("model_name") or made.get("model"),
        details={key: value for key, value in details.items() if value is not None},
        refusal=more.get("refusal"),
    )


def _read_langchain_calls(
    fields: Mapping[str, Any], more: Mapping[str, Any]
) -> tuple[ToolCall, ...]:
    calls = [
        build_tool_call(call.get("id"), call.get("name"), call.get("args"))
        for key in ("tool_calls", "invalid_tool_calls")
        for call in get_mappings(fields.get(key))
    ]
    raw = get_mappings(more.get("tool_calls"))
    if not calls:
        return tuple(validate_wire(ToolCall, call, "tool call") for call in raw)
    # The model's own text of the arguments, which LangChain keeps beside its reading of them.
    texts = {call.get("id"): call.get("function") for call in raw}
    for position, call in enumerate(calls):
        function = texts.get(call.id)
        text = function.get("arguments") if isinstance(function, Mapping) else None
        if isinstance(text, str):
            restored = build_tool_call(call.id, call.name, text)
            calls[position] = restored if restored.arguments == call.arguments else call
    return tuple(calls)


def _read_langchain_content(
    content: object, where: str, reasoning: list[str], dropped: list[Dropped]
) -> list[ContentBlock]:
    if isinstance(content, str):
        return [build_text(content)]
    blocks: list[ContentBlock] = []
    for position, part in enumerate(content if isinstance(content, list) else ()):
        at = f"{where}[{position}]"
        if isinstance(part, str):
            blocks.append(build_text(part))
            continue
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in _REPEATED_BLOCKS:
            continue
        if kind in ("reasoning", "thinking", "reasoning_content", "redacted_thinking"):
            reasoning += _read_langchain_reasoning(part)
            continue
        block = _read_langchain_block(part, at, dropped) if kind is not None else None
        if block is None:
            dropped.append(Dropped(at, f"a block of type {kind!r}; left out"))
        else:
            blocks.append(block)
    return blocks


def _read_langchain_reasoning(part: Mapping[str, Any]) -> list[str]:
    # Its own blocks have `reasoning`, those of providers `thinking`, `summary` or a nested text.
    nested = part.get("reasoning_content")
    texts = [part.get("reasoning"), part.get("thinking")]
    texts += [nested.get("text")] if isinstance(nested, Mapping) else [nested]
    texts += [each.get("text") for each in get_mappings(part.get("summary"))]
    return [text for text in texts if isinstance(text, str) and text]


def _read_langchain_block(
    part: Mapping[str, Any], where: str, dropped: list[Dropped]
) -> ContentBlock | None:
    kind = part["type"]
    if kind in ("text", "text-plain", "output_text") and isinstance(part.get("text"), str):
        drop_fields(part, ("type", "text", "id", "index"), where, dropped)
        return build_text(part["text"])
    if kind == "image":
        source = part.get("source")
        given = {**part, **source} if isinstance(source, Mapping) else part
        media = given.get("mime_type") or given.get("media_type")
        image = build_image(given.get("url"), media, given.get("base64") or given.get("data"))
        if image is not None:
            return image
    if kind in _MEDIA_BLOCKS or kind == "image":
        return build_media(kind, part)
    return None
