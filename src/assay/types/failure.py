"""A failure as data: what broke, on whose side, and the traceback."""

import traceback
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict

from .field_types import Text
from .redaction import redact


class Boundary(StrEnum):
    """Whose side a failure is on."""

    ENDPOINT = "endpoint"
    ENVIRONMENT = "environment"
    SCORER = "scorer"
    DATASET = "dataset"


class Failure(BaseModel):
    """An exception that ended the work on one sample while the others went on."""

    model_config = ConfigDict(frozen=True, extra="allow")

    boundary: Boundary
    kind: str
    """The exception's class."""

    message: Text
    traceback: Text | None = None
    retryable: bool = True
    """False when trying the same again cannot help."""

    @classmethod
    def of(cls, error: BaseException, boundary: Boundary, *, retryable: bool = True) -> Self:
        """The failure that an exception stands for, without secrets that it may quote."""
        return cls(
            boundary=boundary,
            kind=type(error).__name__,
            message=error_message(error),
            traceback=redact("".join(traceback.format_exception(error))),
            retryable=retryable,
        )


def error_message(error: BaseException) -> str:
    """The text of an exception without secrets; never raises."""
    try:
        return redact(str(error))
    except Exception as worse:
        return f"(its message could not be made: {type(worse).__name__})"


def describe_error(error: BaseException) -> str:
    """The class and the text of an exception, without secrets."""
    return f"{type(error).__name__}: {error_message(error)}"
