"""The adapter for GGUF files in this process: llama.cpp without a separate server."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.errors import ConfigError
from assay.formats import to_openai_chat
from assay.types import Endpoint, Message, ModelCall, ToolSpec, Usage, encode_stable_json

from .adapter import Attempt, count_dropped_fields, to_function_tools
from .attempt_errors import AttemptError, ErrorKind, build_timeout_error
from .daemon_threads import run_in_thread
from .gguf_engine import (
    GgufAnswer,
    GgufEngine,
    assemble_answer,
    check_gguf,
    load_gguf,
    read_chat_template,
)
from .local_settings import (
    build_sampling,
    build_unreadable_calls_error,
    read_count_setting,
    read_tool_format,
    refuse_unsupported_settings,
)
from .model_hub import EMBEDDED_MODELS, find_embedded_weights
from .prices import Price, add_cost
from .reply import Reply
from .schema_calls import build_calls_schema, render_tools_as_text
from .tool_call_json import ParsedTurn
from .tool_text import (
    detect_call_style,
    knows_reasoning,
    opens_reasoning,
    read_calls,
    read_turn,
)

DEFAULT_SLOTS = 4
DEFAULT_CONTEXT = 2048
_GGUF_PARAMS = (
    "chat_template_kwargs",
    "context",
    "logprobs",
    "min_p",
    "repeat_penalty",
    "response_format",
    "slots",
    "threads",
    "tool_calls",
    "tool_format",
    "top_k",
)
_TOOL_CALLS = ("schema", "schema_first")
_RESPONSE_FORMATS = ("json_schema", "json_object", "text")
_RECORDED_SETTINGS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repeat_penalty",
    "max_tokens",
    "stop",
    "response_format",
    "chat_template_kwargs",
)
_GRAMMARS = frozenset({"response_format", "call_schema"})
_GGUF_TOOLS_NOT_RENDERED = "the chat template has no place for tools; left out"


@dataclass(frozen=True)
class _GgufRequest:
    """A body for llama.cpp, and how to parse its answer."""

    body: dict[str, Any]
    tools: Sequence[ToolSpec]
    in_words: bool
    """Whether tools and calls are part of the text, not of the chat template."""


class GgufAdapter:
    """Builds chat requests for llama.cpp in this process and parses its answers."""

    def __init__(self, endpoint: Endpoint, *, price: Price | None = None) -> None:
        refuse_unsupported_settings(endpoint, known=_GGUF_PARAMS)
        _check_gguf_params(endpoint)
        if endpoint.model in EMBEDDED_MODELS:
            self._path = find_embedded_weights(endpoint.model)
        else:
            self._path = Path(endpoint.model).expanduser()
        check_gguf(self._path, where=f"local:{endpoint.model}")
        self._model = endpoint.model
        self._price = price
        self._timeout_s = endpoint.timeout_s
        self._tool_calls = endpoint.extra_params.get("tool_calls")
        self._tool_format = read_tool_format(endpoint)
        self._templates: dict[bool, str] = {}
        self.at_once = read_count_setting(endpoint, "slots") or DEFAULT_SLOTS
        self._context = read_count_setting(endpoint, "context") or DEFAULT_CONTEXT
        self._threads = read_count_setting(endpoint, "threads")
        self._fixed = _build_gguf_base_body(endpoint)
        self._engine: GgufEngine | None = None

    def write(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None
    ) -> tuple[_GgufRequest, Mapping[str, int] | None]:
        """Build the body of a request; with forced calls, tools are described in the text."""
        in_words = bool(tools) and self._tool_calls is not None
        first_only = self._tool_calls == "schema_first"
        prompt = messages
        if in_words:
            prompt = render_tools_as_text(messages, tools, always=not first_only)
        converted = to_openai_chat(prompt, reasoning_key="reasoning_content")
        body: dict[str, Any] = {**self._fixed, "messages": converted.value}
        answered = bool(messages) and messages[-1].role in ("tool", "function")
        if in_words and not (first_only and answered):
            body["call_schema"] = build_calls_schema(tools)
        elif tools and not in_words:
            body["tools"] = to_function_tools(tools)
        if seed is not None:
            # The turns of a rollout share one seed: used directly, they would repeat the choices.
            source = f"{seed}:".encode() + encode_stable_json(body["messages"])
            digest = blake2b(source, digest_size=4).digest()
            body["seed"] = int.from_bytes(digest) % (2**32 - 1)
        return _GgufRequest(body, tools, in_words), count_dropped_fields(converted.dropped)

    async def send(self, request: _GgufRequest) -> tuple[GgufAnswer, _GgufRequest]:
        """Run one chat in a thread. A cancelled caller does not wait for it."""
        # Read by the thread after each streamed part: llama.cpp cannot be cancelled in between.
        given_up = False
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._engine is None:
                    self._engine = await run_in_thread(
                        lambda: load_gguf(
                            self._path,
                            threads=self._threads,
                            slots=self.at_once,
                            context=self._context,
                        )
                    )
                await self._read_template(with_tools=bool(request.tools))
                engine = self._engine
                parts = await run_in_thread(lambda: engine.chat(request.body, lambda: given_up))
        except TimeoutError as error:
            raise build_timeout_error(self._timeout_s) from error
        finally:
            given_up = True
        return assemble_answer(parts), request

    async def check_tools(self, tools: Sequence[ToolSpec]) -> None:
        """Raise `ConfigError` if tool calls could not be parsed from the model's text."""
        if self._tool_calls is not None or self._tool_format is not None:
            return
        template = await self._read_template(with_tools=True)
        if detect_call_style(template) is None:
            hint = "set extra_params={'tool_calls': 'schema'} to force tool calls"
            raise build_unreadable_calls_error(template, where=f"local:{self._model}", hint=hint)

    def read(self, answered: tuple[GgufAnswer, _GgufRequest], attempt: Attempt) -> Reply:
        """Parse the message and the metadata of the call."""
        answer, request = answered
        written = self._read_text(answer, request)
        fields: dict[str, Any] = {"role": "assistant", "content": written.content}
        calls = answer.calls or [call.model_dump() for call in written.calls]
        if calls:
            # Deterministic ids, so that the same request yields the same transcript.
            fields["tool_calls"] = [
                call if call.get("id") else {**call, "id": f"call_{attempt.message_index}_{index}"}
                for index, call in enumerate(calls)
            ]
        if (reasoning := answer.reasoning or written.reasoning) is not None:
            fields["reasoning"] = reasoning
        try:
            message = Message.model_validate(fields)
            return Reply(message, self._build_call(answer, request, message, attempt))
        except ValidationError as error:
            problem = str(error.errors()[0]["msg"])
        raise AttemptError(ErrorKind.GARBLED, f"llama.cpp returned an invalid message: {problem}")

    async def close(self) -> None:
        """Release the model; it stays loaded for other clients that use it."""
        self._engine = None

    def _read_text(self, answer: GgufAnswer, request: _GgufRequest) -> ParsedTurn:
        # llama.cpp leaves forced calls, and formats that it does not know, in the text.
        if request.in_words:
            return read_calls(answer.content, "llama")
        template = self._templates.get(bool(request.tools), "")
        style = self._tool_format or detect_call_style(template)
        opened = opens_reasoning(answer.prompt or "", style)
        return read_turn(
            answer.content,
            style,
            tools=() if answer.calls else request.tools,
            opened=opened,
            reasons=answer.reasoning is None and (opened or knows_reasoning(template, style)),
            cut_short=answer.finish_reason == "length",
        )

    async def _read_template(self, *, with_tools: bool) -> str:
        if with_tools not in self._templates:
            self._templates[with_tools] = await run_in_thread(
                lambda: read_chat_template(self._path, tools=with_tools)
            )
        return self._templates[with_tools]

    def _build_call(
        self, answer: GgufAnswer, request: _GgufRequest, message: Message, attempt: Attempt
    ) -> ModelCall:
        finish, body, tools = answer.finish_reason, request.body, request.tools
        sampling = {name: body[name] for name in _RECORDED_SETTINGS if name in body}
        if request.in_words:
            sampling["tool_calls"] = self._tool_calls
        if attempt.seed is not None:
            sampling["seed"] = attempt.seed
        fields: dict[str, Any] = {
            "completion_ids": answer.ids,
            "sampling": sampling,
            "model": self._model,
            "finish_reason": "tool_calls" if message.tool_calls and finish == "stop" else finish,
            "usage": self._read_usage(answer.usage or {}),
            "latency_s": attempt.latency_s,
            "attempts": attempt.number,
            "message_index": attempt.message_index,
            **_read_gguf_logprobs(answer, body),
        }
        if answer.fills_context(body["max_tokens"]):
            fields["context_full"] = True
        lost = dict(attempt.lost or {})
        rendered = answer.prompt is None or any(tool.name in answer.prompt for tool in tools)
        if tools and not request.in_words and not rendered:
            lost[_GGUF_TOOLS_NOT_RENDERED] = len(tools)
        if lost:
            fields["lost"] = lost
        return ModelCall.model_validate(fields)

    def _read_usage(self, usage: Mapping[str, Any]) -> Usage:
        details = usage.get("prompt_tokens_details") or {}
        known = Usage(
            input_tokens=usage.get("prompt_tokens"),
            output_tokens=usage.get("completion_tokens"),
            cached_tokens=details.get("cached_tokens"),
        )
        return add_cost(known, self._price)


def _check_gguf_params(endpoint: Endpoint) -> None:
    where, extra = f"local:{endpoint.model}", endpoint.extra_params
    choice, form = extra.get("tool_calls"), extra.get("response_format")
    wrong = None
    if choice not in (None, *_TOOL_CALLS):
        wrong = f"tool_calls={choice!r} is not one of {', '.join(map(repr, _TOOL_CALLS))}"
    elif form is not None and not isinstance(form, dict):
        wrong = "response_format is not an object"
    elif form is not None and choice is not None:
        wrong = "response_format and tool_calls cannot be combined: both constrain the reply"
    elif not isinstance(extra.get("logprobs", False), bool):
        wrong = "logprobs is not true or false"
    if wrong:
        raise ConfigError(f"extra_params: {wrong}", where=where)


def _build_gguf_base_body(endpoint: Endpoint) -> dict[str, Any]:
    # The defaults of llama.cpp truncate the distribution (top_k=40, min_p=0.05): disable them.
    sampling, extra = build_sampling(endpoint), endpoint.extra_params
    body: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": extra.get("min_p", 0.0),
        "repeat_penalty": extra.get("repeat_penalty", 1.0),
        "max_tokens": sampling.max_tokens,
        "verbose": True,  # returns the rendered prompt
    }
    if endpoint.stop:
        body["stop"] = list(endpoint.stop)
    if extra.get("chat_template_kwargs"):
        body["chat_template_kwargs"] = extra["chat_template_kwargs"]
    if (form := extra.get("response_format")) is not None:
        plain = form.get("type") not in _RESPONSE_FORMATS
        schema = {"type": "json_schema", "json_schema": {"name": "reply", "schema": form}}
        body["response_format"] = schema if plain else form
    if extra.get("logprobs"):
        # Only unstreamed answers have all ids: streamed parts omit the end of the turn.
        return {**body, "logprobs": True, "top_logprobs": 1, "return_tokens": True}
    return {**body, "stream": True, "stream_options": {"include_usage": True}}


def _read_gguf_logprobs(answer: GgufAnswer, body: Mapping[str, Any]) -> dict[str, Any]:
    # llama.cpp reports logprobs before temperature, filters and grammar. They are recorded only
    # where that is the distribution which was sampled from.
    if answer.logprobs is None:
        return {}
    if len(answer.logprobs) != len(answer.ids or ()):
        what = f"{len(answer.logprobs)} for {len(answer.ids or ())} token ids"
        return {"logprobs_left_out": what}
    if body["temperature"] not in (0, 1) or body.keys() & _GRAMMARS:
        return {"logprobs_left_out": "given for temperature 1 and free text, which this was not"}
    filters = (body["top_p"], body["top_k"], body["min_p"], body["repeat_penalty"])
    if body["temperature"] == 1 and filters != (1, 0, 0, 1):
        return {"logprobs_left_out": "given as they are before top_p, top_k, min_p and penalties"}
    return {"logprobs": answer.logprobs}
