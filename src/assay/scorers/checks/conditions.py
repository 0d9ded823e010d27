"""Conditions on a single JSON value: equals, contains, matches, and numeric comparisons."""

import math
from collections.abc import Callable
from typing import Annotated, Any, Self

from pydantic import model_validator

from assay.types import InvalidValue

from .check_entry import CheckModel, Given, Number, Text, expand_short_form
from .patterns import PatternText

_COMPARISONS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "at_least": ("below", lambda value, bound: value >= bound),
    "at_most": ("above", lambda value, bound: value <= bound),
    "above": ("not above", lambda value, bound: value > bound),
    "below": ("not below", lambda value, bound: value < bound),
}
"""Each comparison with the words for a number that fails it."""


class Bounds(CheckModel):
    """Numeric comparisons that one value must meet."""

    at_least: Given[Number] = None
    at_most: Given[Number] = None
    above: Given[Number] = None
    below: Given[Number] = None

    @property
    def is_bounded(self) -> bool:
        return not self.model_fields_set.isdisjoint(_COMPARISONS)

    def find_number_problem(self, value: Any) -> str | None:
        """Return the first bound that a value does not meet, or None."""
        # `isfinite` fails for an int that is too large for a float, so only floats are checked.
        finite = not isinstance(value, float) or math.isfinite(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not finite:
            return f"is {quote_json(value)}, not a number"
        for name, (missed, holds) in _COMPARISONS.items():
            bound = getattr(self, name)
            if bound is not None and not holds(value, bound):
                return f"{value} is {missed} {bound}"
        return None


class Condition(Bounds):
    """All conditions that one value must meet."""

    equals: Any = None
    """Applies only where it is written: null is a value too."""

    contains: Given[Text] = None
    matches: Given[PatternText] = None
    not_matches: Given[PatternText] = None

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.model_fields_set:
            names = ", ".join(type(self).model_fields)
            raise InvalidValue("the condition is empty", hint=f"add one of {names}")
        return self

    def problem(self, value: Any) -> str | None:
        """Return the first condition that the value does not meet, or None."""
        if "equals" in self.model_fields_set and not is_equal_json(value, self.equals):
            return f"is {quote_json(value)}, not {quote_json(self.equals)}"
        if self.is_bounded and (problem := self.find_number_problem(value)):
            return problem
        if not isinstance(value, str):
            needs_text = self.contains or self.matches or self.not_matches
            return f"is {quote_json(value)}, not text" if needs_text else None
        if self.contains is not None and self.contains not in value:
            return f"does not contain {quote_json(self.contains)}: {quote_json(value)}"
        if self.matches is not None and not self.matches.search(value):
            return f"does not match {quote_json(self.matches.source)}: {quote_json(value)}"
        if self.not_matches is not None and (found := self.not_matches.search(value)):
            return f"matches {quote_json(self.not_matches.source)} with {quote_json(found.text)}"
        return None


ConditionOrValue = Annotated[Condition, expand_short_form("equals")]
"""A condition, or a plain value to equal."""


def is_equal_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 1 is 1.0 and is not true, at any depth."""
    # Python's == takes True for 1, also inside lists and dicts.
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            is_equal_json(one[key], other[key]) for key in one
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_equal_json, one, other))
    return bool(one == other)


def quote_json(value: Any, longest: int = 120) -> str:
    """Return a value as reasons quote it, cut to `longest` characters."""
    # A string is cut before `repr`: tool outputs may have megabytes.
    text = repr(value[: longest + 1]) if isinstance(value, str) else repr(value)
    return text if len(text) <= longest else f"{text[:longest]}…"
