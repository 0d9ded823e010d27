"""Digests of texts and conversations, and tables of them in bounded memory."""

import sqlite3
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from assay.types import Message, encode_stable_json

# About 40 MB; beyond it the digests move to disk.
_MAX_DIGESTS_IN_MEMORY = 200_000
_CREATE_DIGESTS = "CREATE TABLE seen (digest BLOB PRIMARY KEY, value TEXT) WITHOUT ROWID"
_SELECT_DIGEST = "SELECT value FROM seen WHERE digest = ?"
_INSERT_DIGEST = "INSERT OR IGNORE INTO seen VALUES (?, ?)"


def digest_json(value: Any) -> bytes:
    """Return a digest of 16 bytes, equal for equal JSON values."""
    return blake2b(encode_stable_json(value), digest_size=16).digest()


def digest_conversation(messages: Iterable[Message]) -> bytes:
    """Return the digest of a conversation's content, without call ids, times and models."""
    contents = []
    for message in messages:
        content: Any = message.content or ()
        # One text has one digest, as a string or in blocks.
        if isinstance(content, str) or all(
            getattr(block, "type", None) == "text" for block in content
        ):
            content = message.text
        else:
            content = [
                block if isinstance(block, str) else block.model_dump(mode="json")
                for block in content
            ]
        calls = [[call.name, call.arguments, call.raw_arguments] for call in message.tool_calls]
        contents.append([message.role, content, calls, message.reasoning or ""])
    return digest_json(contents)


def open_temporary_database() -> sqlite3.Connection:
    """Open a temporary database that needs no clean-up, even when the process is killed."""
    # An empty name makes SQLite use a file that it unlinks right after opening it.
    database = sqlite3.connect("", isolation_level=None)
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA cache_size = -8000")
    return database


class DigestTable:
    """A table from digest to the first value added with it, on disk beyond `in_memory`."""

    def __init__(self, *, in_memory: int = _MAX_DIGESTS_IN_MEMORY) -> None:
        self._in_memory = in_memory
        self._latest: dict[bytes, str] = {}
        self._database: sqlite3.Connection | None = None

    def get(self, digest: bytes) -> str | None:
        value = self._latest.get(digest)
        if value is None and self._database is not None:
            found = self._database.execute(_SELECT_DIGEST, (digest,)).fetchone()
            value = None if found is None else str(found[0])
        return value

    def first(self, digest: bytes, value: str) -> str:
        """Return the first value added with this digest; add this one if it is new."""
        earlier = self.get(digest)
        if earlier is not None:
            return earlier
        self._latest[digest] = value
        if len(self._latest) > self._in_memory:
            if self._database is None:
                self._database = open_temporary_database()
                self._database.execute(_CREATE_DIGESTS)
                self._database.execute("BEGIN")
            # Sorted inserts touch each page of the B-tree once.
            self._database.executemany(_INSERT_DIGEST, sorted(self._latest.items()))
            self._latest.clear()
        return value

    def is_new(self, digest: bytes) -> bool:
        """Whether this digest is new; add it."""
        if self.get(digest) is not None:
            return False
        self.first(digest, "")
        return True

    def __del__(self) -> None:
        if self._database is not None:
            self._database.close()
