"""Builds plain data from YAML events within limits, and records problems with their positions."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.resolver import Resolver

from .file_problems import FileProblem, Position, ValuePath, quote_value

# Both count every use of an alias, so that a "billion laughs" file cannot expand in memory.
MAX_YAML_VALUES = 20_000
MAX_YAML_CHARACTERS = 4 * 1024 * 1024
MAX_YAML_DEPTH = 40
_MAX_YAML_PROBLEMS = 100
_MAX_YAML_NUMBER_LENGTH = 100
_STANDARD_TAG_PREFIX = "tag:yaml.org,2002:"
# Numbers that every reader agrees on: YAML 1.1 also reads 010 as 8 and 12:30 as 750.
_YAML_NUMBER = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")

_BOOLEANS = {"true": True, "false": False}
_YES_NO_BOOLEANS = {**_BOOLEANS, "yes": True, "on": True, "no": False, "off": False}
# Dates and a lone `=` stay text.
_TEXT_KINDS = ("str", "timestamp", "value")


def is_number(text: str) -> bool:
    """Whether an unquoted text is read as a number."""
    return _YAML_NUMBER.fullmatch(text) is not None


class _LimitReached(Exception):
    """A limit was exceeded; reading stops."""


@dataclass(frozen=True)
class _MeasuredValue:
    """A value with its number of values and characters, and its depth."""

    value: Any
    values: int = 1
    characters: int = 0
    height: int = 0


class YamlReader:
    """Reads one document. Each use of an alias counts with the size of its target."""

    def __init__(self, events: Iterator[yaml.Event], file: str, *, yes_and_no: bool) -> None:
        self.positions: dict[ValuePath, Position] = {}
        self.problems: list[FileProblem] = []
        self._events = events
        self._file = file
        self._words = _YES_NO_BOOLEANS if yes_and_no else _BOOLEANS
        self._kind_of: Callable[..., str] = Resolver().resolve
        self._values = 0
        self._characters = 0
        # None while the anchored value is still being read: an alias inside it is a cycle.
        self._anchored: dict[str, _MeasuredValue | None] = {}

    def document(self) -> Any:
        """Return the document's value; invalid when there are `problems`."""
        found: list[Any] = []
        try:
            for event in self._events:
                if not isinstance(event, yaml.DocumentStartEvent):
                    continue
                if found:
                    self._refuse(event, (), "the file contains more than one document")
                    break
                found.append(self._read_value(next(self._events), ()).value)
        except _LimitReached:
            return None
        if not found:
            self.problems.append(FileProblem(Position(self._file), (), "the file is empty"))
        return found[0] if found else None

    def _read_value(self, event: yaml.Event, place: ValuePath) -> _MeasuredValue:
        self.positions.setdefault(place, self._get_position(event))
        if isinstance(event, yaml.AliasEvent):
            name = str(event.anchor)
            anchored = self._anchored.get(name)
            if anchored is None:
                inside = name in self._anchored
                problem = "is used inside its own anchor" if inside else "has no anchor"
                self._refuse(event, place, f"the alias *{name[:80]} {problem}")
                return _MeasuredValue(None)
            self._count_value(event, place, anchored)
            return anchored
        values, characters = self._values, self._characters
        self._count_value(
            event, place, _MeasuredValue(None, characters=len(getattr(event, "value", "")))
        )
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            self._anchored[anchor] = None
        found: tuple[Any, int]
        if isinstance(event, yaml.MappingStartEvent):
            found = self._read_mapping(event, place)
        elif isinstance(event, yaml.SequenceStartEvent):
            found = self._read_sequence(event, place)
        else:
            found = self._read_scalar(event, place), 0
        value, height = found
        read = _MeasuredValue(value, self._values - values, self._characters - characters, height)
        if anchor is not None:
            self._anchored[anchor] = read
        return read

    def _read_sequence(self, event: yaml.Event, place: ValuePath) -> tuple[list[Any], int]:
        self._refuse_tag(event, place, "seq")
        found: list[_MeasuredValue] = []
        while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
            found.append(self._read_value(inner, (*place, len(found))))
        height = 1 + max((each.height for each in found), default=0)
        return [each.value for each in found], height

    def _read_mapping(self, event: yaml.Event, place: ValuePath) -> tuple[dict[str, Any], int]:
        self._refuse_tag(event, place, "map")
        found: dict[str, Any] = {}
        height = 0
        while not isinstance(inner := next(self._events), yaml.MappingEndEvent):
            key = self._read_key(inner, place)
            if key in found:
                first = self.positions[(*place, key)].line
                self._refuse(inner, place, f"the key {key!r} is given twice; first in line {first}")
            self.positions.setdefault((*place, key), self._get_position(inner))
            read = self._read_value(next(self._events), (*place, key))
            found.setdefault(key, read.value)
            height = max(height, read.height)
        return found, height + 1

    def _read_key(self, event: yaml.Event, place: ValuePath) -> str:
        # The text itself: YAML would turn the key `no` into False and `1.0` into a float.
        if not isinstance(event, yaml.ScalarEvent):
            self._refuse(event, place, "the mapping has a key that is not text")
            self._read_value(event, place)
            return ""
        key = str(event.value)
        self._characters += len(key)
        if event.tag is None and not event.style and key == "<<":
            self._refuse(event, place, "the merge key `<<` is not supported", "write the keys out")
        elif event.tag not in (None, f"{_STANDARD_TAG_PREFIX}str"):
            self._refuse(
                event, place, f"the key {quote_value(key)} has the tag {quote_value(event.tag)}"
            )
        return key

    def _read_scalar(self, event: Any, place: ValuePath) -> Any:
        # Plain: without a tag and without quotes.
        text, plain = str(event.value), event.tag is None and not event.style
        tag = event.tag or f"{_STANDARD_TAG_PREFIX}str"
        if plain:
            tag = self._kind_of(yaml.ScalarNode, text, event.implicit)
        kind = tag.removeprefix(_STANDARD_TAG_PREFIX)
        # JSON's 1e3 is text in YAML 1.1, but its author means a number.
        if (kind in ("int", "float") or (plain and kind == "str")) and is_number(text):
            return self._read_number(event, place)
        if kind in _TEXT_KINDS:
            return text
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in self._words:
            return self._words[text.lower()]
        if kind == "float" and text.lower().endswith((".nan", ".inf")):
            self._refuse(event, place, f"{quote_value(text)} is not a finite number")
        elif tag.startswith(_STANDARD_TAG_PREFIX):
            wanted = "write true or false, or " if kind == "bool" else ""
            article = "an" if kind[0] in "aeiou" else "a"
            hint = f"{wanted}quote it to get the text {quote_value(text)}"
            self._refuse(
                event,
                place,
                f"{quote_value(text)} is YAML's spelling of {article} {kind}",
                hint,
            )
        else:
            self._refuse_tag(event, place, "str")
        return None

    def _read_number(self, event: Any, place: ValuePath) -> int | float | None:
        text = str(event.value)
        if len(text) > _MAX_YAML_NUMBER_LENGTH:
            self._refuse(event, place, f"the number has more than {_MAX_YAML_NUMBER_LENGTH} digits")
            return None
        if not any(mark in text for mark in ".eE"):
            return int(text)
        number = float(text)
        if not math.isfinite(number):
            self._refuse(event, place, f"{text} is too large for a number")
        return number

    def _count_value(self, event: yaml.Event, place: ValuePath, read: _MeasuredValue) -> None:
        self._values += read.values
        self._characters += read.characters
        for count, most, what in (
            (self._values, MAX_YAML_VALUES, "values"),
            (self._characters, MAX_YAML_CHARACTERS, "characters"),
        ):
            if count > most:
                hint = "an alias counts each time it is used"
                self._refuse(event, place, f"the file contains more than {most:,} {what}", hint)
                raise _LimitReached
        if len(place) + read.height > MAX_YAML_DEPTH:
            self._refuse(event, place, f"the value is nested more than {MAX_YAML_DEPTH} deep")
            raise _LimitReached

    def _refuse_tag(self, event: Any, place: ValuePath, kind: str) -> None:
        if event.tag not in (None, f"{_STANDARD_TAG_PREFIX}{kind}"):
            self._refuse(event, place, f"the tag {quote_value(event.tag)} is not supported")

    def _refuse(
        self, event: yaml.Event, place: ValuePath, message: str, hint: str | None = None
    ) -> None:
        self.problems.append(FileProblem(self._get_position(event), place, message, hint))
        if len(self.problems) >= _MAX_YAML_PROBLEMS:
            raise _LimitReached

    def _get_position(self, event: yaml.Event) -> Position:
        mark = event.start_mark
        return Position(self._file, *((1, 1) if mark is None else (mark.line + 1, mark.column + 1)))
