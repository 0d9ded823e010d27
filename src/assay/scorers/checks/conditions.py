"""What a single JSON value is held to: equals, contains, matches, and comparisons of numbers."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .patterns import Pattern, compile_pattern
from .yaml_node import Located

COMPARISONS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "at_least": ("below", lambda value, bound: value >= bound),
    "at_most": ("above", lambda value, bound: value <= bound),
    "above": ("not above", lambda value, bound: value > bound),
    "below": ("not below", lambda value, bound: value < bound),
}
"""Each with the words for a number that misses it."""

_OTHERS = ("equals", "contains", "matches", "not_matches")
CONDITIONS = (*_OTHERS, *COMPARISONS)


@dataclass(frozen=True)
class Condition:
    """Everything one value must meet."""

    equals: tuple[Any, ...] = ()
    """Empty, or the one value; None is a value too."""

    contains: str | None = None
    matches: Pattern | None = None
    not_matches: Pattern | None = None
    bounds: tuple[tuple[str, float], ...] = ()

    def problem(self, value: Any) -> str | None:
        """What of it a value does not meet, or None."""
        if self.equals and not same(value, self.equals[0]):
            return f"is {quoted(value)}, not {quoted(self.equals[0])}"
        if self.bounds and (problem := number_problem(value, self.bounds)):
            return problem
        text = value if isinstance(value, str) else None
        if text is None and (self.contains or self.matches or self.not_matches):
            return f"is {quoted(value)}, not text"
        return None if text is None else self._text_problem(text)

    def _text_problem(self, text: str) -> str | None:
        if self.contains is not None and self.contains not in text:
            return f"does not contain {quoted(self.contains)}: {quoted(text)}"
        if self.matches is not None and not self.matches.search(text):
            return f"does not match {quoted(self.matches.source)}: {quoted(text)}"
        if self.not_matches is not None and (found := self.not_matches.search(text)):
            return f"matches {quoted(self.not_matches.source)} with {quoted(found.text)}"
        return None


def read_condition(given: Located) -> Condition:
    """The condition in a check file: a mapping of `CONDITIONS`, or a plain value to equal."""
    if not isinstance(given.value, dict):
        return Condition(equals=(given.value,))
    given.mapping(CONDITIONS)
    if not given.value:
        raise given.wrong("asks for nothing", hint=f"give one of {', '.join(CONDITIONS)}")
    contains = given.get("contains")
    matches, not_matches = given.get("matches"), given.get("not_matches")
    return Condition(
        equals=(given.value["equals"],) if "equals" in given.value else (),
        contains=None if contains is None else contains.text(),
        matches=None if matches is None else compile_pattern(matches),
        not_matches=None if not_matches is None else compile_pattern(not_matches),
        bounds=read_bounds(given),
    )


def read_bounds(given: Located) -> tuple[tuple[str, float], ...]:
    """The comparisons among the keys of a mapping."""
    return tuple((name, given.at(name).number()) for name in COMPARISONS if name in given.value)


def number_problem(value: Any, bounds: tuple[tuple[str, float], ...]) -> str | None:
    """Which bound a value misses, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
        return f"is {quoted(value)}, not a number"
    for name, bound in bounds:
        missed, holds = COMPARISONS[name]
        if not holds(value, bound):
            return f"{value} is {missed} {bound}"
    return None


def _finite(value: int | float) -> bool:
    # An int may be too large for a float, and is finite all the same.
    return isinstance(value, int) or math.isfinite(value)


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 1 is 1.0 and is not true, at any depth."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def quoted(value: Any, longest: int = 120) -> str:
    """A value as a reason quotes it."""
    text = repr(value[: longest + 1]) if isinstance(value, str) else repr(value)
    return text if len(text) <= longest else f"{text[:longest]}…"
