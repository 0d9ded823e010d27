"""Selection of sessions."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

from .session_meta import SessionMeta


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
        return self._is_recent(meta) and self._is_in_project(meta)

    def _is_recent(self, meta: SessionMeta) -> bool:
        used = meta.updated if meta.updated is not None else meta.created
        return self.since is None or used is None or used >= self.since.timestamp() * 1000

    def _is_in_project(self, meta: SessionMeta) -> bool:
        if self.project is None or self.project == meta.project:
            return True
        if meta.directory is None:
            return False
        folder = PurePosixPath(meta.directory.replace("\\", "/"))
        wanted = PurePosixPath(self.project.replace("\\", "/"))
        if len(wanted.parts) == 1:
            return folder.name == wanted.name
        return folder == wanted or wanted in folder.parents
