"""Which sessions are asked for."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

from .session_meta import SessionMeta


@dataclass(frozen=True)
class SessionChoice:
    """Sessions that fit everything that is given here. Nothing given: all of them."""

    since: datetime | None = None
    """Last used then or later."""

    project: str | None = None
    """A project's id, its folder or a folder above it, or the name of its folder."""

    sessions: frozenset[str] = frozenset()
    title: str | None = None
    """Stands in the title, in capitals or not."""

    def fits(self, head: SessionMeta) -> bool:
        """Whether a session is asked for. One whose time is unknown is not older than anything."""
        if self.sessions and head.id not in self.sessions:
            return False
        if self.title is not None and self.title.casefold() not in head.title.casefold():
            return False
        return self._is_recent(head) and self._is_in_project(head)

    def _is_recent(self, head: SessionMeta) -> bool:
        used = head.updated if head.updated is not None else head.created
        return self.since is None or used is None or used >= self.since.timestamp() * 1000

    def _is_in_project(self, head: SessionMeta) -> bool:
        if self.project is None or self.project == head.project:
            return True
        if head.directory is None:
            return False
        folder = PurePosixPath(head.directory.replace("\\", "/"))
        wanted = PurePosixPath(self.project.replace("\\", "/"))
        if len(wanted.parts) == 1:
            return folder.name == wanted.name
        return folder == wanted or wanted in folder.parents
