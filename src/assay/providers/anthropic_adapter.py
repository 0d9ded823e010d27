"""Anthropic's messages API."""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import ConfigError
from assay.formats import from_anthropic, to_anthropic
from assay.types import Endpoint, Message, ModelCall, ToolSpec, Usage

from .adapter import (
    READ_ERRORS,
    Attempt,
    collect_sampling,
    count_dropped_fields,
    describe_read_error,
)
from .attempt_errors import AttemptError, ErrorKind
from .call_arguments import add_raw_arguments, split_arguments
from .http import HttpEndpoint, encode_json_body
from .prices import Price, add_cost, choose_price
from .reply import Reply
from .token_counts import count_separate_cache

PATH = "/v1/messages"
ANTHROPIC_DEFAULT_MAX_TOKENS = 4096
"""Anthropic requires a limit; this one is sent and recorded if the endpoint has none."""


class AnthropicAdapter:
    """Builds requests of the messages API and parses its answers."""

    def __init__(self, endpoint: Endpoint, http: HttpEndpoint, price: Price | None) -> None:
        self._http = http
        self._price = price
        self._endpoint = endpoint
        self._model = endpoint.model
        self._where = f"{endpoint.provider}:{endpoint.model}"
        if endpoint.reasoning_effort is not None:
            raise ConfigError(
                "`reasoning_effort` is a setting of OpenAI; Anthropic takes `thinking`",
                where=self._where,
                hint="pass Endpoint(thinking={'type': 'enabled', 'budget_tokens': 2048}, ...)",
            )
        given = {
            "temperature": endpoint.temperature,
            "top_p": endpoint.top_p,
            "stop_sequences": endpoint.stop,
            "thinking": endpoint.thinking,
        }
        self._fixed: dict[str, Any] = {
            "model": endpoint.model,
            "max_tokens": endpoint.max_tokens or ANTHROPIC_DEFAULT_MAX_TOKENS,
            **{name: value for name, value in given.items() if value is not None},
            **endpoint.extra_params,
        }
        self._own_tools: list[Any] = self._fixed.pop("tools", None) or []
        recorded = collect_sampling(endpoint)
        self._sampling = {"max_tokens": self._fixed["max_tokens"], **recorded}

    def write(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None
    ) -> tuple[bytes, Mapping[str, int] | None]:
        """Build the body of a request. The API has no seed; it only separates cached replies."""
        converted = to_anthropic(messages)
        chat = converted.value
        body = {**self._fixed, "messages": chat.messages}
        if chat.system is not None:
            body["system"] = chat.system
        if tools or self._own_tools:
            body["tools"] = [
                *self._own_tools,
                *(
                    {
                        "name": tool.name,
                        "description": tool.description,
                        "input_schema": tool.parameters,
                        **(tool.__pydantic_extra__ or {}),
                    }
                    for tool in tools
                ),
            ]
        return encode_json_body(body, self._where), count_dropped_fields(converted.dropped)

    async def send(self, request: bytes) -> Any:
        """Post one request."""
        return await self._http.post(request)

    def read(self, answer: Any, attempt: Attempt) -> Reply:
        """Parse the message, with thinking as reasoning, and the metadata of the call."""
        blocks = answer.get("content") if isinstance(answer, dict) else None
        if isinstance(answer, dict) and blocks is None and answer.get("error"):
            raise self._http.parse_error_object(answer["error"])
        if not isinstance(blocks, list):
            raise AttemptError(
                ErrorKind.GARBLED, "the answer is JSON, but has no message content", 200
            )
        try:
            return Reply(_read_anthropic_message(blocks), self._build_call(answer, attempt))
        except READ_ERRORS as error:
            problem = describe_read_error(error)
        raise AttemptError(ErrorKind.GARBLED, f"the answer is not a message: {problem}", 200)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _build_call(self, answer: Mapping[str, Any], attempt: Attempt) -> ModelCall:
        fields: dict[str, Any] = {
            "sampling": self._sampling,
            "model": answer.get("model") or self._model,
            "finish_reason": answer.get("stop_reason"),
            "usage": self._read_usage(answer.get("usage")),
        }
        return attempt.build_call(fields)

    def _read_usage(self, usage: Any) -> Usage | None:
        if not isinstance(usage, dict):
            return None
        known, written = count_separate_cache(
            usage.get("input_tokens"),
            usage.get("output_tokens"),
            read=usage.get("cache_read_input_tokens"),
            written=usage.get("cache_creation_input_tokens"),
        )
        creation, tools = usage.get("cache_creation"), usage.get("server_tool_use")
        # The one-hour cache has a higher price, and searches have one of their own, which the table
        # lacks: the cost is then unknown.
        hour_long = isinstance(creation, dict) and creation.get("ephemeral_1h_input_tokens")
        if hour_long or (isinstance(tools, dict) and tools.get("web_search_requests")):
            return known
        price = choose_price(self._price, self._endpoint, usage.get("service_tier"))
        return add_cost(known, price, cache_writes=written)


def _read_anthropic_message(blocks: list[Any]) -> Message:
    plain = [
        {key: value for key, value in block.items() if value is not None}
        if isinstance(block, dict)
        else block
        for block in blocks
    ]
    raw: list[str | None] = []
    for index, block in enumerate(plain):
        if isinstance(block, dict) and block.get("type") == "tool_use":
            given, text = split_arguments(block.get("input"))
            raw.append(text)
            if text is not None:
                plain[index] = {**block, "input": given}
    content: Any = plain
    if len(plain) == 1 and isinstance(plain[0], dict) and plain[0].keys() == {"type", "text"}:
        # A single text block becomes a string, as other providers return it.
        content = plain[0]["text"]
    return add_raw_arguments(from_anthropic([{"role": "assistant", "content": content}])[0], raw)
