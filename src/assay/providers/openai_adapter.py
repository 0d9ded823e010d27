"""The adapter for OpenAI's chat completions: OpenAI, vLLM, SGLang, llama.cpp, gateways."""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import ConfigError
from assay.formats import from_openai_chat, to_openai_chat
from assay.types import Endpoint, Message, ModelCall, ToolSpec, validate

from .adapter import (
    READ_ERRORS,
    Attempt,
    collect_sampling,
    count_dropped_fields,
    describe_read_error,
    to_function_tools,
)
from .attempt_errors import AttemptError, ErrorKind
from .http import HttpEndpoint, encode_json_body
from .prices import Price, choose_price
from .reply import Reply
from .token_counts import completion_ids, prompt_ids, read_logprobs, read_openai_usage

PATH = "/chat/completions"
_REASONING_MODELS = ("o1", "o3", "o4", "gpt-5")
_OWN_FIELDS = frozenset(Message.model_fields) | {"reasoning_content", "function_call"}
# Keys under which converters keep fields of foreign formats: a server must not set them.
_FORMAT_MARKERS = frozenset(
    {"openai_chat", "openai_responses", "huggingface", "anthropic", "bedrock", "gemini", "spelling"}
)


class OpenAIAdapter:
    """Builds chat-completions requests and parses their answers."""

    def __init__(self, endpoint: Endpoint, http: HttpEndpoint, price: Price | None) -> None:
        self._http = http
        self._price = price
        self._endpoint = endpoint
        self._model = endpoint.model
        self._where = f"{endpoint.provider}:{endpoint.model}"
        self._sampling = collect_sampling(endpoint)
        names = ("temperature", "top_p", "stop", "thinking", "reasoning_effort")
        given = {name: getattr(endpoint, name) for name in names}
        if endpoint.max_tokens is not None and "max_completion_tokens" in endpoint.extra_params:
            raise ConfigError(
                "both `max_tokens` and extra_params['max_completion_tokens'] are set",
                where=self._where,
                hint="set one of them",
            )
        # OpenAI's reasoning models reject `max_tokens`; other servers may support nothing else.
        own = endpoint.provider in ("openai", "azure")
        reasons = own and endpoint.model.startswith(_REASONING_MODELS)
        given["max_completion_tokens" if reasons else "max_tokens"] = endpoint.max_tokens
        self._fixed: dict[str, Any] = {
            "model": endpoint.model,
            **{name: value for name, value in given.items() if value is not None},
            **endpoint.extra_params,
        }
        self._own_tools: list[Any] = self._fixed.pop("tools", None) or []

    def write(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None
    ) -> tuple[bytes, Mapping[str, int] | None]:
        """Build the body of a request."""
        converted = to_openai_chat(messages)
        body = {**self._fixed, "messages": converted.value}
        if seed is not None:
            body["seed"] = seed
        if tools or self._own_tools:
            body["tools"] = [*self._own_tools, *to_function_tools(tools)]
        lost = converted.dropped
        return encode_json_body(body, self._where), count_dropped_fields(lost) if lost else None

    async def send(self, request: bytes) -> Any:
        """Post one request."""
        return await self._http.post(request)

    def read(self, answer: Any, attempt: Attempt) -> Reply:
        """Parse the first choice as a message, and the metadata of the call."""
        choices = answer.get("choices") if isinstance(answer, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            if isinstance(answer, dict) and answer.get("error"):
                raise self._http.parse_error_object(answer["error"])
            raise AttemptError(
                ErrorKind.GARBLED, "the answer is JSON, but has no choice with a message", 200
            )
        try:
            return Reply(_read_choice_message(message), self._build_call(answer, choice, attempt))
        except READ_ERRORS as error:
            problem = describe_read_error(error)
        raise AttemptError(
            ErrorKind.GARBLED, f"the answer is not a chat completion: {problem}", 200
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _build_call(self, answer: Mapping[str, Any], choice: Any, attempt: Attempt) -> ModelCall:
        sampling = self._sampling
        if attempt.seed is not None:
            sampling = {**sampling, "seed": attempt.seed}
        price = choose_price(self._price, self._endpoint, answer.get("service_tier"))
        fields: dict[str, Any] = {
            "sampling": sampling,
            "model": answer.get("model") or self._model,
            "finish_reason": choice.get("finish_reason"),
            "usage": read_openai_usage(answer.get("usage"), price),
        }
        # A server in a training may name the weights that it sampled with.
        if isinstance(version := answer.get("weight_version"), str):
            fields["weight_version"] = version
        logprobs = choice.get("logprobs")
        if logprobs is not None or "token_ids" in choice or "prompt_token_ids" in answer:
            fields["prompt_ids"] = prompt_ids(answer, choice)
            fields["completion_ids"] = ids = completion_ids(choice)
            fields |= read_logprobs(choice, None if ids is None else len(ids))
        return attempt.build_call(fields)


def _read_choice_message(wire: dict[str, Any]) -> Message:
    # vLLM, DeepSeek and others send `reasoning_content`; OpenRouter sends `reasoning`.
    reasoning = wire.get("reasoning_content")
    if reasoning is None:
        reasoning = wire.get("reasoning")
    fields = {
        key: value
        for key, value in wire.items()
        if value is not None
        and value != []
        and key not in _OWN_FIELDS
        and key not in _FORMAT_MARKERS
    }
    calls = wire.get("tool_calls")
    # The deprecated single-call form, which some servers still send.
    if not calls and isinstance(wire.get("function_call"), dict):
        calls = [{"function": wire["function_call"]}]
    if isinstance(calls, list) and any(
        isinstance(call, dict) and call.get("type") == "custom" for call in calls
    ):
        # Calls with free text instead of arguments have a form of their own.
        calls = from_openai_chat([{"role": "assistant", "tool_calls": calls}])[0].tool_calls
    if calls:
        fields["tool_calls"] = calls
    if reasoning is not None:
        fields["reasoning"] = reasoning
    return validate(Message, {**fields, "role": "assistant", "content": wire.get("content")})
