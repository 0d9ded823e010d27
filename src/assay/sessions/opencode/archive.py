"""The common interface of all layouts of stored OpenCode sessions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..foreign_values import dict_or_empty, parse_epoch_ms, str_or_none
from ..session_choice import SessionMeta, UnreadableSession


@dataclass(frozen=True)
class StoredMessage:
    """A message and its parts, as `opencode export` shows them."""

    info: dict[str, Any]
    parts: list[dict[str, Any]]


@dataclass(frozen=True)
class StoredSession:
    """A session as `opencode export` shows it, with its todo list."""

    info: dict[str, Any]
    messages: list[StoredMessage]
    todo: list[Any] = field(default_factory=list)
    stray_parts: list[dict[str, Any]] = field(default_factory=list)
    """Parts of messages that do not exist."""


class Archive(Protocol):
    """Stored sessions of one layout, read-only."""

    where: str
    notes: list[str]
    """Notes on files that were not read."""

    def iterate_meta(self) -> Iterator[SessionMeta | UnreadableSession]:
        """Yield the metadata of every session, oldest first."""

    def children_of(self, session_id: str) -> list[SessionMeta | UnreadableSession]:
        """Return the metadata of the subagents that a session started, oldest first."""

    def has(self, session_id: str) -> bool: ...

    def load(self, session_id: str) -> StoredSession:
        """Load a whole session. Raises `BadRow` if any part of it cannot be read."""

    def close(self) -> None: ...


def read_session_meta(info: dict[str, Any], session_id: str) -> SessionMeta:
    """Read the metadata of a session from its info. Values of a wrong type become None."""
    time = dict_or_empty(info.get("time"))
    return SessionMeta(
        id=session_id,
        title=str_or_none(info.get("title")) or "",
        parent_id=str_or_none(info.get("parentID")),
        created=parse_epoch_ms(time.get("created")),
        updated=parse_epoch_ms(time.get("updated")),
        project=str_or_none(info.get("projectID")),
        directory=str_or_none(info.get("directory")),
    )


def sort_messages(messages: list[StoredMessage]) -> list[StoredMessage]:
    """Sort messages by time, then id."""

    def order(message: StoredMessage) -> tuple[int, str]:
        # Not by id alone: the time in the ids wraps every 795 days.
        created = parse_epoch_ms(dict_or_empty(message.info.get("time")).get("created"))
        return (created or 0, str(message.info.get("id", "")))

    return sorted(messages, key=order)
