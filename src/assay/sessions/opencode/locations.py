"""Find the sessions at a path: a data folder, a database, a tree, or exported files."""

from pathlib import Path

from assay.errors import DatasetError

from .archive import Archive
from .exports import ExportFiles, is_export
from .session_database import OpenCodeDatabase
from .trees import GlobalTree, ProjectTrees

_SQLITE_MAGIC = b"SQLite format 3\x00"
_LOCATION_HINT = (
    "pass OpenCode's data folder, an opencode.db, or a file or folder of `opencode export`"
)


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
