"""What every source looks like to the stream that makes samples of it."""

from collections.abc import Iterator
from typing import Any, Protocol

from assay.errors import BadRow
from assay.types import Sample

from .json_text import measure_json

RowOutcome = dict[str, Any] | Sample | BadRow
"""A row, a finished sample, or why there is neither at this place."""


class Rows(Protocol):
    """Rows at numbered positions.

    A row that is wrong is yielded as a `BadRow`, so that the next one can still be read. What
    makes the rest unreadable is raised.
    """

    def __iter__(self) -> Iterator[tuple[int, RowOutcome]]: ...

    def where(self, position: int) -> str:
        """The place of a row in words a person can find it by."""


def check_row(row: dict[str, Any], *, where: str, max_depth: int) -> RowOutcome:
    """`row`, or why values that never were JSON text cannot be a row."""
    _, depth, finite = measure_json(row, max_depth)
    if depth > max_depth:
        hint = "raise ReadLimits(max_depth=…), up to 200, if the nesting is intended"
        return BadRow(f"the row is nested deeper than {max_depth}", where=where, hint=hint)
    if not finite:
        return BadRow(
            "the row contains NaN or an infinity", where=where, hint="write None for unknown"
        )
    return row
