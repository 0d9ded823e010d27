"""Positions of the samples of a resumed run whose dataset rows may have moved."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .insert_rows import NO_POSITION

if TYPE_CHECKING:
    from .database import Database

# Added to a sample's index when another sample already has that position.
_POSITION_OFFSET = 10**9


class SamplePositions:
    """Positions of the samples that have results or failed attempts in a run.

    Rollouts of one sample are grouped by their position. In a changed dataset the remaining rows
    have other indexes than before, so the recorded positions must be used.
    """

    def __init__(self, database: "Database", run_no: int) -> None:
        self._database = database
        self._run_no = run_no

    def of(self, keys: Sequence[str], index: int | None) -> int | None:
        """Return the position of the sample with these keys and the row at `index`.

        The recorded position if there is one, otherwise `index`, or a free position when another
        sample already has that.
        """
        marks = ", ".join("?" * len(keys))
        position = self._find_position(f"key IN ({marks})", *keys)
        if position is not None:
            return None if position == NO_POSITION else position
        while index is not None and self._find_position("position = ?", index) is not None:
            index += _POSITION_OFFSET
        return index

    def _find_position(self, condition: str, *values: object) -> int | None:
        with self._database.read_transaction() as transaction:
            for table in ("result", "attempt"):
                query = f"SELECT position FROM assay_{table} WHERE run_no = ? AND {condition}"
                found = transaction.execute(f"{query} LIMIT 1", self._run_no, *values).scalar()
                if found is not None:
                    return int(found)
        return None
