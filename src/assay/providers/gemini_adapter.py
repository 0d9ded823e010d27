"""The adapter for Gemini's own API: generateContent of the Generative Language API."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from assay.errors import ConfigError
from assay.formats import Dropped, from_gemini, to_gemini
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
from .prices import Price, add_cost
from .reply import Reply
from .token_counts import completion_ids, drop_absurd_counts, read_logprobs

# They would replace the conversation that is sent, or repeat a setting of the endpoint.
_OWN_PARAMS = ("contents", "systemInstruction", "system_instruction", "generation_config")
_FINISH_REASONS = {"STOP": "stop", "MAX_TOKENS": "length"}
_BLOCKING_REASONS = frozenset(
    """
    SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT
    IMAGE_RECITATION
    """.split()
)
_EMPTY_NOTE = "an empty message; left out"
# The API's seed is a signed 32-bit integer.
_SEED_RANGE = 2**31


def build_gemini_path(model: str, *, method: str = "generateContent") -> str:
    """Return the path of a model, which may have a folder: `models/` or `tunedModels/`."""
    name = model if "/" in model else f"models/{model}"
    return f"/{quote(name, safe='/@')}:{method}"


class GeminiAdapter:
    """Builds requests of generateContent and parses its answers."""

    def __init__(self, endpoint: Endpoint, http: HttpEndpoint, price: Price | None) -> None:
        self._http = http
        self._price = price
        self._model = endpoint.model
        self._where = f"{endpoint.provider}:{endpoint.model}"
        self._sampling = collect_sampling(endpoint)
        self._fixed: dict[str, Any] = dict(endpoint.extra_params)
        given = {
            "temperature": endpoint.temperature,
            "topP": endpoint.top_p,
            "maxOutputTokens": endpoint.max_tokens,
            "stopSequences": endpoint.stop,
            "thinkingConfig": _build_thinking_config(endpoint),
        }
        more = self._fixed.pop("generationConfig", None) or {}
        self._check_params(more)
        self._config = {name: value for name, value in given.items() if value is not None} | more
        self._own_tools: list[Any] = self._fixed.pop("tools", None) or []

    def write(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None
    ) -> tuple[bytes, Mapping[str, int] | None]:
        """Build the body of a request."""
        converted = to_gemini(messages)
        chat = converted.value
        # The API refuses a content without parts, such as a candidate that was blocked.
        contents = [content for content in chat.contents if content["parts"]]
        empty = [Dropped("contents", _EMPTY_NOTE)] * (len(chat.contents) - len(contents))
        body = {**self._fixed, "contents": contents}
        if chat.system_instruction is not None:
            body["systemInstruction"] = chat.system_instruction
        config = self._config
        if seed is not None:
            config = {**config, "seed": seed % _SEED_RANGE}
        if config:
            body["generationConfig"] = config
        if tools or self._own_tools:
            declared = {"functionDeclarations": [_to_declaration(tool) for tool in tools]}
            body["tools"] = [*self._own_tools, *([declared] if tools else [])]
        lost = count_dropped_fields([*converted.dropped, *empty])
        return encode_json_body(body, self._where), lost

    async def send(self, request: bytes) -> Any:
        """Post one request."""
        return await self._http.post(request)

    def read(self, answer: Any, attempt: Attempt) -> Reply:
        """Parse the first candidate, with thoughts as reasoning, and the metadata of the call."""
        candidates = answer.get("candidates") if isinstance(answer, dict) else None
        candidate = candidates[0] if isinstance(candidates, list) and candidates else None
        if not isinstance(candidate, dict):
            raise self._build_answer_error(answer)
        try:
            message = _read_candidate_message(candidate)
            return Reply(message, self._build_call(answer, candidate, message, attempt))
        except READ_ERRORS as error:
            problem = describe_read_error(error)
        raise AttemptError(ErrorKind.GARBLED, f"the answer is not a candidate: {problem}", 200)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _check_params(self, generation_config: Any) -> None:
        for name in _OWN_PARAMS:
            if name in self._fixed:
                raise ConfigError(
                    f"`{name}` cannot be set in extra_params",
                    where=self._where,
                    hint="settings of the generation belong in `generationConfig`",
                )
        if not isinstance(generation_config, dict):
            raise ConfigError(
                "extra_params['generationConfig'] is not an object", where=self._where
            )
        if generation_config.get("candidateCount") not in (None, 1):
            raise ConfigError(
                "`candidateCount` is set, but a reply is one message",
                where=self._where,
                hint="call the model several times instead, each time with another seed",
            )

    def _build_answer_error(self, answer: Any) -> AttemptError:
        if not isinstance(answer, dict):
            answer = {}
        if answer.get("error"):
            return self._http.parse_error_object(answer["error"])
        feedback = answer.get("promptFeedback")
        reason = feedback.get("blockReason") if isinstance(feedback, dict) else None
        if not isinstance(reason, str):
            return AttemptError(ErrorKind.GARBLED, "the answer is JSON, but has no candidate", 200)
        return AttemptError(
            ErrorKind.REFUSED,
            f"the prompt was blocked: {reason[:50]}",
            200,
            hint="Gemini's safety filter blocked this conversation; `safetySettings` in "
            "extra_params may loosen it",
        )

    def _build_call(
        self,
        answer: Mapping[str, Any],
        candidate: Mapping[str, Any],
        message: Message,
        attempt: Attempt,
    ) -> ModelCall:
        sampling = self._sampling
        if attempt.seed is not None:
            sampling = {**sampling, "seed": attempt.seed}
        fields: dict[str, Any] = {
            "sampling": sampling,
            "model": answer.get("modelVersion") or self._model,
            "finish_reason": _find_gemini_finish(candidate.get("finishReason"), message),
            "usage": self._read_usage(answer.get("usageMetadata"), candidate),
        }
        if isinstance(candidate.get("finishMessage"), str):
            # Why a candidate is empty, such as the text of a call that could not be parsed.
            fields["finish_message"] = candidate["finishMessage"]
        if "logprobsResult" in candidate:
            choice = _to_openai_logprobs(candidate["logprobsResult"])
            fields["completion_ids"] = ids = completion_ids(choice)
            fields |= read_logprobs(choice, None if ids is None else len(ids))
        return attempt.build_call(fields)

    def _read_usage(self, usage: Any, candidate: Mapping[str, Any]) -> Usage | None:
        if not isinstance(usage, dict) or usage.get("promptTokenCount") is None:
            return None
        # Zeros are left out of the answer. Thoughts and the prompts of built-in tools are counted
        # separately; `Usage` includes them.
        thoughts = usage.get("thoughtsTokenCount")
        fields = {
            "input_tokens": usage["promptTokenCount"] + usage.get("toolUsePromptTokenCount", 0),
            "output_tokens": usage.get("candidatesTokenCount", 0) + (thoughts or 0),
            "cached_tokens": usage.get("cachedContentTokenCount"),
            "reasoning_tokens": thoughts,
        }
        known = drop_absurd_counts(Usage.model_validate(fields))
        # Audio and searches have prices of their own, which the table lacks: the cost is unknown.
        grounding = candidate.get("groundingMetadata")
        searched = isinstance(grounding, dict) and grounding.get("webSearchQueries")
        if searched or "AUDIO" in str(usage.get("promptTokensDetails")):
            return known
        return add_cost(known, self._price)


def _build_thinking_config(endpoint: Endpoint) -> dict[str, Any] | None:
    config = dict(endpoint.thinking or {})
    if endpoint.reasoning_effort is not None:
        config["thinkingLevel"] = endpoint.reasoning_effort
    return config or None


def _to_declaration(tool: ToolSpec) -> dict[str, Any]:
    declared: dict[str, Any] = {"name": tool.name, "description": tool.description}
    # Not `parameters`, which takes a subset of JSON Schema only. A tool without parameters has no
    # schema at all: the API rejects an object without properties.
    if tool.parameters and tool.parameters.get("properties", True):
        declared["parametersJsonSchema"] = tool.parameters
    return {**declared, **(tool.__pydantic_extra__ or {})}


def _read_candidate_message(candidate: Mapping[str, Any]) -> Message:
    content = candidate.get("content")
    if content is None:
        content = {}  # a candidate that was blocked, or that ended while thinking
    if not isinstance(content, dict):
        raise TypeError
    parts, raw = [], []
    for part in content.get("parts") or []:
        call = part.get("functionCall") if isinstance(part, dict) else None
        if isinstance(call, dict):
            given, text = split_arguments(call.get("args"))
            raw.append(text)
            if text is not None:
                part = {**part, "functionCall": {**call, "args": given}}
        parts.append(part)
    return add_raw_arguments(from_gemini([{"role": "model", "parts": parts}])[0], raw)


def _find_gemini_finish(reason: Any, message: Message) -> Any:
    if reason == "STOP" and message.tool_calls:
        return "tool_calls"
    if reason in _BLOCKING_REASONS:
        return "content_filter"
    return _FINISH_REASONS.get(reason, reason.lower()) if isinstance(reason, str) else reason


def _to_openai_logprobs(result: Any) -> dict[str, Any]:
    chosen = result.get("chosenCandidates") if isinstance(result, dict) else None
    if not isinstance(chosen, list) or not all(isinstance(entry, dict) for entry in chosen):
        return {}
    entries = [{"logprob": entry.get("logProbability")} for entry in chosen]
    return {
        "token_ids": [entry.get("tokenId") for entry in chosen],
        "logprobs": {"content": entries},
    }
