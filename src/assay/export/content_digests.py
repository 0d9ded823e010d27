"""Short names for texts and conversations, and what was seen of them, in bounded memory."""

import sqlite3
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from assay.types import Message, canonical_json

_IN_MEMORY = 200_000
_TABLE = "CREATE TABLE seen (digest BLOB PRIMARY KEY, value TEXT) WITHOUT ROWID"
_GET = "SELECT value FROM seen WHERE digest = ?"
_PUT = "INSERT OR IGNORE INTO seen VALUES (?, ?)"


def digest_of(value: Any) -> bytes:
    """Sixteen bytes that only equal JSON values share."""
    return blake2b(canonical_json(value), digest_size=16).digest()


def conversation_digest(messages: Iterable[Message]) -> bytes:
    """The same for conversations in the same words: ids of calls, times and models do not count."""
    return digest_of([_words_of(message) for message in messages])


def _words_of(message: Message) -> list[Any]:
    content = message.content if isinstance(message.content, str) else _blocks(message)
    calls = [[call.name, call.arguments, call.raw_arguments] for call in message.tool_calls]
    return [message.role, content, calls, message.reasoning or ""]


def _blocks(message: Message) -> Any:
    blocks = message.content or ()
    if all(getattr(block, "type", None) == "text" for block in blocks):
        return message.text
    return [block if isinstance(block, str) else block.model_dump(mode="json") for block in blocks]


def temporary_database() -> sqlite3.Connection:
    """A database in a file that has no name: nothing is left behind, however the process ends."""
    database = sqlite3.connect("", isolation_level=None)
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA cache_size = -8000")
    return database


class Seen:
    """A table from digest to the first value given with it. Beyond `in_memory` it is on disk."""

    def __init__(self, *, in_memory: int = _IN_MEMORY) -> None:
        self._in_memory = in_memory
        self._latest: dict[bytes, str] = {}
        self._database: sqlite3.Connection | None = None

    def get(self, digest: bytes) -> str | None:
        value = self._latest.get(digest)
        if value is None and self._database is not None:
            found = self._database.execute(_GET, (digest,)).fetchone()
            value = None if found is None else str(found[0])
        return value

    def first(self, digest: bytes, value: str) -> str:
        """The value that came first with this digest: perhaps this one."""
        earlier = self.get(digest)
        if earlier is not None:
            return earlier
        self._latest[digest] = value
        if len(self._latest) > self._in_memory:
            self._move_to_disk()
        return value

    def is_new(self, digest: bytes) -> bool:
        """Whether this digest was not given before. It is from now on."""
        if self.get(digest) is not None:
            return False
        self.first(digest, "")
        return True

    def _move_to_disk(self) -> None:
        if self._database is None:
            self._database = temporary_database()
            self._database.execute(_TABLE)
            self._database.execute("BEGIN")
        self._database.executemany(_PUT, sorted(self._latest.items()))
        self._latest.clear()

    def close(self) -> None:
        self._latest = {}
        if self._database is not None:
            self._database.close()

    def __del__(self) -> None:
        self.close()
