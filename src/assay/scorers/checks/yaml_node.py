"""A value of a check file with its file, line and key, for error messages."""

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
    """The line of each value, counted from 1; empty for values that are not from a file."""

    def wrong(self, message: str, *, hint: str | None = None) -> ConfigError:
        """Return the error for this value, with file, line and key."""
        line = find_nearest_line(self.lines, self.place)
        return build_problems_error(
            ConfigError, [FileProblem(self.file, line, self.place, message, hint)]
        )

    def at(self, key: str | int) -> "Node":
        """Return the value at a key or position that exists."""
        return Node(self.value[key], self.file, (*self.place, key), self.lines)

    def get(self, key: str) -> "Node | None":
        """Return the value at a key of a mapping, or None when it is missing."""
        return self.at(key) if key in self.value else None

    def mapping(self, known: Collection[str] | None = None) -> Mapping[str, Any]:
        """Return the value as a mapping whose keys are all `known`."""
        if not isinstance(self.value, dict):
            raise self.wrong(f"the value is {quote_value(self.value)}, not a mapping")
        for key in self.value:
            if known is not None and key not in known:
                raise self.at(key).wrong(f"unknown key {key!r}", hint=suggest_name(key, known))
        return self.value

    def items(self) -> Iterator["Node"]:
        """Return the members of the value as a list with at least one."""
        if not isinstance(self.value, list):
            raise self.wrong(f"the value is {quote_value(self.value)}, not a list")
        if not self.value:
            raise self.wrong("the list is empty")
        return (self.at(position) for position in range(len(self.value)))

    def text(self) -> str:
        """Return the value as text that is not empty."""
        if not isinstance(self.value, str):
            hint = None if isinstance(self.value, dict | list) else "put it in quotes"
            raise self.wrong(f"the value is {quote_value(self.value)}, not text", hint=hint)
        if not self.value:
            raise self.wrong("the text is empty")
        return self.value

    def texts(self) -> tuple[str, ...]:
        """Return the value as one text or a list of texts."""
        if isinstance(self.value, list):
            return tuple(each.text() for each in self.items())
        return (self.text(),)

    def one_of(self, known: Collection[str]) -> str:
        """Return the value as one of the `known` texts."""
        text = self.text()
        if text not in known:
            raise self.wrong(f"unknown value {text!r}", hint=suggest_name(text, known))
        return text

    def number(self, *, lowest: float | None = None) -> float:
        """Return the value as a finite number."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(f"the value is {quote_value(value)}, not a number")
        if isinstance(value, float) and not math.isfinite(value):
            raise self.wrong(f"{value} is not a finite number")
        if lowest is not None and value < lowest:
            raise self.wrong(f"{value} is below {lowest:g}")
        return value

    def whole_number(self, *, lowest: int | None = None) -> int:
        """Return the value as a whole number."""
        value = self.number(lowest=lowest)
        if not isinstance(value, int):
            raise self.wrong(f"{value} is not a whole number")
        return value

    def flag(self) -> bool:
        """Return the value as a bool."""
        if not isinstance(self.value, bool):
            raise self.wrong(f"the value is {quote_value(self.value)}, neither true nor false")
        return self.value


def shorten_text(text: str, longest: int) -> str:
    """Return `text`, cut to `longest` characters with `…` at the end."""
    return text if len(text) <= longest else f"{text[:longest]}…"
