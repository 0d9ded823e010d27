"""Read files of `opencode export`, one session each."""

import re
from collections.abc import Iterator
from pathlib import Path

from assay.errors import BadRow

from ..foreign_values import dict_or_empty
from ..session_choice import SessionMeta, UnreadableSession
from ..stored_json import parse_stored_object, read_stored_bytes
from .archive import StoredMessage, StoredSession, read_session_meta

# `opencode export` announces itself on stderr, which ends up in files written with `&>`.
_EXPORT_ANNOUNCEMENT = re.compile(rb"\s*Exporting session:[^{\n]*\n?")
_EXPORT_HINT = "write the file with `opencode export`"


class ExportFiles:
    """Exported sessions. Each file is read once for the index, and again to load its session."""

    def __init__(self, where: Path, files: list[Path]) -> None:
        self.where = str(where)
        self.notes: list[str] = []
        # A file named after its session takes precedence over copies with other names.
        self._files = sorted(files, key=lambda path: (not path.name.startswith("ses_"), path.name))
        self._found: dict[str, tuple[SessionMeta, Path]] = {}
        self._children: dict[str, list[SessionMeta]] = {}
        self._unreadable: list[UnreadableSession] = []
        self._indexed = False

    def close(self) -> None:
        """Nothing stays open."""

    def iterate_meta(self) -> Iterator[SessionMeta | UnreadableSession]:
        self._index()
        yield from self._unreadable
        yield from sorted((meta for meta, _ in self._found.values()), key=_session_sort_key)

    def children_of(self, session_id: str) -> list[SessionMeta | UnreadableSession]:
        self._index()
        return [*sorted(self._children.get(session_id, ()), key=_session_sort_key)]

    def has(self, session_id: str) -> bool:
        self._index()
        return session_id in self._found

    def load(self, session_id: str) -> StoredSession:
        self._index()
        if session_id not in self._found:
            raise BadRow("the session does not exist", where=f"session {session_id}")
        return read_export(self._found[session_id][1])

    # On demand, because a stream may be opened and never read.
    def _index(self) -> None:
        if self._indexed:
            return
        self._indexed = True
        for path in self._files:
            try:
                info = read_export(path).info
            except BadRow as problem:
                self._unreadable.append(UnreadableSession(path.stem, problem.with_traceback(None)))
                continue
            meta = read_session_meta(info, str(info["id"]))
            if meta.id in self._found:
                read = self._found[meta.id][1].name
                self.notes.append(
                    f"{path.name} and {read} contain the same session; only {read} is read"
                )
                continue
            self._found[meta.id] = (meta, path)
            if meta.parent_id is not None:
                self._children.setdefault(meta.parent_id, []).append(meta)


def _session_sort_key(meta: SessionMeta) -> tuple[int, str]:
    return (meta.created or 0, meta.id)


def is_export(path: Path) -> bool:
    """Whether a file starts like an exported session. Reads only its first bytes."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError:
        return False
    return (
        re.match(rb'\s*\{\s*"(info|messages)"\s*:', _EXPORT_ANNOUNCEMENT.sub(b"", start))
        is not None
    )


def read_export(path: Path) -> StoredSession:
    """Read the session in a file, or raise `BadRow`."""
    where = str(path)
    data = read_stored_bytes(path)
    if announced := _EXPORT_ANNOUNCEMENT.match(data):
        data = data[announced.end() :]
    exported = parse_stored_object(data, where=where)
    info = exported.get("info")
    if not isinstance(info, dict) or not isinstance(info.get("id"), str):
        raise BadRow("the file contains no session under `info`", where=where, hint=_EXPORT_HINT)
    messages = exported.get("messages")
    if not isinstance(messages, list):
        raise BadRow("the file contains no list of `messages`", where=where, hint=_EXPORT_HINT)
    # Not sorted: the order of the file is OpenCode's own.
    found = StoredSession(info, [])
    for message in messages:
        own = dict_or_empty(message)
        about, parts = own.get("info"), own.get("parts")
        if not isinstance(about, dict) or not isinstance(parts, list):
            raise BadRow("the file contains a message without `info` and `parts`", where=where)
        if not all(isinstance(part, dict) for part in parts):
            raise BadRow("the file contains a part that is not an object", where=where)
        found.messages.append(StoredMessage(about, parts))
    return found
