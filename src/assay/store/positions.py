"""Where the samples of a resumed run stand when its rows may have moved."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .insert_rows import NO_POSITION

if TYPE_CHECKING:
    from .database import Database

_POSITION_OFFSET = 10**9
"""How far behind its own place a sample goes that finds another one there."""


class SamplePositions:
    """The places of the samples that a run has results or failed attempts of.

    Rollouts of one sample are found side by side, and taken for one group, by their place. In a
    dataset that changed, the rows that are left have other places than before.
    """

    def __init__(self, database: "Database", run_no: int) -> None:
        self._database = database
        self._run_no = run_no

    def of(self, keys: Sequence[str], index: int | None) -> int | None:
        """The place of the sample whose rollouts have these keys and whose row stands at `index`.

        The one that it has already, otherwise its row's; and if that is another sample's, one that
        is nobody's.
        """
        marks = ", ".join("?" * len(keys))
        position = self._find_position(f"key IN ({marks})", *keys)
        if position is not None:
            return None if position == NO_POSITION else position
        while index is not None and self._find_position("position = ?", index) is not None:
            index += _POSITION_OFFSET
        return index

    def _find_position(self, condition: str, *values: object) -> int | None:
        with self._database.read_transaction() as connection:
            for table in ("result", "attempt"):
                query = f"SELECT position FROM assay_{table} WHERE run_no = ? AND {condition}"
                found = self._database.execute(
                    connection, f"{query} LIMIT 1", self._run_no, *values
                ).scalar()
                if found is not None:
                    return int(found)
        return None
