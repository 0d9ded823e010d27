"""The interface between the sources of rows and the stream of samples, and rows in memory."""

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

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
