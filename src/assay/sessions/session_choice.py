"""Metadata of recorded sessions, and which sessions and parts of them to read."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

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


@dataclass(frozen=True)
class SessionChoice:
    """Sessions that match all given criteria; without any, all sessions."""

    since: datetime | None = None
    """Last used at this time or later."""

    project: str | None = None
    """A project's id, its folder or a folder above it, or the name of its folder."""

    sessions: frozenset[str] = frozenset()
    title: str | None = None
    """Text that the title contains, ignoring case."""

    def fits(self, meta: SessionMeta) -> bool:
        """Whether a session matches. One with an unknown time passes `since`."""
        if self.sessions and meta.id not in self.sessions:
            return False
        if self.title is not None and self.title.casefold() not in meta.title.casefold():
            return False
        used = meta.updated if meta.updated is not None else meta.created
        if self.since is not None and used is not None and used < self.since.timestamp() * 1000:
            return False
        if self.project is None or self.project == meta.project:
            return True
        if meta.directory is None:
            return False
        folder = PurePosixPath(meta.directory.replace("\\", "/"))
        wanted = PurePosixPath(self.project.replace("\\", "/"))
        if len(wanted.parts) == 1:
            return folder.name == wanted.name
        return folder == wanted or wanted in folder.parents


@dataclass(frozen=True)
class SampleOptions:
    """Optional parts of a session to include in the sample."""

    keep_reverted: bool = False
    """Keep messages that the user has reverted."""

    synthetic: bool = False
    """Keep texts that OpenCode put into user messages, such as the content of attached files."""

    raw_records: bool = False
    """Keep records that are not messages in `metadata`, unchanged. For transcripts only."""
