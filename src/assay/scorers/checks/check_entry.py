"""The base of all checks of a file, and the types of their values."""

import math
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, Strict

from assay.types import InvalidValue, quote_value

from .conversation import ConversationView
from .findings import CheckFinding

# A name becomes the key of a metric in every stored result.
MAX_CHECK_NAME = 100


def _read_number(value: Any) -> float:
    # Not pydantic's float: a reason quotes the bound as it was written, 2 and not 2.0.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"the value is {quote_value(value)}, not a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidValue(f"{value} is not a finite number")
    return value


def refuse_null(value: Any) -> Any:
    """Refuse a key without a value, which is an unfinished edit."""
    if value is None:
        raise InvalidValue("the value is null", hint="give it a value, or remove the key")
    return value


T = TypeVar("T")
Given = Annotated[T | None, BeforeValidator(refuse_null)]
"""A field that may be missing, but not empty: `tool:` alone is an unfinished edit."""

Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[
    tuple[Text, ...],
    Field(min_length=1),
    BeforeValidator(lambda value: value if isinstance(value, list) else [value]),
]
"""One text, or a list of them."""

Number = Annotated[float, PlainValidator(_read_number)]
WholeNumber = Annotated[int, Strict()]


def expand_short_form(field: str) -> BeforeValidator:
    """Accept a plain value in place of a mapping with one field."""
    return BeforeValidator(lambda value: value if isinstance(value, dict) else {field: value})


class CheckModel(BaseModel):
    """A mapping of a check file."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class CheckEntry(CheckModel):
    """One check of a file: a rule with its name and its weight in the score."""

    name: Annotated[Text, Field(max_length=MAX_CHECK_NAME)]
    weight: Given[Annotated[Number, Field(ge=0)]] = None

    @property
    def decides(self) -> bool:
        """False for a check that is only tracked."""
        return self.weight != 0

    def judge(self, reading: ConversationView) -> CheckFinding:
        """Apply the rule to a conversation."""
        raise NotImplementedError
