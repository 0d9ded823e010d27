"""Read sessions in trees of JSON files, which OpenCode used before 1.2.

Paths are built from directory listings, never from the content of a file.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.errors import BadRow

from ..session_choice import SessionMeta, UnreadableSession
from ..stored_json import parse_json, read_stored_bytes, read_stored_object
from .archive import StoredMessage, StoredSession, read_session_meta, sort_messages
from .embedded import extract_parts, is_embedded


class JsonTree(ABC):
    """Base class of both trees: an index of the sessions without their messages."""

    def __init__(self, where: Path) -> None:
        self.where = str(where)
        self.notes: list[str] = []
        # The folder of each session, oldest first. A path for each would take far more memory.
        self._folders: dict[str, Path] = {}
        self._children: dict[str, list[str]] = {}
        self._unreadable: list[UnreadableSession] = []
        self._indexed = False

    def close(self) -> None:  # noqa: B027  # not abstract: no tree has anything to close
        """Nothing stays open."""

    def iterate_meta(self) -> Iterator[SessionMeta | UnreadableSession]:
        self._index()
        yield from self._unreadable
        yield from map(self._read_meta, self._folders)

    def children_of(self, session_id: str) -> list[SessionMeta | UnreadableSession]:
        self._index()
        return [self._read_meta(child) for child in self._children.get(session_id, ())]

    def has(self, session_id: str) -> bool:
        self._index()
        return session_id in self._folders

    def load(self, session_id: str) -> StoredSession:
        self._index()
        if session_id not in self._folders:
            raise BadRow("the session does not exist", where=f"session {session_id}")
        path = self._get_session_path(session_id)
        return self.session(path, {"id": session_id, **self.read_info(path)})

    def read_info(self, path: Path) -> dict[str, Any]:
        """Read the info of a session from its file. Raises `BadRow`."""
        return read_stored_object(path)

    @abstractmethod
    def session_folders(self) -> list[Path]:
        """Return the folders with the info files of sessions."""

    @abstractmethod
    def session(self, path: Path, info: dict[str, Any]) -> StoredSession:
        """Load the session of an info file."""

    def _get_session_path(self, session_id: str) -> Path:
        return self._folders[session_id] / f"{session_id}.json"

    def _read_meta(self, session_id: str) -> SessionMeta | UnreadableSession:
        try:
            info = self.read_info(self._get_session_path(session_id))
        except BadRow as problem:
            return UnreadableSession(session_id, problem.with_traceback(None))
        return read_session_meta(info, session_id)

    def _index(self) -> None:
        # A pass over all sessions: only the info of a child names its parent.
        if self._indexed:
            return
        self._indexed = True
        found: dict[str, tuple[int, Path]] = {}
        for folder in self.session_folders():
            for path in _list_json_files(folder, start="ses_"):
                session_id = path.stem
                if session_id in found:
                    self.notes.append(
                        f"{path}: session {session_id} exists in another folder too; skipped"
                    )
                    continue
                try:
                    meta = read_session_meta(self.read_info(path), session_id)
                except BadRow as problem:
                    lost = UnreadableSession(session_id, problem.with_traceback(None))
                    self._unreadable.append(lost)
                    continue
                found[session_id] = (meta.created or 0, folder)
                if meta.parent_id is not None:
                    self._children.setdefault(meta.parent_id, []).append(session_id)
        in_time = sorted(found, key=lambda session_id: (found[session_id][0], session_id))
        self._folders = {session_id: found[session_id][1] for session_id in in_time}
        for children in self._children.values():
            children.sort(key=lambda session_id: (found[session_id][0], session_id))


class GlobalTree(JsonTree):
    """One tree for all projects: OpenCode 0.6 to 1.1."""

    def __init__(self, storage: Path) -> None:
        super().__init__(storage)
        self._storage = storage

    def session_folders(self) -> list[Path]:
        return sorted(self._storage.glob("session/*"))

    def session(self, path: Path, info: dict[str, Any]) -> StoredSession:
        messages = []
        for file in _list_json_files(self._storage / "message" / path.stem):
            message = {"id": file.stem, "sessionID": path.stem, **read_stored_object(file)}
            parts = [
                read_stored_object(part)
                for part in _list_json_files(self._storage / "part" / file.stem)
            ]
            messages.append(StoredMessage(message, _sort_by_id(parts)))
        todo = _read_list(self._storage / "todo" / path.name)
        return StoredSession(info, sort_messages(messages), todo)


class ProjectTrees(JsonTree):
    """A tree for each project: OpenCode 0.1 to 0.5. The oldest keep parts inside messages."""

    def __init__(self, where: Path, storages: list[Path]) -> None:
        super().__init__(where)
        self._storages = storages

    def session_folders(self) -> list[Path]:
        return [storage / "session" / "info" for storage in self._storages]

    def read_info(self, path: Path) -> dict[str, Any]:
        # The folder of a project is named after its path.
        return {"projectID": path.parents[3].name, **read_stored_object(path)}

    def session(self, path: Path, info: dict[str, Any]) -> StoredSession:
        session = path.parents[1]
        messages = []
        for file in _list_json_files(session / "message" / path.stem):
            message = {"id": file.stem, "sessionID": path.stem, **read_stored_object(file)}
            if is_embedded(message):
                messages.append(extract_parts(message, where=str(file)))
                continue
            folder = session / "part" / path.stem / file.stem
            parts = [read_stored_object(part) for part in _list_json_files(folder)]
            messages.append(StoredMessage(message, _sort_by_id(parts)))
        todo = _read_list(session / "todo" / path.name)
        return StoredSession(info, sort_messages(messages), todo)


def _list_json_files(folder: Path, *, start: str = "") -> list[Path]:
    """Return the JSON files of a folder by name; none if it does not exist."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise BadRow(f"the folder cannot be read: {error.strerror}", where=str(folder)) from None
    return [
        folder / name for name in sorted(names) if name.startswith(start) and name.endswith(".json")
    ]


def _sort_by_id(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(parts, key=lambda part: str(part.get("id", "")))


def _read_list(path: Path) -> list[Any]:
    if not path.is_file():
        return []
    value = parse_json(read_stored_bytes(path), where=str(path))
    return value if isinstance(value, list) else []
