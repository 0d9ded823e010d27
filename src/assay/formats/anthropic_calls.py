"""Requests, answers and event streams of Anthropic's messages API."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from pydantic_core import from_json

from assay.types import Message, ToolSpec, Usage

from .answer_writer import AnswerPart, AnswerSection, AnswerWriter, write_json_text
from .anthropic import from_anthropic
from .conversion import (
    Dropped,
    expect_mapping,
    expect_sequence,
    expect_text,
    read_items,
    validate_wire,
)
from .model_request import (
    FinishReason,
    ModelAnswer,
    ModelRequest,
    build_translation_error,
    collect_settings,
)
from .server_sent_events import StreamEvent, parse_event_json, write_event

_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "thinking": "thinking",
}
_READ_ELSEWHERE = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "stop_sequences", "output_config"}
    | {"stream"}
)
# Bookkeeping, and the editing of old thinking that only Anthropic's servers do.
_IGNORED = frozenset({"metadata", "service_tier", "context_management", "betas", "cache_control"})
_TOOL_FIELDS = {"name": "name", "description": "description", "input_schema": "parameters"}
_STOP_REASONS: dict[FinishReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_ERROR_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
# The input of a tool while it arrives. It is not a key of a block.
_PARTIAL_INPUT = "partial_json"
_DELTA_KEYS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": _PARTIAL_INPUT,
}


def read_messages_request(body: Mapping[str, Any]) -> ModelRequest:
    """Read a request. Raises `WireError` for parts that only this API has."""
    settings, dropped = collect_settings(
        body, names=_SETTINGS, known=_READ_ELSEWHERE, ignored=_IGNORED
    )
    if stop := body.get("stop_sequences"):
        settings["stop"] = tuple(expect_sequence(stop, "stop_sequences"))
    if (choice := body.get("tool_choice")) is not None:
        _read_anthropic_choice(expect_mapping(choice, "tool_choice"), settings)
    config = expect_mapping(body.get("output_config") or {}, "output_config")
    if config.get("effort") is not None:
        dropped.append(
            Dropped("output_config.effort", "`output_config.effort` has no equivalent; left out")
        )
    if (form := config.get("format")) is not None:
        if not isinstance(form, Mapping) or form.get("type") != "json_schema":
            raise build_translation_error("output_config.format")
        settings["response_schema"] = {"name": "answer", "schema": form.get("schema") or {}}
    tools = read_items(
        body.get("tools") or [], "tools", lambda tool, where: _read_tool(tool, where, dropped)
    )
    return ModelRequest(
        read_messages_conversation(body), tuple(tools), settings, dropped=tuple(dropped)
    )


def read_messages_conversation(body: Mapping[str, Any]) -> list[Message]:
    """Read the system prompt and the turns of a request.

    Claude Code also sends turns of the role `system`, which become messages of that role.
    """
    turns = expect_sequence(body.get("messages") or [], "messages")
    messages = from_anthropic([], system=body.get("system") or None)
    for is_system, run in groupby(
        turns, lambda turn: isinstance(turn, Mapping) and turn.get("role") == "system"
    ):
        if is_system:
            for turn in run:
                messages += from_anthropic([], system=turn.get("content") or "")
        else:
            messages += from_anthropic(list(run))
    return messages


def _read_tool(tool: object, where: str, dropped: list[Dropped]) -> ToolSpec:
    data = expect_mapping(tool, where)
    if data.get("type") not in (None, "custom"):
        raise build_translation_error(f"{where}.type={data['type']!r}")
    fields = {own: data[name] for name, own in _TOOL_FIELDS.items() if data.get(name) is not None}
    if more := sorted(data.keys() - _TOOL_FIELDS.keys() - {"type"}):
        dropped.append(Dropped(where, f"{', '.join(more)} of a tool; left out"))
    return validate_wire(ToolSpec, fields, where)


def _read_anthropic_choice(choice: Mapping[str, Any], settings: dict[str, Any]) -> None:
    named = {"auto": "auto", "none": "none", "any": "required"}
    kind = choice.get("type")
    if kind == "tool":
        settings["tool_choice"] = {"name": expect_text(choice.get("name"), "tool_choice.name")}
    elif isinstance(kind, str) and kind in named:
        settings["tool_choice"] = named[kind]
    else:
        raise build_translation_error("tool_choice")
    if choice.get("disable_parallel_tool_use"):
        settings["parallel_tool_calls"] = False


def write_messages_answer(answer: ModelAnswer) -> dict[str, Any]:
    """Write an answer as the body of a response."""
    message = answer.message
    blocks: list[dict[str, Any]] = []
    if message.reasoning:
        # Without a signature, which only Anthropic can give: its own servers would refuse it.
        blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": ""})
    refusal = (message.__pydantic_extra__ or {}).get("refusal")
    # OpenAI's field for the text of a refusal, which is a text like any other here.
    text = message.text + (refusal if isinstance(refusal, str) else "")
    if text:
        blocks.append({"type": "text", "text": text})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in message.tool_calls
    ]
    usage = answer.usage or Usage()
    cached = usage.cached_tokens or 0
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": blocks,
        "stop_reason": _STOP_REASONS[answer.finish_reason],
        "stop_sequence": None,
        # The API has no place for unknown counts.
        "usage": {
            "input_tokens": max((usage.input_tokens or 0) - cached, 0),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": usage.output_tokens or 0,
        },
    }


def write_messages_events(body: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[bytes]:
    """Write the body of a response as the event stream of the same request."""
    usage = body.get("usage") or {}
    started = {
        **body,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 0},
    }
    yield _write_named({"type": "message_start", "message": started})
    for index, block in enumerate(body.get("content") or []):
        opened, deltas = _split_block(block)
        at = {"index": index}
        yield _write_named({"type": "content_block_start", **at, "content_block": opened})
        for delta in deltas:
            yield _write_named({"type": "content_block_delta", **at, "delta": delta})
        yield _write_named({"type": "content_block_stop", **at})
    delta = {key: body.get(key) for key in ("stop_reason", "stop_sequence")}
    yield _write_named({"type": "message_delta", "delta": delta, "usage": dict(usage)})
    yield _write_named({"type": "message_stop"})


def _split_block(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the block as it starts, and the deltas that complete it."""
    kind = block.get("type")
    if kind == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block.get("text", "")}]
    if kind == "thinking":
        text, signature = block.get("thinking", ""), block.get("signature", "")
        return {**block, "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": text},
            {"type": "signature_delta", "signature": signature},
        ]
    if kind in ("tool_use", "server_tool_use"):
        text = write_json_text(block.get("input") or {})
        return {**block, "input": {}}, [{"type": "input_json_delta", _PARTIAL_INPUT: text}]
    return dict(block), []


def _write_named(event: dict[str, Any]) -> bytes:
    return write_event(event, name=event["type"])


class MessagesWriter(AnswerWriter):
    """Writes an answer as events of content blocks while it arrives."""

    def write_start(self) -> Iterator[bytes]:
        """Yield the message without content. Its usage is known at the end only."""
        started = {**write_messages_answer(self.head), "content": [], "stop_reason": None}
        yield self.encode({"type": "message_start", "message": started})

    def write_section(self, section: AnswerSection) -> Iterator[tuple[bool, dict[str, Any]]]:
        """Yield the events of one block."""
        if section.kind == "call":
            block = {"type": "tool_use", "id": section.call_id, "name": section.name}
            opened, deltas = _split_block({**block, "input": {}})
            deltas[0][_PARTIAL_INPUT] = section.text
        elif section.kind == "reasoning":
            opened, deltas = _split_block({"type": "thinking", "thinking": section.text})
        else:
            opened, deltas = _split_block({"type": "text", "text": section.text})
        at = {"index": section.index}
        yield False, {"type": "content_block_start", **at, "content_block": opened}
        for number, delta in enumerate(deltas):
            yield number == 0, {"type": "content_block_delta", **at, "delta": delta}
        yield False, {"type": "content_block_stop", **at}

    def write_end(self, answer: ModelAnswer) -> Iterator[bytes]:
        """Yield the stop reason with the usage, and the end."""
        whole = write_messages_answer(answer)
        delta = {key: whole[key] for key in ("stop_reason", "stop_sequence")}
        yield self.encode({"type": "message_delta", "delta": delta, "usage": whole["usage"]})
        yield self.encode({"type": "message_stop"})

    def encode(self, fields: dict[str, Any]) -> bytes:
        """Return an event with the name of its type."""
        return _write_named(fields)


def read_messages_parts(event: StreamEvent) -> Iterator[AnswerPart]:
    """Yield the parts of the answer in one event. Raises `WireError` if it has another shape."""
    if not event.data:
        return
    data = parse_event_json(event.data)
    kind, place = data.get("type"), data.get("index")
    place = place if type(place) is int else 0
    if kind == "message_start":
        model = expect_mapping(data.get("message"), "message").get("model")
        yield AnswerPart("start", model if isinstance(model, str) else "")
    elif kind == "content_block_start":
        block = expect_mapping(data.get("content_block"), str(kind))
        if block.get("type") == "tool_use":
            given = write_json_text(block["input"]) if block.get("input") else ""
            yield AnswerPart("call", given, place, block.get("id"), str(block.get("name") or ""))
        elif block.get("type") == "text" and block.get("text"):
            yield AnswerPart("text", str(block["text"]), place)
    elif kind == "content_block_delta":
        delta = expect_mapping(data.get("delta"), "delta")
        if delta.get("type") == "text_delta":
            yield AnswerPart("text", expect_text(delta.get("text"), "delta.text"), place)
        elif delta.get("type") == "thinking_delta":
            thought = expect_text(delta.get("thinking"), "delta.thinking")
            yield AnswerPart("reasoning", thought, place)
        elif delta.get("type") == "input_json_delta":
            yield AnswerPart("call", str(delta.get(_PARTIAL_INPUT) or ""), place)
    elif kind == "content_block_stop":
        yield AnswerPart("end", "", place)


class MessagesStream:
    """Assembles the events of a stream to the body that the same request would have returned."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        # Joined at the end: a longer and longer text would be copied with each event.
        self._pieces: dict[int, dict[str, list[str]]] = {}
        self.error: object = None
        """The error object that the server sent instead of the rest."""

    @property
    def is_complete(self) -> bool:
        """Whether the model ended its answer."""
        return self._message.get("stop_reason") is not None

    def add(self, event: StreamEvent) -> None:
        """Add one event. Raises `WireError` if it is not one of this API."""
        if not event.data:
            return
        data = parse_event_json(event.data)
        kind = data.get("type")
        index = data["index"] if type(data.get("index")) is int else 0
        if kind == "message_start":
            self._message = dict(expect_mapping(data.get("message"), "message"))
        elif kind == "content_block_start":
            block = dict(expect_mapping(data.get("content_block"), str(kind)))
            if block.get("citations") is not None:
                block["citations"] = list(expect_sequence(block["citations"], "citations"))
            self._blocks[index] = block
            self._pieces.pop(index, None)
        elif kind == "content_block_delta":
            self._add_delta(index, expect_mapping(data.get("delta"), "delta"))
        elif kind == "message_delta":
            self._message |= expect_mapping(data.get("delta") or {}, "delta")
            # Null: the count of the first event still applies.
            given = {k: v for k, v in (data.get("usage") or {}).items() if v is not None}
            self._message["usage"] = {**(self._message.get("usage") or {}), **given}
        elif kind == "error":
            self.error = data.get("error") or "unknown"

    def build_answer(self) -> dict[str, Any]:
        """Return the body of the response."""
        blocks = []
        for index, block in sorted(self._blocks.items()):
            pieces = self._pieces.get(index, {})
            texts = {key: (block.get(key) or "") + "".join(pieces[key]) for key in pieces}
            blocks.append(_close_block({**block, **texts}))
        return {**self._message, "content": blocks}

    def _add_delta(self, index: int, delta: Mapping[str, Any]) -> None:
        block = self._blocks.setdefault(index, {"type": "text"})
        kind = delta.get("type")
        if kind == "citations_delta":
            block["citations"] = block.get("citations") or []
            block["citations"].append(delta.get("citation"))
        elif kind in _DELTA_KEYS:
            key = _DELTA_KEYS[kind]
            piece = expect_text(delta.get(key) or "", f"delta.{key}")
            self._pieces.setdefault(index, {}).setdefault(key, []).append(piece)


def _close_block(block: dict[str, Any]) -> dict[str, Any]:
    text = block.get(_PARTIAL_INPUT)
    if not text:
        return {key: value for key, value in block.items() if key != _PARTIAL_INPUT}
    try:
        value = from_json(text)
    except ValueError:
        return block  # the model was cut inside its arguments: its text is kept
    return {**{key: block[key] for key in block if key != _PARTIAL_INPUT}, "input": value}


def write_messages_error(status: int, message: str, code: str | None) -> dict[str, Any]:
    """Write the body of an error as Anthropic's clients read it."""
    kind = _ERROR_KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    error = {"type": kind, "message": message}
    if code is not None and code != kind:
        error["code"] = code
    return {"type": "error", "error": error, "request_id": None}
