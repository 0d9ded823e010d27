"""`read_opencode`: stream stored sessions as samples, and report skipped ones."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

from assay.errors import BadRow, ConfigError
from assay.types import Sample

from ..sample_options import SampleOptions
from ..session_choice import SessionChoice
from ..session_meta import SessionMeta, UnreadableSession
from ..session_reading import CONVERSION_ERRORS, Children, SessionReading
from .archive import Archive
from .convert import convert_session
from .locations import open_archive

NEWEST_TESTED_OPENCODE = "1.18.33"
"""The newest version of OpenCode whose sessions the tests read."""

# Nesting of subagents. OpenCode itself allows one level.
_MAX_OPENCODE_DEPTH = 8


class SessionStream:
    """Samples of stored sessions, one in memory at a time.

    Each `for` loop is a new pass. `reading` has the statistics of the latest pass.
    """

    def __init__(
        self,
        path: Path,
        choice: SessionChoice,
        *,
        children: Children,
        options: SampleOptions,
        redact: Callable[[Sample], Sample] | None,
    ) -> None:
        self.path = path
        self._choice = choice
        self._children = children
        self._options = options
        self._redact = redact
        self._left_to_parents = 0
        self.reading = SessionReading()

    def __iter__(self) -> Iterator[Sample]:
        self.reading = SessionReading()
        self._left_to_parents = 0
        return self._iterate_samples(self.reading)

    def _iterate_samples(self, reading: SessionReading) -> Iterator[Sample]:
        archive = open_archive(self.path)
        missing = set(self._choice.sessions)
        try:
            for meta in archive.iterate_meta():
                if isinstance(meta, UnreadableSession):
                    self._note_unreadable(meta, reading, missing)
                    continue
                missing.discard(meta.id)
                sample = self._read_if_chosen(archive, meta, reading)
                if sample is not None:
                    reading.read += 1
                    yield sample
            reading.missing = sorted(missing)
            reading.notes += archive.notes
            reading.note_versions(NEWEST_TESTED_OPENCODE)
            # Subagents whose parents are not selected either.
            reading.not_chosen += max(self._left_to_parents - reading.inlined, 0)
        finally:
            archive.close()

    def _note_unreadable(
        self, found: UnreadableSession, reading: SessionReading, missing: set[str]
    ) -> None:
        if self._choice.sessions and found.session_id not in self._choice.sessions:
            reading.not_chosen += 1
            return
        missing.discard(found.session_id)
        reading.skipped.append(found)

    def _read_if_chosen(
        self, archive: Archive, meta: SessionMeta, reading: SessionReading
    ) -> Sample | None:
        if self._is_left_to_parent(archive, meta):
            if self._children == "drop":
                reading.dropped += 1
            else:
                self._left_to_parents += 1
            return None
        if not self._choice.fits(meta):
            reading.not_chosen += 1
            return None
        try:
            return self._read(archive, meta.id, reading)
        except BadRow as problem:
            # The traceback would keep the session in memory.
            reading.skipped.append(UnreadableSession(meta.id, problem.with_traceback(None)))
            self._note_lost_children(archive, meta.id, reading)
            return None

    def _note_lost_children(
        self, archive: Archive, session_id: str, reading: SessionReading
    ) -> None:
        children = archive.children_of(session_id) if self._children == "inline" else []
        if children:
            self._left_to_parents -= len(children)
            reading.notes.append(
                f"session {session_id} cannot be read, so the inline sessions of its subagents are "
                f"skipped: {', '.join(children)}; children='separate' reads them"
            )

    def _is_left_to_parent(self, archive: Archive, meta: SessionMeta) -> bool:
        """Whether a subagent's session belongs into the sample of its parent.

        It is a separate sample if it was selected by id, or if its parent does not exist.
        """
        if meta.parent_id is None or self._children == "separate":
            return False
        return meta.id not in self._choice.sessions and archive.has(meta.parent_id)

    def _read(self, archive: Archive, session_id: str, reading: SessionReading) -> Sample | None:
        sample = self._build_sample(archive, session_id, reading)
        assert sample.trajectory is not None
        if not sample.trajectory.messages and not sample.metadata.get("skipped"):
            reading.empty += 1
            return None
        found = self._read_subagents(archive, session_id, reading, (session_id,))
        if found:
            sample.metadata["subagents"] = found
        return self._redact(sample) if self._redact is not None else sample

    def _build_sample(self, archive: Archive, session_id: str, reading: SessionReading) -> Sample:
        try:
            sample = convert_session(archive.load(session_id), self._options)
        except BadRow:
            raise
        except CONVERSION_ERRORS as error:
            raise BadRow(
                f"the session contains invalid values: {error}", where=f"session {session_id}"
            ) from error
        reading.count_unknown(sample)
        reading.check_version(sample.input.get("version"), newest=NEWEST_TESTED_OPENCODE)
        return sample

    def _read_subagents(
        self,
        archive: Archive,
        session_id: str,
        reading: SessionReading,
        above: tuple[str, ...],
    ) -> list[dict[str, Any]]:
        """Return the samples of subagents as dicts, with `children="inline"`."""
        found: list[dict[str, Any]] = []
        if self._children != "inline":
            return found
        for child in archive.children_of(session_id):
            if child in above or len(above) > _MAX_OPENCODE_DEPTH:
                raise BadRow(f"session {child} is its own subagent", where=f"session {session_id}")
            try:
                sample = self._build_sample(archive, child, reading)
            except BadRow as problem:
                reading.skipped.append(UnreadableSession(child, problem.with_traceback(None)))
                self._left_to_parents -= 1
                continue
            inner = self._read_subagents(archive, child, reading, (*above, child))
            if inner:
                sample.metadata["subagents"] = inner
            found.append(sample.to_dict())
            reading.inlined += 1
        return found


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
    if children not in get_args(Children):
        raise ConfigError(
            f"children must be one of {', '.join(get_args(Children))}, not {children!r}",
            where="read_opencode()",
        )
    return SessionStream(
        Path(path),
        choice or SessionChoice(),
        children=children,
        options=options or SampleOptions(),
        redact=redact,
    )
