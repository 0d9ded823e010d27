"""A value of a check file together with where it stands, so that a complaint can say so."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.errors import ConfigError
from assay.types import (
    FileProblem,
    ValuePath,
    build_problems_error,
    find_nearest_line,
    quote_value,
    suggest_name,
)


@dataclass(frozen=True)
class Node:
    """One value of a check file: plain data, the file it came from, and its place there."""

    value: Any
    file: str
    place: ValuePath = ()
    lines: Mapping[ValuePath, int] = field(default_factory=dict, repr=False)
    """The line of each value, counted from 1; empty for what came from memory."""

    def wrong(self, message: str, *, hint: str | None = None) -> ConfigError:
        """The error that says this value is wrong, with file, line and key."""
        line = find_nearest_line(self.lines, self.place)
        return build_problems_error(
            ConfigError, [FileProblem(self.file, line, self.place, message, hint)]
        )

    def at(self, key: str | int) -> "Node":
        """The value under a key or at a position that is known to be there."""
        return Node(self.value[key], self.file, (*self.place, key), self.lines)

    def get(self, key: str) -> "Node | None":
        """The value under a key of a mapping, or None where there is none."""
        return self.at(key) if key in self.value else None

    def mapping(self, known: Collection[str] | None = None) -> Mapping[str, Any]:
        """The mapping that this is, with no keys but `known` ones."""
        if not isinstance(self.value, dict):
            raise self.wrong(f"the value is {quote_value(self.value)}, not a mapping")
        for key in self.value:
            if known is not None and key not in known:
                raise self.at(key).wrong(f"unknown key {key!r}", hint=suggest_name(key, known))
        return self.value

    def items(self) -> Iterator["Node"]:
        """The members of the list that this is; at least one."""
        if not isinstance(self.value, list):
            raise self.wrong(f"the value is {quote_value(self.value)}, not a list")
        if not self.value:
            raise self.wrong("the list is empty")
        return (self.at(position) for position in range(len(self.value)))

    def text(self) -> str:
        """The text that this is; not an empty one."""
        if not isinstance(self.value, str):
            hint = None if isinstance(self.value, dict | list) else "put it in quotes"
            raise self.wrong(f"the value is {quote_value(self.value)}, not text", hint=hint)
        if not self.value:
            raise self.wrong("the text is empty")
        return self.value

    def texts(self) -> tuple[str, ...]:
        """One text, or a list of them."""
        if isinstance(self.value, list):
            return tuple(each.text() for each in self.items())
        return (self.text(),)

    def one_of(self, known: Collection[str]) -> str:
        """The text that this is, when it is one of those known."""
        text = self.text()
        if text not in known:
            raise self.wrong(f"unknown value {text!r}", hint=suggest_name(text, known))
        return text

    def number(self, *, lowest: float | None = None) -> float:
        """The finite number that this is."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(f"the value is {quote_value(value)}, not a number")
        if isinstance(value, float) and not math.isfinite(value):
            raise self.wrong(f"{value} is not a finite number")
        if lowest is not None and value < lowest:
            raise self.wrong(f"{value} is below {lowest:g}")
        return value

    def whole_number(self, *, lowest: int | None = None) -> int:
        """The whole number that this is."""
        value = self.number(lowest=lowest)
        if not isinstance(value, int):
            raise self.wrong(f"{value} is not a whole number")
        return value

    def flag(self) -> bool:
        """The bool that this is."""
        if not isinstance(self.value, bool):
            raise self.wrong(f"the value is {quote_value(self.value)}, neither true nor false")
        return self.value


def shorten_text(text: str, longest: int) -> str:
    """`text`, marked where it was cut."""
    return text if len(text) <= longest else f"{text[:longest]}…"
