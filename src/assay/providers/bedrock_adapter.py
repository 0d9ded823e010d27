"""The adapter for Bedrock's Converse API, which boto3 calls in threads."""

import asyncio
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import ConfigError, EndpointError, WireError
from assay.formats import from_bedrock, to_bedrock
from assay.types import Endpoint, Message, ModelCall, ToolSpec, Usage

from .adapter import (
    READ_ERRORS,
    Attempt,
    collect_sampling,
    count_dropped_fields,
    describe_read_error,
)
from .attempt_errors import AttemptError, ErrorKind, build_timeout_error
from .bedrock_client import BedrockClient
from .call_arguments import add_raw_arguments, split_arguments
from .call_threads import CallThreads
from .clock import Timing
from .prices import Price, add_cost
from .reply import ClientSettings, Reply
from .token_counts import count_separate_cache

# They would replace the conversation that is sent.
_OWN_PARAMS = ("messages", "system", "modelId", "promptVariables")
_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
}
_PROBE = {"role": "user", "content": [{"text": "Hello."}]}
_MEDIA = ("image", "document", "video", "audio")


class BedrockAdapter:
    """Builds requests of the Converse API and parses its answers."""

    def __init__(
        self, endpoint: Endpoint, settings: ClientSettings, price: Price | None, timing: Timing
    ) -> None:
        self._price = price
        self._model = endpoint.model
        self._where = f"{endpoint.provider}:{endpoint.model}"
        self._sampling = collect_sampling(endpoint)
        self._timeout_s = endpoint.timeout_s or settings.request_timeout_s
        self._fixed = _build_fixed_params(endpoint, self._where)
        tool_config = self._fixed.pop("toolConfig", {})
        # No more threads than calls: the limit on requests in flight is the limit on both.
        most = settings.concurrency or settings.max_concurrency
        self._client = BedrockClient(
            endpoint, timeout_s=self._timeout_s, connections=most, timing=timing
        )
        if problem := self._client.find_problem({**self._fixed, "messages": [_PROBE]}):
            raise ConfigError(
                f"the Converse API does not accept extra_params: {problem}", where=self._where
            )
        self._own_tools: list[Any] = tool_config.pop("tools", None) or []
        self._tool_config = tool_config
        self._threads = CallThreads(most, role="bedrock")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def write(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None
    ) -> tuple[dict[str, Any], Mapping[str, int] | None]:
        """Build the arguments of a call. The API has no seed; it only separates cached replies."""
        converted = to_bedrock(messages)
        chat = converted.value
        request = {**self._fixed, "messages": [_decode_blobs(each) for each in chat.messages]}
        if chat.system:
            request["system"] = chat.system
        if tools or self._own_tools:
            offered = [*self._own_tools, *map(_to_tool_spec, tools)]
            request["toolConfig"] = {**self._tool_config, "tools": offered}
        return request, count_dropped_fields(converted.dropped)

    async def send(self, request: dict[str, Any]) -> Any:
        """Call the API in a thread."""
        if self._closed:
            raise EndpointError(
                "the client is closed", where=self._where, hint="call connect() again"
            )
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise ConfigError(
                "the client was first used in another event loop",
                where=self._where,
                hint="call connect() in this event loop, and close each client in its own",
            )
        self._loop = loop
        try:
            # The timeouts of boto3 concern single reads, so a slow answer would never end.
            async with asyncio.timeout(self._timeout_s):
                return await self._threads.run(lambda: self._client.converse(request))
        except TimeoutError:
            fault = build_timeout_error(self._timeout_s)
        raise fault

    def read(self, answer: Any, attempt: Attempt) -> Reply:
        """Parse the message, with reasoning, and the metadata of the call."""
        output = answer.get("output") if isinstance(answer, dict) else None
        message = output.get("message") if isinstance(output, dict) else None
        if not isinstance(message, dict):
            raise AttemptError(ErrorKind.GARBLED, "the answer is JSON, but has no message", 200)
        try:
            return Reply(_read_bedrock_message(message), self._build_call(answer, attempt))
        except READ_ERRORS as error:
            problem = describe_read_error(error)
        raise AttemptError(ErrorKind.GARBLED, f"the answer is not a message: {problem}", 200)

    async def close(self) -> None:
        """Close the connections. Threads end with the calls that are under way."""
        self._closed = True
        self._threads.close()
        self._client.close()

    def _build_call(self, answer: Mapping[str, Any], attempt: Attempt) -> ModelCall:
        reason = answer.get("stopReason")
        fields: dict[str, Any] = {
            "sampling": self._sampling,
            "model": self._model,
            "finish_reason": _FINISH_REASONS.get(str(reason), reason),
            "usage": self._read_usage(answer.get("usage")),
        }
        return attempt.build_call(fields)

    def _read_usage(self, usage: Any) -> Usage | None:
        if not isinstance(usage, dict):
            return None
        known, written = count_separate_cache(
            usage.get("inputTokens"),
            usage.get("outputTokens"),
            read=usage.get("cacheReadInputTokens"),
            written=usage.get("cacheWriteInputTokens"),
        )
        return add_cost(known, self._price, cache_writes=written)


def _build_fixed_params(endpoint: Endpoint, where: str) -> dict[str, Any]:
    given = {
        "temperature": endpoint.temperature,
        "topP": endpoint.top_p,
        "maxTokens": endpoint.max_tokens,
        "stopSequences": None if endpoint.stop is None else list(endpoint.stop),
    }
    # Settings of single models, which the API passes on.
    passed = {"thinking": endpoint.thinking, "reasoning_effort": endpoint.reasoning_effort}
    fixed: dict[str, Any] = {**endpoint.extra_params, "modelId": endpoint.model}
    for name in _OWN_PARAMS:
        if name in endpoint.extra_params:
            raise ConfigError(f"`{name}` cannot be set in extra_params", where=where)
    for name, settings in (("inferenceConfig", given), ("additionalModelRequestFields", passed)):
        more = fixed.get(name) or {}
        if not isinstance(more, dict):
            raise ConfigError(f"extra_params[{name!r}] is not an object", where=where)
        known = {key: value for key, value in settings.items() if value is not None}
        if known or more:
            fixed[name] = {**known, **more}
    if not isinstance(fixed.setdefault("toolConfig", {}), dict):
        raise ConfigError("extra_params['toolConfig'] is not an object", where=where)
    fixed["toolConfig"] = dict(fixed["toolConfig"])
    return fixed


def _to_tool_spec(tool: ToolSpec) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": tool.name}
    if tool.description:  # an empty one is refused
        spec["description"] = tool.description
    schema = tool.parameters or {"type": "object", "properties": {}}
    spec["inputSchema"] = {"json": schema}
    return {"toolSpec": {**spec, **(tool.__pydantic_extra__ or {})}}


def _decode_blobs(turn: dict[str, Any]) -> dict[str, Any]:
    return {"role": turn["role"], "content": [_decode_block(block) for block in turn["content"]]}


def _decode_block(block: dict[str, Any]) -> dict[str, Any]:
    # boto3 encodes blobs itself. Inputs and results of tools may have keys of any name, so only
    # the known places are decoded.
    [(kind, value)] = block.items()
    if kind == "toolResult":
        return {kind: {**value, "content": [_decode_block(each) for each in value["content"]]}}
    if kind == "reasoningContent" and "redactedContent" in value:
        return {kind: {**value, "redactedContent": _decode(value["redactedContent"])}}
    source = value.get("source") if kind in _MEDIA and isinstance(value, dict) else None
    if isinstance(source, dict) and "bytes" in source:
        return {kind: {**value, "source": {**source, "bytes": _decode(source["bytes"])}}}
    return block


def _decode(text: Any) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (ValueError, TypeError):
        raise WireError(
            "the data of an image or a document is not base64",
            where="messages",
            hint="write images as data:image/png;base64,…",
        ) from None


def _read_bedrock_message(wire: Mapping[str, Any]) -> Message:
    blocks, raw = [], []
    for block in wire.get("content") or []:
        use = block.get("toolUse") if isinstance(block, dict) else None
        if isinstance(use, dict):
            given, text = split_arguments(use.get("input"))
            raw.append(text)
            if text is not None:
                block = {**block, "toolUse": {**use, "input": given}}
        blocks.append(block)
    return add_raw_arguments(from_bedrock([{"role": "assistant", "content": blocks}])[0], raw)
