"""A failure as data: the error, the component responsible, and the traceback."""

import traceback
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict

from .field_types import Text
from .redaction import redact


class Boundary(StrEnum):
    """The component that is responsible for a failure."""

    ENDPOINT = "endpoint"
    ENVIRONMENT = "environment"
    SCORER = "scorer"
    DATASET = "dataset"
    AGENT = "agent"
    """An agent of the user's own; a model agent fails at its endpoint or environment."""

    GATEWAY = "gateway"
    """The gateway that records the calls of an agent."""

    REPLAY = "replay"
    """The recording that is replayed: the sample is inconclusive, and the agent did not fail."""


class Failure(BaseModel):
    """An exception that ended one sample while the others continued."""

    model_config = ConfigDict(frozen=True, extra="allow")

    boundary: Boundary
    kind: str
    """The exception's class."""

    message: Text
    traceback: Text | None = None
    retryable: bool = True
    """False when a retry cannot succeed."""

    @classmethod
    def of(cls, error: BaseException, boundary: Boundary, *, retryable: bool = True) -> Self:
        """Return the failure for an exception, with secrets redacted."""
        return cls(
            boundary=boundary,
            kind=type(error).__name__,
            message=error_message(error),
            traceback=redact("".join(traceback.format_exception(error))),
            retryable=retryable,
        )


def error_message(error: BaseException) -> str:
    """Return the text of an exception with secrets redacted; never raises."""
    try:
        return redact(str(error))
    except Exception as worse:  # `__str__` of a user's exception may itself fail
        return f"(reading the error message failed: {type(worse).__name__})"


def describe_error(error: BaseException) -> str:
    """Return the class and the text of an exception with secrets redacted."""
    return f"{type(error).__name__}: {error_message(error)}"
