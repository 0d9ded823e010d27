"""Errors of one attempt, whether they are retried, and whether a full context caused them."""

import re
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from math import isfinite

from assay.errors import AccessDenied, EndpointError
from assay.types import ModelCall

_CONTEXT_ERROR_PATTERN = re.compile(
    r"context[ _](length|window|size)"  # OpenAI and those that copy it, vLLM, llama.cpp, in-process
    r"|prompt is too long|exceed context limit"  # Anthropic, without and with `max_tokens`
    r"|longer than the maximum model length"  # vLLM's engine
    r"|tokens \+ `?max_new_tokens`? must be <="  # text-generation-inference
    r"|input is too long|input tokens exceeded"  # Bedrock; its Nova models
    r"|input token count.{0,40}exceeds"  # Gemini
    r"|reduce the length of (the|your) (messages|prompt|input)",
    re.IGNORECASE,
)


class ErrorKind(StrEnum):
    """The kinds of attempt errors."""

    THROTTLED = "throttled"
    """Rate limited: 429."""

    OVERLOADED = "overloaded"
    """A temporary server error: 5xx, 408, 409, 424, 425."""

    UNREACHABLE = "unreachable"
    """The connection failed or was lost."""

    TIMEOUT = "timeout"
    GARBLED = "garbled"
    """An invalid answer, perhaps the error page of a proxy: retried once."""

    DENIED = "denied"
    """401 and 403."""

    REFUSED = "refused"
    """A permanent rejection: 400, 404, 422, redirects, no quota."""


_PERMANENT = frozenset({ErrorKind.DENIED, ErrorKind.REFUSED})
# 424: a model failed behind Bedrock or text-generation-inference.
_TRANSIENT_STATUS = frozenset({408, 409, 424, 425})


@dataclass(eq=False)
class AttemptError(Exception):
    """One failed attempt. Its message contains no secrets: callers redact it first."""

    kind: ErrorKind
    message: str
    status: int | None = None
    retry_after_s: float | None = None
    """The wait that the server asked for."""

    hint: str | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def permanent(self) -> bool:
        """Whether the same request would fail again."""
        return self.kind in _PERMANENT

    def error(self, *, where: str, attempts: int, why: str | None = None) -> EndpointError:
        """Build the exception for the caller after the last attempt."""
        message = self.message
        if attempts > 1:
            message += f" (gave up after {attempts} attempts)"
        if why:
            message += f"; {why}"
        kind = AccessDenied if self.kind is ErrorKind.DENIED else EndpointError
        return kind(
            message,
            where=where,
            hint=self.hint,
            status=self.status,
            retryable=not self.permanent,
            retry_after_s=self.retry_after_s,
        )


def build_timeout_error(timeout_s: float | None) -> AttemptError:
    """Build the error of an attempt that took longer than its limit."""
    return AttemptError(ErrorKind.TIMEOUT, f"the request timed out after {timeout_s:g} s")


def classify_status(status: int) -> ErrorKind:
    """Return the error kind of an HTTP status other than success."""
    if status in (401, 403):
        return ErrorKind.DENIED
    if status == 429:
        return ErrorKind.THROTTLED
    # 501 is permanent: the server does not implement the method.
    if status in _TRANSIENT_STATUS or (status >= 500 and status != 501):
        return ErrorKind.OVERLOADED
    return ErrorKind.REFUSED


def parse_retry_after(value: str | None, *, milliseconds: str | None, now: float) -> float | None:
    """Return the seconds to wait by a `Retry-After` header. None if missing or invalid."""
    # `retry-after-ms` is an extension of OpenAI, more exact than the other header.
    for text, unit in ((milliseconds, 1000.0), (value, 1.0)):
        if text is None:
            continue
        try:
            seconds = float(text) / unit
        except ValueError:
            continue
        if isfinite(seconds) and seconds >= 0:
            return seconds
    if value is None:
        return None
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(moment.timestamp() - now, 0.0)


def is_context_length_error(error: BaseException) -> bool:
    """Whether a model rejected a conversation for its length."""
    # Providers share no error code for it: only the message identifies it.
    if not isinstance(error, EndpointError) or error.retryable:
        return False
    return _CONTEXT_ERROR_PATTERN.search(error.message) is not None


def fills_context(call: ModelCall) -> bool:
    """Whether an answer was truncated by a full context, not by its own limit."""
    if call.finish_reason == "length":
        # Set by models in this process, which know both limits.
        return bool((call.model_extra or {}).get("context_full"))
    return call.finish_reason == "model_context_window_exceeded"  # Anthropic
