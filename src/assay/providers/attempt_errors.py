"""What can go wrong with one attempt, and what that means for the next one."""

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from math import isfinite

from assay.errors import AccessDenied, EndpointError


class ErrorKind(StrEnum):
    """What an attempt failed of."""

    THROTTLED = "throttled"
    """The server wants fewer requests: 429."""

    OVERLOADED = "overloaded"
    """The server is in trouble: 5xx, 408, 409, 425."""

    UNREACHABLE = "unreachable"
    """No connection, or one that broke."""

    TIMEOUT = "timeout"
    GARBLED = "garbled"
    """An answer that is not what a model answers. May be a proxy's page: worth one more try."""

    DENIED = "denied"
    """401 and 403."""

    REFUSED = "refused"
    """The request itself is wrong, or never answered here: 400, 404, 422, redirects, no quota."""


_PERMANENT = frozenset({ErrorKind.DENIED, ErrorKind.REFUSED})
_TRANSIENT_STATUS = frozenset({408, 409, 425})


@dataclass(eq=False)
class AttemptError(Exception):
    """One failed attempt. Its text holds no secrets: whoever raises it has scrubbed it."""

    kind: ErrorKind
    message: str
    status: int | None = None
    retry_after_s: float | None = None
    """What the server asked to wait."""

    hint: str | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def permanent(self) -> bool:
        """Whether the same request would fail again."""
        return self.kind in _PERMANENT

    def error(self, *, where: str, attempts: int, why: str | None = None) -> EndpointError:
        """The exception for the caller, once there will be no further attempt."""
        message = self.message
        if attempts > 1:
            message += f" (attempt {attempts}, the last)"
        if why:
            message += f"; {why}"
        kind = AccessDenied if self.kind is ErrorKind.DENIED else EndpointError
        return kind(
            message,
            where=where,
            hint=self.hint,
            status=self.status,
            retryable=not self.permanent,
        )


def classify_status(status: int) -> ErrorKind:
    """What an HTTP status other than success means."""
    if status in (401, 403):
        return ErrorKind.DENIED
    if status == 429:
        return ErrorKind.THROTTLED
    if status in _TRANSIENT_STATUS or (status >= 500 and status != 501):
        return ErrorKind.OVERLOADED
    return ErrorKind.REFUSED


def parse_retry_after(value: str | None, *, milliseconds: str | None, now: float) -> float | None:
    """Seconds to wait by a `Retry-After` header, in seconds or as a date. None if unreadable."""
    for text, unit in ((milliseconds, 1000.0), (value, 1.0)):
        if text is None:
            continue
        try:
            seconds = float(text) / unit
        except ValueError:
            continue
        if isfinite(seconds) and seconds >= 0:
            return seconds
    return None if value is None else _parse_http_date(value, now)


def _parse_http_date(date: str, now: float) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(moment.timestamp() - now, 0.0)
