"""Requests, answers and event streams of OpenAI's Responses API."""

from collections.abc import Iterator, Mapping
from typing import Any

from assay.types import Message, ToolSpec, Usage

from .answer_writer import AnswerPart, AnswerPartKind, AnswerSection, AnswerWriter
from .conversion import Dropped, expect_mapping, expect_text, read_items, validate_wire
from .model_request import (
    ModelAnswer,
    ModelRequest,
    build_free_text_tool,
    build_translation_error,
    collect_settings,
    describe_free_text_tool,
    get_free_text,
    join_namespace,
    read_answer_format,
    read_tool_choice,
    wrap_free_text_calls,
)
from .openai_responses import read_responses_items
from .server_sent_events import StreamEvent, parse_event_json, write_event

_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_output_tokens": "max_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
}
_READ_ELSEWHERE = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "reasoning", "text", "stream"}
)
# Bookkeeping of OpenAI's servers, and the encrypted reasoning that only they can read.
_IGNORED = frozenset(
    {"client_metadata", "include", "max_tool_calls", "metadata", "prompt_cache_key"}
    | {"prompt_cache_retention", "safety_identifier", "service_tier", "store", "stream_options"}
    | {"top_logprobs", "truncation", "user"}
)
# Notes of the reader on parts of the conversation, as opposed to fields of a part.
_LOST_PARTS = ("an item of type", "a part of type", "a value of type", "unreadable")
_EMPTY_ITEMS: dict[str, dict[str, Any]] = {
    "message": {"content": []},
    "reasoning": {"summary": []},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
}
_DELTA_KINDS: dict[object, AnswerPartKind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "call",
}
_RESPONSE_ENDS = ("response.completed", "response.incomplete")


def read_responses_request(body: Mapping[str, Any]) -> ModelRequest:
    """Read a request. Raises `WireError` for parts that only this API has."""
    settings, dropped = collect_settings(
        body, names=_SETTINGS, known=_READ_ELSEWHERE, ignored=_IGNORED
    )
    if (choice := body.get("tool_choice")) is not None:
        is_tool = isinstance(choice, Mapping) and choice.get("type") in ("function", "custom")
        settings["tool_choice"] = read_tool_choice(choice, choice if is_tool else None)
    reasoning = expect_mapping(body.get("reasoning") or {}, "reasoning")
    if reasoning.get("effort") is not None:
        settings["reasoning_effort"] = reasoning["effort"]
    text = expect_mapping(body.get("text") or {}, "text")
    if (schema := read_answer_format(text.get("format"), "text.format")) is not None:
        settings["response_schema"] = schema
    for name, given in (("reasoning.summary", reasoning), ("text.verbosity", text)):
        if given.get(name.partition(".")[2]) is not None:
            dropped.append(Dropped(name, f"`{name}` has no equivalent; left out"))
    reader = _ToolReader(dropped)
    read_items(body.get("tools") or [], "tools", reader.read)
    notes: list[Dropped] = []
    messages = _read_conversation(body, notes)
    for note in notes:
        if note.what.startswith(_LOST_PARTS):
            raise build_translation_error(f"input: {note.where}: {note.what}")
    return ModelRequest(
        messages,
        tuple(reader.tools),
        settings,
        frozenset(reader.free_text),
        reader.namespaces,
        (*dropped, *notes),
    )


def read_responses_conversation(body: Mapping[str, Any]) -> list[Message]:
    """Read the messages of a request; items that cannot be read are left out."""
    return _read_conversation(body, [])


def _read_conversation(body: Mapping[str, Any], notes: list[Dropped]) -> list[Message]:
    given = body.get("input")
    if isinstance(given, str):
        messages = [Message(role="user", content=given)]
    else:
        items = list(given) if isinstance(given, list) else []
        for place, item in enumerate(items):
            if isinstance(item, Mapping) and isinstance(item.get("namespace"), str):
                rest = {key: value for key, value in item.items() if key != "namespace"}
                name = join_namespace(item["namespace"], str(item.get("name")))
                items[place] = {**rest, "name": name}
        messages = read_responses_items(items, notes)
    if isinstance(body.get("instructions"), str):
        messages.insert(0, Message(role="system", content=body["instructions"]))
    return wrap_free_text_calls(messages)


class _ToolReader:
    """Reads tools as functions: those with free text, and those of a namespace."""

    def __init__(self, dropped: list[Dropped]) -> None:
        self.tools: list[ToolSpec] = []
        self.free_text: list[str] = []
        self.namespaces: dict[str, str] = {}
        self._dropped = dropped

    def read(self, tool: object, where: str, namespace: str | None = None) -> None:
        data = expect_mapping(tool, where)
        kind = data.get("type")
        if kind not in ("function", "custom", "namespace"):
            raise build_translation_error(f"{where}.type={kind!r}")
        name = expect_text(data.get("name"), f"{where}.name")
        if kind == "namespace" and namespace is None:
            read_items(
                data.get("tools") or [],
                f"{where}.tools",
                lambda inner, place: self.read(inner, place, name),
            )
            return
        if namespace is not None:
            name = join_namespace(namespace, name)
            self.namespaces[name] = namespace
        if kind == "custom":
            self.free_text.append(name)
            self.tools.append(build_free_text_tool(name, describe_free_text_tool(data)))
            return
        if data.get("strict"):
            self._dropped.append(
                Dropped(f"{where}.strict", "`strict` of a tool has no equivalent; left out")
            )
        fields = {
            key: value
            for key, value in data.items()
            if key in ("description", "parameters") and value is not None
        }
        self.tools.append(validate_wire(ToolSpec, {**fields, "name": name}, where))


def write_responses_answer(answer: ModelAnswer) -> dict[str, Any]:
    """Write an answer as the body of a response."""
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    reason = reasons.get(answer.finish_reason)
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": answer.created,
        "status": "completed" if reason is None else "incomplete",
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "output": list(_write_items(answer)),
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": _write_responses_usage(answer.usage),
    }


def _write_items(answer: ModelAnswer) -> Iterator[dict[str, Any]]:
    message = answer.message
    if message.reasoning:
        summary = [{"type": "summary_text", "text": message.reasoning}]
        yield {"type": "reasoning", "id": f"rs_{answer.id}", "summary": summary}
    parts: list[dict[str, Any]] = []
    if message.text:
        parts.append({"type": "output_text", "text": message.text, "annotations": []})
    refusal = (message.__pydantic_extra__ or {}).get("refusal")
    if isinstance(refusal, str) and refusal:
        parts.append({"type": "refusal", "refusal": refusal})
    if parts or not message.tool_calls:
        yield {
            "type": "message",
            "id": f"msg_{answer.id}",
            "role": "assistant",
            "status": "completed",
            "content": parts or [{"type": "output_text", "text": "", "annotations": []}],
        }
    for place, call in enumerate(message.tool_calls):
        is_free = call.name in answer.free_text_tools
        text = get_free_text(call) if is_free else call.arguments_text
        yield _write_call(call.id, call.name, text, f"{answer.id}{place}", answer)


def _write_call(
    call_id: str | None, name: str, text: str, place: str, answer: ModelAnswer
) -> dict[str, Any]:
    shared = {"call_id": call_id, "name": name, "status": "completed"}
    if (namespace := answer.namespaces.get(name)) is not None:
        shared |= {"namespace": namespace, "name": name[len(join_namespace(namespace, "")) :]}
    if name in answer.free_text_tools:
        return {"type": "custom_tool_call", "id": f"ctc_{place}", **shared, "input": text}
    return {"type": "function_call", "id": f"fc_{place}", **shared, "arguments": text}


def _write_responses_usage(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens or 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def write_responses_events(body: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[bytes]:
    """Write the body of a response as the event stream of the same request."""
    started = {**body, "status": "in_progress", "output": [], "usage": None}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": started}),
        ("response.in_progress", {"response": started}),
    ]
    for place, item in enumerate(body.get("output") or []):
        kinds += _split_item(item, place)
    ended = "response.incomplete" if body.get("status") == "incomplete" else "response.completed"
    kinds.append((ended, {"response": dict(body)}))
    for number, (kind, fields) in enumerate(kinds):
        yield write_event({"type": kind, "sequence_number": number, **fields}, name=kind)


def _split_item(item: Mapping[str, Any], place: int) -> Iterator[tuple[str, dict[str, Any]]]:
    at = {"output_index": place}
    within = {**at, "item_id": item.get("id")}
    kind = item.get("type")
    opened = {**item, **_EMPTY_ITEMS.get(str(kind), {})}
    if "status" in item:
        opened["status"] = "in_progress"
    yield "response.output_item.added", {**at, "item": opened}
    if kind == "message":
        for index, part in enumerate(item.get("content") or []):
            yield from _split_part(part, {**within, "content_index": index})
    elif kind == "reasoning":
        for index, part in enumerate(item.get("summary") or []):
            inside, text = {**within, "summary_index": index}, part.get("text", "")
            start = {**part, "text": ""}
            yield "response.reasoning_summary_part.added", {**inside, "part": start}
            yield "response.reasoning_summary_text.delta", {**inside, "delta": text}
            yield "response.reasoning_summary_text.done", {**inside, "text": text}
            yield "response.reasoning_summary_part.done", {**inside, "part": part}
    elif kind == "function_call":
        text = item.get("arguments", "")
        named = {"name": item.get("name"), "arguments": text}
        yield "response.function_call_arguments.delta", {**within, "delta": text}
        yield "response.function_call_arguments.done", {**within, **named}
    elif kind == "custom_tool_call":
        text = item.get("input", "")
        yield "response.custom_tool_call_input.delta", {**within, "delta": text}
        yield "response.custom_tool_call_input.done", {**within, "input": text}
    yield "response.output_item.done", {**at, "item": dict(item)}


def _split_part(
    part: Mapping[str, Any], at: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    is_refusal = part.get("type") == "refusal"
    key, kind = ("refusal", "refusal") if is_refusal else ("text", "output_text")
    text = part.get(key, "")
    more: dict[str, Any] = {} if is_refusal else {"logprobs": []}
    yield "response.content_part.added", {**at, "part": {**part, key: ""}}
    yield f"response.{kind}.delta", {**at, "delta": text, **more}
    yield f"response.{kind}.done", {**at, key: text, **more}
    yield "response.content_part.done", {**at, "part": dict(part)}


class ResponsesWriter(AnswerWriter):
    """Writes an answer as events of output items while it arrives."""

    _count = 0

    def write_start(self) -> Iterator[bytes]:
        """Yield the response without output."""
        started = {**write_responses_answer(self.head), "status": "in_progress", "output": []}
        for kind in ("response.created", "response.in_progress"):
            yield self.encode({"type": kind, "response": started})

    def write_section(self, section: AnswerSection) -> Iterator[tuple[bool, dict[str, Any]]]:
        """Yield the events of one item."""
        for kind, fields in _split_item(self._build_item(section), section.index):
            yield kind.endswith(".delta"), {"type": kind, **fields}

    def write_end(self, answer: ModelAnswer) -> Iterator[bytes]:
        """Yield the whole response, with the items as they were written."""
        items = [self._build_item(section) for section in self.sections]
        whole = {**write_responses_answer(answer), "model": self.head.model}
        if items:
            whole["output"] = items
        else:
            # An answer without any content is one empty message.
            for kind, fields in _split_item(whole["output"][0], 0):
                yield self.encode({"type": kind, **fields})
        is_whole = whole["status"] == "completed"
        kind = "response.completed" if is_whole else "response.incomplete"
        yield self.encode({"type": kind, "response": whole})

    def encode(self, fields: dict[str, Any]) -> bytes:
        """Return an event with its number."""
        number, self._count = self._count, self._count + 1
        return write_event({**fields, "sequence_number": number}, name=fields["type"])

    def _build_item(self, section: AnswerSection) -> dict[str, Any]:
        place, text = f"{self.head.id}{section.index}", section.text
        if section.kind == "call":
            text = section.free_text if self.holds_back(section) else text
            return _write_call(section.call_id, section.name, text, place, self.head)
        if section.kind == "reasoning":
            summary = [{"type": "summary_text", "text": text}]
            return {"type": "reasoning", "id": f"rs_{place}", "summary": summary}
        part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
        if section.kind == "refusal":
            part = {"type": "refusal", "refusal": text}
        head = {"type": "message", "id": f"msg_{place}", "role": "assistant"}
        return {**head, "status": "completed", "content": [part]}


def read_responses_parts(event: StreamEvent) -> Iterator[AnswerPart]:
    """Yield the parts of the answer in one event. Raises `WireError` if it has another shape."""
    if not event.data or event.data == b"[DONE]":
        return
    data = parse_event_json(event.data)
    kind, place = data.get("type") or event.name, data.get("output_index")
    place = place if type(place) is int else 0
    if kind == "response.created":
        model = expect_mapping(data.get("response"), "response").get("model")
        yield AnswerPart("start", model if isinstance(model, str) else "")
    elif kind in _DELTA_KINDS:
        yield AnswerPart(_DELTA_KINDS[kind], expect_text(data.get("delta"), "delta"), place)
    elif kind == "response.output_item.added":
        item = expect_mapping(data.get("item"), "item")
        if item.get("type") == "function_call":
            name, call_id = str(item.get("name") or ""), item.get("call_id")
            yield AnswerPart("call", "", place, call_id, name)
    elif kind == "response.reasoning_summary_part.added" and data.get("summary_index"):
        yield AnswerPart("reasoning", "\n\n", place)
    elif kind == "response.output_item.done":
        yield from _read_whole_item(expect_mapping(data.get("item"), "item"), place)


def _read_whole_item(item: Mapping[str, Any], place: int) -> Iterator[AnswerPart]:
    """Yield the end of an item with all of its text, which some servers send at once."""
    kind = item.get("type")
    if kind == "function_call":
        name, text = str(item.get("name") or ""), str(item.get("arguments") or "")
        yield AnswerPart("call", text, place, item.get("call_id"), name, is_whole=True)
    elif kind in ("message", "reasoning"):
        parts = item.get("content") or item.get("summary") or []
        parts = [part for part in parts if isinstance(part, Mapping)]
        text = ("" if kind == "message" else "\n\n").join(str(p.get("text") or "") for p in parts)
        yield AnswerPart("text" if kind == "message" else "reasoning", text, place, is_whole=True)


class ResponsesStream:
    """Assembles the events of a stream to the response that its last event contains."""

    def __init__(self) -> None:
        self._items: dict[int, Any] = {}
        self._response: dict[str, Any] | None = None
        self.error: object = None
        """The error object that the server sent instead of the rest."""

    @property
    def is_complete(self) -> bool:
        """Whether the model ended its answer."""
        return self._response is not None

    def add(self, event: StreamEvent) -> None:
        """Add one event. Raises `WireError` if it is not one of this API."""
        # Deltas are repeated by the events that follow them, and are most of a stream.
        name = event.name or ""
        if not event.data or name.endswith(".delta") or event.data == b"[DONE]":
            return
        data = parse_event_json(event.data)
        kind = data.get("type") or name
        if kind == "response.output_item.done":
            place = data.get("output_index")
            self._items[place if type(place) is int else len(self._items)] = data.get("item")
        elif kind in _RESPONSE_ENDS:
            self._response = dict(expect_mapping(data.get("response"), "response"))
        elif kind == "response.failed":
            response = expect_mapping(data.get("response"), "response")
            self.error = response.get("error") or "the response failed"
        elif kind == "error":
            self.error = data.get("error") or data

    def build_answer(self) -> dict[str, Any]:
        """Return the body of the response."""
        response = self._response or {}
        # Some servers send the items only in events of their own.
        items = response.get("output") or [self._items[place] for place in sorted(self._items)]
        return {**response, "output": items}


def write_responses_error_event(body: Mapping[str, Any]) -> bytes:
    """Write an error as the last event of a stream."""
    error = body["error"]
    fields = {"code": error.get("code"), "message": error.get("message"), "param": None}
    return write_event({"type": "error", **fields, "error": error}, name="error")
