"""The interface between the sources of rows and the stream of samples, and rows in memory."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic_core import to_json, to_jsonable_python

from assay.errors import BadRow, DatasetError
from assay.types import Sample

from .json_text import measure_json
from .read_limits import ReadLimits

RowOutcome = dict[str, Any] | Sample | BadRow
"""A row, a finished sample, or the problem at this position."""


class Rows(Protocol):
    """Rows at numbered positions.

    An invalid row is yielded as a `BadRow`, so that the next one can still be read. A problem that
    makes the rest unreadable is raised.
    """

    def __iter__(self) -> Iterator[tuple[int, RowOutcome]]: ...

    def where(self, position: int) -> str:
        """Return the location of a row for messages."""


@dataclass(frozen=True)
class FileRows:
    """The rows of one file, numbered by lines from 1, or by elements from 0."""

    path: Path
    limits: ReadLimits
    by_line: ClassVar[bool] = True
    is_text: ClassVar[bool] = True
    """Whether the values come from text, so that each of them can be written as JSON."""

    def where(self, position: int) -> str:
        return f"{self.path}:{position}" if self.by_line else f"{self.path}[{position}]"


def check_row(row: dict[str, Any], *, where: str, max_depth: int) -> RowOutcome:
    """Return `row`, or a `BadRow` if its values have no JSON form.

    For rows that were never JSON text and have passed no parser.
    """
    _, depth, finite = measure_json(row, max_depth)
    if depth > max_depth:
        hint = "raise ReadLimits(max_depth=…), up to 200, if the nesting is intended"
        return BadRow(f"the row is nested deeper than {max_depth}", where=where, hint=hint)
    if not finite:
        return BadRow(
            "the row contains NaN or an infinity", where=where, hint="write None for unknown"
        )
    return row


def check_json_form(sample: Sample) -> None:
    """Raise `BadRow` if a value of the sample's data cannot be written as JSON.

    Its result could not be recorded: that must be known before an agent is asked.
    """
    given = {"ground_truth": sample.ground_truth, **sample.metadata, **sample.input}
    if _find_json_problem(given) is None:
        return
    for key, value in given.items():
        if (problem := _find_json_problem({key: value})) is not None:
            raise BadRow(
                f"{key!r:.80} cannot be written as JSON: {problem}",
                hint="leave the value out, or turn it into text or numbers with adapter=",
            )


def to_json_values(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row as JSON restores it: a date or a decimal is the text that is recorded of it.

    A row that has no JSON form is returned unchanged.
    """
    try:
        written: dict[str, Any] = to_jsonable_python(row)
    except (ValueError, RecursionError):
        return row
    return written


def is_json_form(row: dict[str, Any]) -> bool:
    """Return whether the row can be written as JSON."""
    return _find_json_problem(row) is None


def _find_json_problem(values: dict[str, Any]) -> str | None:
    try:
        data = to_json(values)
    except (ValueError, RecursionError) as error:
        problem = " ".join(str(error).split())
        return "it contains a lone surrogate" if "surrogates not allowed" in problem else problem
    constants: list[str] = []
    if b"NaN" in data or b"Infinity" in data:
        # Parsed, because "NaN" may also be part of a string.
        json.loads(data, parse_constant=constants.append)
    return f"it contains {constants[0]}" if constants else None


@dataclass
class MemoryRows:
    """Items of an iterable in this process, numbered from 0. An iterator can be read only once."""

    items: Iterable[Any]
    limits: ReadLimits
    _consumed: bool = field(default=False, init=False)

    @property
    def count(self) -> int | None:
        """The number of items, or None if it is unknown without reading them."""
        return len(self.items) if isinstance(self.items, Sized) else None

    def where(self, position: int) -> str:
        return f"item {position}"

    def __iter__(self) -> Iterator[tuple[int, RowOutcome]]:
        iterator = iter(self.items)
        # An iterator is its own iterator: a second pass would silently be empty.
        if iterator is self.items:
            if self._consumed:
                raise DatasetError(
                    "the iterator was already read and cannot be read again",
                    hint="pass a list, or a path, or call load_samples on a new iterator",
                )
            self._consumed = True
        for position, item in enumerate(iterator):
            where = self.where(position)
            if isinstance(item, Sample):
                yield position, item
            elif isinstance(item, Mapping):
                yield position, check_row(dict(item), where=where, max_depth=self.limits.max_depth)
            else:
                problem = f"the item is a {type(item).__name__}, not a dict or a Sample"
                yield position, BadRow(problem, where=where)
