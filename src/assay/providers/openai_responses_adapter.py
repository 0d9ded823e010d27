"""The adapter for OpenAI's Responses API, used without state on the server."""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import ConfigError
from assay.formats import read_responses_answer, to_openai_responses
from assay.types import Endpoint, Message, ModelCall, ToolSpec

from .adapter import (
    READ_ERRORS,
    Attempt,
    collect_sampling,
    count_dropped_fields,
    describe_read_error,
)
from .attempt_errors import AttemptError, ErrorKind
from .http import HttpEndpoint, encode_json_body
from .prices import Price, choose_price
from .reply import Reply
from .token_counts import read_openai_usage

RESPONSES_PATH = "/responses"
_ENCRYPTED_REASONING = "reasoning.encrypted_content"
_REASONING_PREFIXES = ("o1", "o3", "o4", "gpt-5")
_UNSUPPORTED_SETTINGS = ("stop", "seed", "thinking")
# They would replace the conversation that is sent, or defer the answer.
_STATE_PARAMS = ("input", "previous_response_id", "conversation", "background")
_PAID_CALLS = (
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
)
_FINISH_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}
_ERROR_KINDS = {
    "server_error": ErrorKind.OVERLOADED,
    "rate_limit_exceeded": ErrorKind.THROTTLED,
    "vector_store_timeout": ErrorKind.OVERLOADED,
}


class OpenAIResponsesAdapter:
    """Builds requests of the Responses API and parses its answers."""

    def __init__(self, endpoint: Endpoint, http: HttpEndpoint, price: Price | None) -> None:
        self._http = http
        self._price = price
        self._endpoint = endpoint
        self._model = endpoint.model
        self._where = f"{endpoint.provider}:{endpoint.model}"
        self._sampling = collect_sampling(endpoint)
        _check_responses_settings(endpoint, self._where)
        given = {
            "temperature": endpoint.temperature,
            "top_p": endpoint.top_p,
            "max_output_tokens": endpoint.max_tokens,
        }
        self._fixed: dict[str, Any] = {
            "model": endpoint.model,
            "store": False,
            **{name: value for name, value in given.items() if value is not None},
            **endpoint.extra_params,
        }
        if endpoint.reasoning_effort is not None:
            more = self._fixed.get("reasoning") or {}
            self._fixed["reasoning"] = {**more, "effort": endpoint.reasoning_effort}
        # Models that do not reason reject the request for encrypted reasoning.
        reasons = endpoint.model.startswith(_REASONING_PREFIXES) and "-chat" not in endpoint.model
        if reasons or self._fixed.get("reasoning"):
            include = self._fixed.get("include") or []
            self._fixed["include"] = list(dict.fromkeys([*include, _ENCRYPTED_REASONING]))
        self._own_tools: list[Any] = self._fixed.pop("tools", None) or []

    def write(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None
    ) -> tuple[bytes, Mapping[str, int] | None]:
        """Build the body of a request. The API has no seed; it only separates cached replies."""
        converted = to_openai_responses(messages)
        body = {**self._fixed, "input": converted.value}
        if tools or self._own_tools:
            body["tools"] = [*self._own_tools, *map(_to_responses_tool, tools)]
        return encode_json_body(body, self._where), count_dropped_fields(converted.dropped)

    async def send(self, request: bytes) -> Any:
        """Post one request."""
        return await self._http.post(request)

    def read(self, answer: Any, attempt: Attempt) -> Reply:
        """Parse the output items as one message, and the metadata of the call."""
        if isinstance(answer, dict) and answer.get("error"):
            raise self._build_answer_error(answer["error"])
        items = answer.get("output") if isinstance(answer, dict) else None
        if not isinstance(items, list):
            raise AttemptError(ErrorKind.GARBLED, "the answer is JSON, but has no output", 200)
        dropped: list[Any] = []
        try:
            message = read_responses_answer(items, dropped)
            call = self._build_call(answer, message, attempt)
        except READ_ERRORS as error:
            problem = describe_read_error(error)
        else:
            unreadable = [loss.what for loss in dropped if loss.what.startswith("unreadable")]
            if not unreadable:
                return Reply(message, call)
            problem = unreadable[0]
        raise AttemptError(ErrorKind.GARBLED, f"the answer is not a response: {problem}", 200)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _build_answer_error(self, error: Any) -> AttemptError:
        # A response that failed has status 200 and a code, not a status, in its error.
        fault = self._http.parse_error_object(error)
        code = error.get("code") if isinstance(error, dict) else None
        if fault.kind is ErrorKind.GARBLED and isinstance(code, str):
            fault.kind = _ERROR_KINDS.get(code, ErrorKind.REFUSED)
        return fault

    def _build_call(
        self, answer: Mapping[str, Any], message: Message, attempt: Attempt
    ) -> ModelCall:
        price = choose_price(self._price, self._endpoint, answer.get("service_tier"))
        items = (item for item in answer["output"] if isinstance(item, dict))
        if any(item.get("type") in _PAID_CALLS for item in items):
            price = None  # such calls have a price of their own, which the table lacks
        fields: dict[str, Any] = {
            "sampling": self._sampling,
            "model": answer.get("model") or self._model,
            "finish_reason": _find_finish_reason(answer, message),
            "usage": read_openai_usage(answer.get("usage"), price, names=("input", "output")),
        }
        return attempt.build_call(fields)


def _check_responses_settings(endpoint: Endpoint, where: str) -> None:
    for name in _UNSUPPORTED_SETTINGS:
        if getattr(endpoint, name) is not None:
            raise ConfigError(
                f"the Responses API has no setting `{name}`",
                where=where,
                hint="remove it, or use the provider 'openai'",
            )
    for name in _STATE_PARAMS:
        if endpoint.extra_params.get(name) not in (None, False):
            raise ConfigError(
                f"`{name}` cannot be set in extra_params: each request sends the conversation",
                where=where,
                hint="remove it",
            )


def _find_finish_reason(answer: Mapping[str, Any], message: Message) -> Any:
    status = answer.get("status")
    if status == "incomplete":
        details = answer.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        return _FINISH_REASONS.get(str(reason), reason or status)
    if status not in (None, "completed"):
        return status
    return "tool_calls" if message.tool_calls else "stop"


def _to_responses_tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        # The API's default is strict, which rejects schemas with optional properties.
        "strict": False,
        **(tool.__pydantic_extra__ or {}),
    }
