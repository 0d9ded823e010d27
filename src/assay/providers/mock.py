"""A scripted model in this process, for tests, documentation and dry runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from pydantic import ValidationError

from assay.errors import ConfigError
from assay.types import Endpoint, Message, ModelCall, ToolSpec, Usage, construct_unchecked, validate

from .adapter import Attempt
from .attempt_errors import AttemptError, ErrorKind, build_timeout_error
from .clock import Timing
from .prices import Price, add_cost
from .reply import Reply

_MOCK_PARAMS = {
    "echo": frozenset[str](),
    "fixed": frozenset({"text"}),
    "script": frozenset({"replies", "loop", "by"}),
}
_COMMON_MOCK_PARAMS = frozenset({"latency_s", "token_ids"})
_VOCABULARY = 32_000
_SIMULATED_ERRORS = {
    "timeout": ErrorKind.TIMEOUT,
    "reset": ErrorKind.UNREACHABLE,
    "garbled": ErrorKind.GARBLED,
}

MockRequest = tuple[Sequence[Message], int | None]
MockOutcome = tuple[Message, str | None] | AttemptError
"""A message with the finish reason of the script, if any; or an error."""


class MockAdapter:
    """`echo`, `fixed` and `script`: the three models of the mock provider."""

    def __init__(
        self, endpoint: Endpoint, timeout_s: float, price: Price | None, timing: Timing
    ) -> None:
        _check_mock_endpoint(endpoint)
        options = endpoint.extra_params
        self._model = endpoint.model
        self._timeout_s = timeout_s
        self._price = price
        self._sleep = timing.sleep
        self._latency_s = float(options.get("latency_s") or 0.0)
        self._token_ids = bool(options.get("token_ids"))
        self._fixed = Message(role="assistant", content=options.get("text", "")), None
        self._replies = [
            _parse_scripted_reply(item, n) for n, item in enumerate(options.get("replies") or ())
        ]
        self._loop = bool(options.get("loop"))
        self._by_turn = options.get("by") == "turn"
        self._position = 0
        given = {"temperature": endpoint.temperature, "top_p": endpoint.top_p}
        self._sampling = {name: value for name, value in given.items() if value is not None}

    def write(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None
    ) -> tuple[MockRequest, None]:
        """Return the messages unchanged."""
        return (messages, seed), None

    async def send(self, request: MockRequest) -> tuple[Message, str | None, MockRequest]:
        """Return the next reply after the configured latency."""
        outcome = self._choose_reply(request[0])
        if self._latency_s:
            await self._sleep(min(self._latency_s, self._timeout_s))
            if self._latency_s > self._timeout_s:
                raise build_timeout_error(self._timeout_s)
        if isinstance(outcome, AttemptError):
            # A copy, since raising adds a traceback, and the script may repeat the error.
            raise replace(outcome)
        return *outcome, request

    def read(self, answer: tuple[Message, str | None, MockRequest], attempt: Attempt) -> Reply:
        """Build the reply. Words are counted as tokens, and marked as such."""
        message, finish, (messages, seed) = answer
        text = message.text
        words = len(text.split())
        read = sum([len(each.text.split()) for each in messages])
        usage = add_cost(_build_word_usage(read, words), self._price)
        fields: dict[str, Any] = {
            "sampling": {**self._sampling} if seed is None else {**self._sampling, "seed": seed},
            "model": self._model,
            "finish_reason": finish or ("tool_calls" if message.tool_calls else "stop"),
            "usage": usage,
            "latency_s": attempt.latency_s,
            "attempts": attempt.number,
            "message_index": attempt.message_index,
        }
        if self._token_ids:
            fields |= _fake_token_fields(messages, text, seed)
        return Reply(message, construct_unchecked(ModelCall, fields))

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _choose_reply(self, messages: Sequence[Message]) -> MockOutcome:
        if self._model == "fixed":
            return self._fixed
        if self._model == "echo":
            last = next((each for each in reversed(messages) if each.role == "user"), None)
            return Message(role="assistant", content="" if last is None else last.text), None
        position = self._position
        if self._by_turn:
            position = sum(each.role == "assistant" for each in messages)
        self._position += 1
        if self._loop:
            position %= len(self._replies)
        if position < len(self._replies):
            return self._replies[position]
        return AttemptError(
            ErrorKind.REFUSED,
            f"the script has {len(self._replies)} replies, but reply {position + 1} was requested",
            hint="add replies, or set extra_params['loop'] to true",
        )


@lru_cache(maxsize=1024)
def _build_word_usage(read: int, written: int) -> Usage:
    # Frozen, so that calls with the same usage may share it.
    fields = {"input_tokens": read, "output_tokens": written, "counted": "words"}
    return validate(Usage, fields)


def _check_mock_endpoint(endpoint: Endpoint) -> None:
    where = f"mock:{endpoint.model}"
    known = _MOCK_PARAMS.get(endpoint.model)
    if known is None:
        raise ConfigError(
            f"{endpoint.model!r} is not a mock model; choose one of {', '.join(_MOCK_PARAMS)}",
            where=where,
        )
    if unknown := sorted(endpoint.extra_params.keys() - known - _COMMON_MOCK_PARAMS):
        raise ConfigError(
            f"extra_params has {', '.join(map(repr, unknown))}, which this model does not support; "
            f"supported: {', '.join(sorted(known | _COMMON_MOCK_PARAMS))}",
            where=where,
        )
    needed = {"fixed": "text", "script": "replies"}.get(endpoint.model)
    if needed is not None and not endpoint.extra_params.get(needed):
        raise ConfigError(
            f"the mock model {endpoint.model!r} needs extra_params[{needed!r}]", where=where
        )
    options, wrong = endpoint.extra_params, None
    latency, replies = options.get("latency_s", 0), options.get("replies", [])
    if not _is_duration(latency):
        wrong = f"latency_s={latency!r} is not a number of seconds"
    elif not isinstance(options.get("text", ""), str):
        wrong = "text is not a string"
    elif not isinstance(replies, list | tuple):
        wrong = "replies is not a list"
    elif options.get("by", "call") not in ("call", "turn"):
        wrong = f"by={options['by']!r} is not 'call' or 'turn'"
    if wrong:
        raise ConfigError(f"extra_params: {wrong}", where=where)


def _is_duration(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value < float("inf")


def _parse_scripted_reply(item: Any, index: int) -> MockOutcome:
    where = f"replies[{index}]"
    try:
        if isinstance(item, str):
            return Message(role="assistant", content=item), None
        if isinstance(item, Message):
            return item, None
        if isinstance(item, Mapping) and isinstance(item.get("error"), Mapping):
            return _parse_simulated_error(item["error"], where)
        if isinstance(item, Mapping):
            fields = {"role": "assistant", **item}
            finish = fields.pop("finish_reason", None)
            if finish is not None and not isinstance(finish, str):
                raise ConfigError(f"finish_reason={finish!r} is not a string", where=where)
            message = Message.model_validate(fields)
            # Tool results refer to calls by id, so calls without one get it here.
            calls = [
                call if call.id is not None else call.model_copy(update={"id": f"call_{index}_{n}"})
                for n, call in enumerate(message.tool_calls)
            ]
            if calls:
                message = message.model_copy(update={"tool_calls": tuple(calls)})
            return message, finish
    except ValidationError as error:
        raise ConfigError(
            f"the reply is not a message: {error.errors()[0]['msg']}", where=where
        ) from error
    raise ConfigError(
        f"a reply cannot be of type {type(item).__name__}",
        where=where,
        hint="write a string, a message, or {'error': {'status': 429, 'retry_after': 1}}",
    )


def _parse_simulated_error(error: Mapping[str, Any], where: str) -> AttemptError:
    message = str(error.get("message", "simulated error"))
    if error.get("kind") in _SIMULATED_ERRORS:
        return AttemptError(_SIMULATED_ERRORS[error["kind"]], message)
    status, wait = error.get("status"), error.get("retry_after")
    if not isinstance(status, int) or not 300 <= status < 600:
        raise ConfigError(
            "an error needs a `status` from 300 to 599, or a `kind`: "
            + ", ".join(_SIMULATED_ERRORS),
            where=where,
        )
    if wait is not None and not _is_duration(wait):
        raise ConfigError("`retry_after` is not a number of seconds", where=where)
    from .http import build_http_error  # loads what connects to servers

    return build_http_error(status, message, wait, "the mock simulates this denial")


def _fake_token_fields(messages: Sequence[Message], text: str, seed: int | None) -> dict[str, Any]:
    # The same word has the same id; logprobs depend on the seed too.
    prompt = tuple(_hash_to_token_id(word) for each in messages for word in each.text.split())
    ids = tuple(_hash_to_token_id(word) for word in text.split())
    chances = [_hash_to_token_id(f"{seed}:{index}:{token}") + 1 for index, token in enumerate(ids)]
    return {
        "prompt_ids": prompt,
        "completion_ids": ids,
        "logprobs": tuple(-chance / _VOCABULARY for chance in chances),
    }


def _hash_to_token_id(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "replace"), digest_size=4).digest()
    return int.from_bytes(digest) % _VOCABULARY
