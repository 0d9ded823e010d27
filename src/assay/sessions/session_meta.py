"""Metadata of recorded sessions, and sessions that cannot be read."""

from dataclasses import dataclass

from assay.errors import BadRow


@dataclass(frozen=True, slots=True)
class SessionMeta:
    """Metadata to select a session by, without its messages."""

    id: str
    title: str = ""
    parent_id: str | None = None
    created: int | None = None
    """Milliseconds since 1970."""

    updated: int | None = None
    project: str | None = None
    directory: str | None = None


@dataclass(frozen=True)
class UnreadableSession:
    """A session that exists but cannot be read, and why."""

    session_id: str
    problem: BadRow
