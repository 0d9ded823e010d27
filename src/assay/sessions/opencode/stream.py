"""`read_opencode`: stream stored sessions as samples."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from assay.errors import BadRow
from assay.types import Sample

from ..session_choice import SampleOptions, SessionChoice, SessionMeta, UnreadableSession
from ..session_reading import Children
from ..session_stream import RecordedSession, SessionStream, StreamOptions
from .archive import Archive
from .convert import convert_session
from .locations import open_archive

NEWEST_TESTED_OPENCODE = "1.18.33"
"""The newest version of OpenCode whose sessions the tests read."""


def read_opencode(
    path: str | Path,
    choice: SessionChoice | None = None,
    *,
    children: Children = "inline",
    options: SampleOptions | None = None,
    redact: Callable[[Sample], Sample] | None = None,
) -> SessionStream:
    """Stream the sessions that OpenCode recorded, of any version, as samples.

    `path` is OpenCode's data folder, its database, a tree of JSON files, or exported files.
    `redact` is applied to each sample before it is returned.
    """
    find = partial(_find_stored_sessions, options=options or SampleOptions())
    wanted = StreamOptions(choice or SessionChoice(), children, redact)
    return SessionStream(Path(path), find, wanted, newest_tested=NEWEST_TESTED_OPENCODE)


def _find_stored_sessions(
    path: Path, *, options: SampleOptions
) -> Iterator[RecordedSession | UnreadableSession | str]:
    archive = open_archive(path)
    try:
        found = _StoredFamily(archive, options)
        for meta in archive.iterate_meta():
            if isinstance(meta, UnreadableSession):
                yield meta
            # The parent of a subagent yields it, unless the parent does not exist.
            elif meta.parent_id is None or not archive.has(meta.parent_id):
                yield found.to_recorded_session(meta)
            else:
                found.expect(meta.id)
        for session_id in sorted(found.expected):
            problem = BadRow("the session is its own subagent", where=f"session {session_id}")
            yield UnreadableSession(session_id, problem)
        yield from archive.notes
    finally:
        archive.close()


class _StoredFamily:
    """Sessions with their subagents, each of which is found under its parent once."""

    def __init__(self, archive: Archive, options: SampleOptions) -> None:
        self._archive = archive
        self._options = options
        # Parents mostly come before their subagents, so that both sets stay small.
        self.expected: set[str] = set()
        """Subagents that no parent has yielded yet; at the end, those in a circle."""

        self._yielded: set[str] = set()

    def expect(self, session_id: str) -> None:
        """Expect a subagent under its parent."""
        if session_id in self._yielded:
            self._yielded.discard(session_id)
        else:
            self.expected.add(session_id)

    def to_recorded_session(
        self, meta: SessionMeta | UnreadableSession
    ) -> RecordedSession | UnreadableSession:
        if isinstance(meta, UnreadableSession):
            return meta
        return RecordedSession(
            meta, partial(self._read_sample, meta.id), partial(self._read_children, meta.id)
        )

    def _read_sample(self, session_id: str) -> Sample:
        return convert_session(self._archive.load(session_id), self._options)

    def _read_children(self, session_id: str) -> Iterator[RecordedSession | UnreadableSession]:
        for meta in self._archive.children_of(session_id):
            child = meta.session_id if isinstance(meta, UnreadableSession) else meta.id
            if child in self.expected:
                self.expected.discard(child)
            else:
                self._yielded.add(child)
            yield self.to_recorded_session(meta)
