"""`read_opencode`: find the sessions at a path and stream them as samples."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from assay.errors import BadRow, DatasetError
from assay.types import Sample

from ..session_choice import SampleOptions, SessionChoice, SessionMeta, UnreadableSession
from ..session_reading import Children
from ..session_stream import RecordedSession, SessionStream, StreamOptions
from .archive import Archive
from .convert import convert_session
from .exports import ExportFiles, is_export
from .session_database import OpenCodeDatabase
from .trees import GlobalTree, ProjectTrees

NEWEST_TESTED_OPENCODE = "1.18.33"
"""The newest version of OpenCode whose sessions the tests read."""

_SQLITE_MAGIC = b"SQLite format 3\x00"
_LOCATION_HINT = (
    "pass OpenCode's data folder, an opencode.db, or a file or folder of `opencode export`"
)


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
            meta,
            lambda: convert_session(self._archive.load(meta.id), self._options),
            partial(self._read_children, meta.id),
        )

    def _read_children(self, session_id: str) -> Iterator[RecordedSession | UnreadableSession]:
        for meta in self._archive.children_of(session_id):
            child = meta.session_id if isinstance(meta, UnreadableSession) else meta.id
            if child in self.expected:
                self.expected.discard(child)
            else:
                self._yielded.add(child)
            yield self.to_recorded_session(meta)


def open_archive(path: Path) -> Archive:
    """Open the sessions at `path`. Raises `DatasetError` if there are none.

    In a data folder the database takes precedence over the trees of older versions: OpenCode
    imported those into it and did not delete them.
    """
    if path.is_file():
        try:
            with path.open("rb") as file:
                start = file.read(len(_SQLITE_MAGIC))
        except OSError as error:
            message = f"the file cannot be opened: {error.strerror}"
            raise DatasetError(message, where=str(path)) from None
        is_database = start == _SQLITE_MAGIC or path.suffix == ".db"
        return OpenCodeDatabase(path) if is_database else ExportFiles(path, [path])
    if not path.is_dir():
        raise DatasetError(
            "the file or folder does not exist", where=str(path), hint=_LOCATION_HINT
        )
    own = path / "opencode.db"
    # The database of the release first, then those of other channels.
    if databases := [*([own] if own.is_file() else []), *sorted(path.glob("opencode-*.db"))]:
        archive: Archive = OpenCodeDatabase(databases[0])
        archive.notes += [
            f"{other} belongs to another release channel and was not read; pass its path to read it"
            for other in databases[1:]
        ]
        if _find_global_storage(path) or _find_project_storages(path):
            archive.notes.append(
                f"{path} also contains a tree of an older version, which OpenCode imported into "
                f"{databases[0].name}; the tree was not read"
            )
        return archive
    if storage := _find_global_storage(path):
        archive = GlobalTree(storage)
        if _find_project_storages(path):
            archive.notes.append(
                f"{path} also contains trees of OpenCode before 0.6, which were moved into "
                "`storage/`; they were not read"
            )
        return archive
    if storages := _find_project_storages(path):
        return ProjectTrees(path, storages)
    files = [file for file in sorted(path.glob("*.json")) if file.is_file()]
    if any(map(is_export, files)):
        # A file that is only named like an export is reported as unreadable, not ignored.
        exported = [file for file in files if file.name.startswith("ses_") or is_export(file)]
        return ExportFiles(path, exported)
    raise DatasetError(
        "the folder contains no OpenCode sessions", where=str(path), hint=_LOCATION_HINT
    )


def _find_global_storage(path: Path) -> Path | None:
    # Not by `storage/` alone: later versions keep other files there.
    for storage in (path / "storage", path):
        if any(storage.glob("session/*/ses_*.json")) and not (storage / "session/info").is_dir():
            return storage
    return None


def _find_project_storages(path: Path) -> list[Path]:
    found = [
        info.parents[1]
        for pattern in ("project/*/storage", "*/storage", "storage", ".")
        for info in sorted(path.glob(f"{pattern}/session/info"))
    ]
    return list(dict.fromkeys(found))
