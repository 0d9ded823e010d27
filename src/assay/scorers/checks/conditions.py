"""Conditions on a single JSON value: equals, contains, matches, and numeric comparisons."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .patterns import Pattern, compile_pattern
from .yaml_node import Node

COMPARISONS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "at_least": ("below", lambda value, bound: value >= bound),
    "at_most": ("above", lambda value, bound: value <= bound),
    "above": ("not above", lambda value, bound: value > bound),
    "below": ("not below", lambda value, bound: value < bound),
}
"""Each comparison with the words for a number that fails it."""

_VALUE_CONDITIONS = ("equals", "contains", "matches", "not_matches")
CONDITIONS = (*_VALUE_CONDITIONS, *COMPARISONS)


@dataclass(frozen=True)
class Condition:
    """All conditions that one value must meet."""

    equals: tuple[Any, ...] = ()
    """Empty, or the one value; None is a value too."""

    contains: str | None = None
    matches: Pattern | None = None
    not_matches: Pattern | None = None
    bounds: tuple[tuple[str, float], ...] = ()

    def problem(self, value: Any) -> str | None:
        """Return the first condition that the value does not meet, or None."""
        if self.equals and not is_equal_json(value, self.equals[0]):
            return f"is {quote_json(value)}, not {quote_json(self.equals[0])}"
        if self.bounds and (problem := find_number_problem(value, self.bounds)):
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


def read_condition(given: Node) -> Condition:
    """Read a condition of a check file: a mapping of `CONDITIONS`, or a plain value to equal."""
    if not isinstance(given.value, dict):
        return Condition(equals=(given.value,))
    given.mapping(CONDITIONS)
    if not given.value:
        raise given.wrong("the condition is empty", hint=f"add one of {', '.join(CONDITIONS)}")
    contains = given.get("contains")
    matches, not_matches = given.get("matches"), given.get("not_matches")
    return Condition(
        equals=(given.value["equals"],) if "equals" in given.value else (),
        contains=None if contains is None else contains.text(),
        matches=None if matches is None else compile_pattern(matches),
        not_matches=None if not_matches is None else compile_pattern(not_matches),
        bounds=read_bounds(given),
    )


def read_bounds(given: Node) -> tuple[tuple[str, float], ...]:
    """Read the comparisons among the keys of a mapping."""
    return tuple((name, given.at(name).number()) for name in COMPARISONS if name in given.value)


def find_number_problem(value: Any, bounds: tuple[tuple[str, float], ...]) -> str | None:
    """Return the first bound that a value does not meet, or None."""
    # `isfinite` fails for an int that is too large for a float, so only floats are checked.
    finite = not isinstance(value, float) or math.isfinite(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not finite:
        return f"is {quote_json(value)}, not a number"
    for name, bound in bounds:
        missed, holds = COMPARISONS[name]
        if not holds(value, bound):
            return f"{value} is {missed} {bound}"
    return None


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
