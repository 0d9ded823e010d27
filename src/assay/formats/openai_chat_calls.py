"""Requests, answers and event streams of OpenAI's chat completions."""

from collections.abc import Iterator, Mapping
from typing import Any

from assay.errors import WireError
from assay.types import Message, ToolSpec, Usage

from .answer_writer import AnswerPart, AnswerPartKind, AnswerSection, AnswerWriter
from .conversion import (
    Dropped,
    expect_mapping,
    expect_sequence,
    expect_text,
    read_items,
    validate_wire,
)
from .model_request import (
    ModelAnswer,
    ModelRequest,
    build_free_text_tool,
    build_translation_error,
    collect_settings,
    describe_free_text_tool,
    get_free_text,
    read_answer_format,
    read_tool_choice,
    wrap_free_text_calls,
)
from .openai_chat import from_openai_chat, to_openai_chat
from .server_sent_events import StreamEvent, parse_event_json, write_event

_STREAM_END = b"[DONE]"

_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "seed": "seed",
    "parallel_tool_calls": "parallel_tool_calls",
    "reasoning_effort": "reasoning_effort",
}
_READ_ELSEWHERE = frozenset(
    {"model", "messages", "tools", "stream", "stream_options", "stop", "tool_choice"}
    | {"response_format", "n"}
)
# Bookkeeping of OpenAI's servers, and wishes about the style of an answer.
_IGNORED = frozenset(
    {"user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention"}
    | {"safety_identifier", "verbosity"}
)
# Parts of a message that grow with each chunk.
_TEXT_KEYS = ("content", "reasoning_content", "reasoning", "refusal")
# The kinds of calls, and the part of each that grows with each chunk.
_CALL_TEXTS = {"function": "arguments", "custom": "input"}
_DELTA_PARTS: dict[str, AnswerPartKind] = {
    "content": "text",
    "reasoning_content": "reasoning",
    "reasoning": "reasoning",
    "refusal": "refusal",
}


def read_chat_request(body: Mapping[str, Any]) -> ModelRequest:
    """Read a request. Raises `WireError` for fields that only this API has."""
    if body.get("n") not in (None, 1):
        raise build_translation_error("n")
    settings, dropped = collect_settings(
        body, names=_SETTINGS, known=_READ_ELSEWHERE, ignored=_IGNORED
    )
    if (stop := body.get("stop")) is not None:
        settings["stop"] = (
            (stop,) if isinstance(stop, str) else tuple(expect_sequence(stop, "stop"))
        )
    if (choice := body.get("tool_choice")) is not None:
        nested = choice.get(str(choice.get("type"))) if isinstance(choice, Mapping) else None
        settings["tool_choice"] = read_tool_choice(choice, nested)
    schema = read_answer_format(
        body.get("response_format"), "response_format", nested="json_schema"
    )
    if schema is not None:
        settings["response_schema"] = schema
    tools, free_text = _read_chat_tools(body.get("tools") or [], dropped)
    return ModelRequest(
        read_chat_conversation(body),
        tools,
        settings,
        frozenset(free_text),
        dropped=tuple(dropped),
    )


def read_chat_conversation(body: Mapping[str, Any]) -> list[Message]:
    """Read the messages of a request."""
    return wrap_free_text_calls(from_openai_chat(body.get("messages") or []))


def _read_chat_tools(
    given: object, dropped: list[Dropped]
) -> tuple[tuple[ToolSpec, ...], list[str]]:
    free_text: list[str] = []

    def read(tool: object, where: str) -> ToolSpec:
        data = expect_mapping(tool, where)
        kind = data.get("type")
        if kind == "custom":
            custom = expect_mapping(data.get("custom"), f"{where}.custom")
            name = expect_text(custom.get("name"), f"{where}.custom.name")
            free_text.append(name)
            form = custom.get("format")
            grammar = form.get("grammar") if isinstance(form, Mapping) else None
            described = describe_free_text_tool({**custom, "format": grammar})
            return build_free_text_tool(name, described)
        if kind != "function":
            raise build_translation_error(f"{where}.type={kind!r}")
        function = dict(expect_mapping(data.get("function"), f"{where}.function"))
        if function.pop("strict", None):
            dropped.append(
                Dropped(
                    f"{where}.function.strict", "`strict` of a tool has no equivalent; left out"
                )
            )
        fields = {key: value for key, value in function.items() if value is not None}
        return validate_wire(ToolSpec, fields, where)

    return tuple(read_items(given, "tools", read)), free_text


def write_chat_answer(answer: ModelAnswer) -> dict[str, Any]:
    """Write an answer as the body of a response."""
    (message,) = to_openai_chat([answer.message], reasoning_key="reasoning_content").value
    # Keys of other formats, such as the items of the Responses API, are not part of an answer.
    kept = {
        key: message[key]
        for key in ("role", "content", "reasoning_content", "refusal", "tool_calls")
        if key in message
    }
    for place, call in enumerate(answer.message.tool_calls):
        if call.name in answer.free_text_tools:
            custom = {"name": call.name, "input": get_free_text(call)}
            kept["tool_calls"][place] = {"id": call.id, "type": "custom", "custom": custom}
    choice = {
        "index": 0,
        "message": {**kept, "content": answer.message.text if kept.get("content") else None},
        "logprobs": None,
        "finish_reason": answer.finish_reason,
    }
    body = {
        "id": f"chatcmpl-{answer.id}",
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [choice],
    }
    usage = _write_chat_usage(answer.usage)
    return body if usage is None else {**body, "usage": usage}


def _write_chat_usage(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    written: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
    if usage.cached_tokens is not None:
        written["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        written["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return written


def write_chat_events(body: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[bytes]:
    """Write the body of a response as the event stream that `request` asked for."""
    head = {
        "id": body.get("id"),
        "object": "chat.completion.chunk",
        "created": body.get("created"),
        "model": body.get("model"),
    }
    for choice in body.get("choices") or []:
        place = {"index": choice.get("index", 0)}
        for delta in _split_message(choice.get("message") or {}):
            part = {**place, "delta": delta, "finish_reason": None}
            yield write_event({**head, "choices": [part]})
        last = {**place, "delta": {}, "finish_reason": choice.get("finish_reason") or "stop"}
        yield write_event({**head, "choices": [last]})
    options = request.get("stream_options")
    if isinstance(options, Mapping) and options.get("include_usage") and body.get("usage"):
        yield write_event({**head, "choices": [], "usage": body["usage"]})
    yield write_event(_STREAM_END.decode())


def _split_message(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for key in ("reasoning_content", "reasoning", "content", "refusal"):
        if message.get(key):
            yield {key: message[key]}
    for index, call in enumerate(message.get("tool_calls") or []):
        yield {"tool_calls": [{"index": index, **call}]}


class ChatWriter(AnswerWriter):
    """Writes an answer as chunks while it arrives."""

    def write_start(self) -> Iterator[bytes]:
        """Yield the chunk with the role."""
        yield self.encode({"delta": {"role": "assistant", "content": ""}})

    def write_section(self, section: AnswerSection) -> Iterator[tuple[bool, dict[str, Any]]]:
        """Yield the chunks of a text, or of a call: its name first."""
        if section.kind == "call":
            kind, key, text = "function", "arguments", section.text
            if self.holds_back(section):
                kind, key, text = "custom", "input", section.free_text
            at = {"index": section.kind_index}
            first = {"id": section.call_id, "type": kind, kind: {"name": section.name, key: ""}}
            yield False, {"delta": {"tool_calls": [{**at, **first}]}}
            yield True, {"delta": {"tool_calls": [{**at, kind: {key: text}}]}}
            return
        key = {"reasoning": "reasoning_content", "refusal": "refusal"}.get(section.kind, "content")
        if section.kind == "reasoning" and section.kind_index:
            # One text here, which is joined as `Message.reasoning` is.
            yield False, {"delta": {key: "\n\n"}}
        yield True, {"delta": {key: section.text}}

    def write_end(self, answer: ModelAnswer) -> Iterator[bytes]:
        """Yield the chunk with the reason, the usage if it was asked for, and the end mark."""
        yield self.encode({"delta": {}, "finish_reason": answer.finish_reason})
        usage = _write_chat_usage(answer.usage)
        if self.include_usage and usage is not None:
            yield write_event({**self._build_head(), "choices": [], "usage": usage})
        yield write_event(_STREAM_END.decode())

    def encode(self, fields: dict[str, Any]) -> bytes:
        """Return a chunk with one choice."""
        choice = {"index": 0, "finish_reason": None, **fields}
        return write_event({**self._build_head(), "choices": [choice]})

    def _build_head(self) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.head.id}",
            "object": "chat.completion.chunk",
            "created": self.head.created,
            "model": self.head.model,
        }


def read_chat_parts(event: StreamEvent) -> Iterator[AnswerPart]:
    """Yield the parts of the answer in one chunk. Raises `WireError` if it is not one."""
    if not event.data or event.data.strip() == _STREAM_END:
        return
    chunk = parse_event_json(event.data)
    if isinstance(model := chunk.get("model"), str):
        yield AnswerPart("start", model)
    for choice in chunk.get("choices") or ():
        delta = _expect_object(choice, "choices").get("delta")
        delta = _expect_object(delta or {}, "delta")
        for key in _TEXT_KEYS:
            # Servers that send both spellings of the reasoning mean the same text.
            is_copy = key == "reasoning" and delta.get("reasoning_content")
            if isinstance(text := delta.get(key), str) and text and not is_copy:
                yield AnswerPart(_DELTA_PARTS[key], text)
        for position, call in enumerate(delta.get("tool_calls") or ()):
            place = _expect_object(call, "tool_calls").get("index", position)
            function = _expect_object(call.get("function") or {}, "function")
            yield AnswerPart(
                "call",
                function.get("arguments") or "",
                place if type(place) is int else position,
                call.get("id"),
                function.get("name") or "",
            )


class ChatStream:
    """Assembles the chunks of a stream to the body that the same request would have returned."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._last: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self.error: object = None
        """The error object that the server sent instead of the rest."""

    @property
    def is_complete(self) -> bool:
        """Whether the model ended its answer."""
        return bool(self._choices) and all(
            choice.get("finish_reason") for choice in self._choices.values()
        )

    def add(self, event: StreamEvent) -> None:
        """Add one event. Raises `WireError` if it is not a chunk."""
        if not event.data or event.data.strip() == _STREAM_END:
            return
        chunk = parse_event_json(event.data)
        # OpenAI sends an object with an error; some servers name the event or the object so.
        if chunk.get("error") or event.name == "error" or chunk.get("object") == "error":
            self.error = chunk.get("error") or chunk
            return
        choices = chunk.pop("choices", None)
        # Streams have thousands of chunks, which differ in their choices only.
        if chunk != self._last:
            self._last = chunk
            self._head |= {key: value for key, value in chunk.items() if value is not None}
        for choice in choices or ():
            self._add_choice(_expect_object(choice, "choices"))

    def build_answer(self) -> dict[str, Any]:
        """Return the body of the response."""
        choices = []
        for index, choice in sorted(self._choices.items()):
            message: dict[str, Any] = {
                key: "".join(value) if key in _TEXT_KEYS and value is not None else value
                for key, value in choice["message"].items()
            }
            if isinstance(legacy := message.get("function_call"), dict):
                message["function_call"] = _join_call(legacy[0])["function"]
            calls = message.pop("tool_calls", {})
            if calls:
                message["tool_calls"] = [_join_call(calls[place]) for place in sorted(calls)]
            choices.append({**choice, "index": index, "message": message})
        return {**self._head, "object": "chat.completion", "choices": choices}

    def _add_choice(self, choice: Mapping[str, Any]) -> None:
        index = choice.get("index", 0)
        index = index if type(index) is int else 0
        whole = self._choices.get(index)
        if whole is None:
            whole = {"message": {"role": "assistant", "content": None}, "finish_reason": None}
            self._choices[index] = whole
        for key, value in choice.items():
            if value is None or key == "index":
                continue
            if key == "delta":
                _merge_delta(whole["message"], _expect_object(value or {}, "delta"))
            elif key == "logprobs":
                if isinstance(value, Mapping):
                    kept = whole.setdefault("logprobs", {"content": []})
                    kept["content"] += value.get("content") or []
            elif key == "token_ids":
                if isinstance(value, list):
                    whole.setdefault("token_ids", []).extend(value)
            else:
                whole[key] = value


def _expect_object(value: object, where: str) -> dict[str, Any]:
    # Faster than `expect_mapping`: streams have thousands of chunks, all parsed from JSON.
    if type(value) is not dict:
        raise WireError("a chunk of the stream has no object where one belongs", where=where)
    return value


def _merge_delta(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for key, value in delta.items():
        if key in _TEXT_KEYS:
            # Joined at the end: a longer and longer text would be copied with each chunk.
            if isinstance(value, str):
                if (parts := message.get(key)) is None:
                    message[key] = [value]
                else:
                    parts.append(value)
        elif key == "tool_calls":
            calls = message.setdefault("tool_calls", {})
            for position, call in enumerate(value or []):
                _merge_call(calls, _expect_object(call, "tool_calls"), position)
        elif key == "function_call" and isinstance(value, Mapping):
            # The deprecated predecessor of `tool_calls`.
            _merge_call(message.setdefault(key, {}), {"function": value}, 0)
        elif isinstance(value, list) and isinstance(message.get(key), list):
            # Such as the `reasoning_details` of OpenRouter, a piece in each chunk.
            message[key] += value
        elif value is not None:
            message[key] = value


def _merge_call(calls: dict[int, Any], part: Mapping[str, Any], position: int) -> None:
    index = part.get("index", position)
    if type(index) is not int:
        raise WireError("the index of a tool call is not a number", where="tool_calls")
    call = calls.setdefault(index, {"type": "function"})
    for key, value in part.items():
        if key in _CALL_TEXTS and isinstance(value, Mapping):
            whole = call.setdefault(key, {"name": [], _CALL_TEXTS[key]: []})
            for name, pieces in whole.items():
                piece = value.get(name) or ""
                if type(piece) is not str:
                    raise WireError(f"the {name} of a tool call is not text", where="tool_calls")
                pieces.append(piece)
        elif key != "index" and key not in _CALL_TEXTS and value is not None:
            call[key] = value


def _join_call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: {name: "".join(pieces) for name, pieces in value.items()}
        if key in _CALL_TEXTS
        else value
        for key, value in call.items()
    }


def write_chat_error(status: int, message: str, code: str | None) -> dict[str, Any]:
    """Write the body of an error as OpenAI's clients read it."""
    kinds = {401: "authentication_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
