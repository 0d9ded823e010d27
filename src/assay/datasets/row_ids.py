"""Ids that were seen, and where: exact, and in bounded memory for any number of ids."""

import sqlite3
from typing import Self

_MAX_IDS_IN_MEMORY = 10_000
_CREATE_SEEN_TABLE = (
    "CREATE TABLE seen (id TEXT PRIMARY KEY, position INT, times INT) WITHOUT ROWID"
)
_SELECT_SEEN_ID = "SELECT position, times FROM seen WHERE id = ?"
_REPLACE_SEEN_ID = "REPLACE INTO seen VALUES (?, ?, ?)"
# One byte each: eight megabytes.
_SLOTS = 1 << 23
_MASK = _SLOTS - 1


class SeenIds:
    """A table from id to the position that used it first.

    After every `in_memory` ids they move to a private temporary database. A hash filter of eight
    megabytes avoids most lookups: nearly every id is new. With a million ids in the database, one
    new id in nine is still looked up.
    """

    def __init__(self, *, in_memory: int = _MAX_IDS_IN_MEMORY) -> None:
        self._in_memory = in_memory
        self._latest: dict[str, tuple[int, int]] = {}
        self._database: sqlite3.Connection | None = None
        self._perhaps: bytearray

    def claim(self, given: str, position: int) -> int | None:
        """Claim an id of the data. Return the position that already has it, or None."""
        # `_get` and `_put` inlined: this runs for every row.
        latest = self._latest
        entry = latest.get(given)
        if entry is None and self._database is not None and self._perhaps[hash(given) & _MASK]:
            entry = self._database.execute(_SELECT_SEEN_ID, (given,)).fetchone()
        if entry is not None:
            return entry[0]
        latest[given] = (position, 1)
        if len(latest) > self._in_memory:
            self._move_to_disk()
        return None

    def number(self, made: str, position: int) -> str:
        """Return an unused id for a row without one: `made`, `made-2`, `made-3` in order."""
        entry = self._get(made)
        if entry is None:
            self._put(made, position, 1)
            return made
        first, times = entry
        while self._get(numbered := f"{made}-{times + 1}") is not None:
            times += 1
        self._put(made, first, times + 1)
        self._put(numbered, position, 1)
        return numbered

    def _get(self, key: str) -> tuple[int, int] | None:
        entry = self._latest.get(key)
        if entry is None and self._database is not None and self._perhaps[hash(key) & _MASK]:
            entry = self._database.execute(_SELECT_SEEN_ID, (key,)).fetchone()
        return entry

    def _put(self, key: str, position: int, times: int) -> None:
        self._latest[key] = (position, times)
        if len(self._latest) > self._in_memory:
            self._move_to_disk()

    def _move_to_disk(self) -> None:
        if self._database is None:
            # The empty name makes SQLite open a temporary file and unlink it at once, so that
            # nothing is left behind even if the process is killed.
            self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._perhaps = bytearray(_SLOTS)
            # No journal: the data need not survive a crash.
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.execute("PRAGMA cache_size = -2000")
            self._database.execute(_CREATE_SEEN_TABLE)
            self._database.execute("BEGIN")
        # Sorted below, so that each page of the table is written once for many ids.
        latest, perhaps = self._latest, self._perhaps
        for key in latest:
            # Python's hash is cached in the string, and its seed prevents crafted collisions.
            perhaps[hash(key) & _MASK] = 1
        self._database.executemany(
            _REPLACE_SEEN_ID, ((key, *latest[key]) for key in sorted(latest))
        )
        latest.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._latest = {}
        if self._database is not None:
            self._database.close()
