"""The interface between the sources of rows and the stream of samples."""

from collections.abc import Iterator
from typing import Any, Protocol

from assay.errors import BadRow
from assay.types import Sample

from .json_text import measure_json

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
