"""The folder that an agent works in: a copy of a folder, and the files of a row.

Rows are data: they name no file outside of the folder, and no command.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from assay.errors import ConfigError, DatasetError
from assay.types import Sample

from .agent import CHECK_FILES_FIELD

FILES_FIELD = "files"
FOLDER_FIELD = "workspace"
_MAX_FILES = 20_000
_MAX_BYTES = 500_000_000
_GIT_TIMEOUT_S = 60.0
# Settings that agents read from the folder they work in. They run commands (hooks, plug-ins, MCP
# servers) and lead calls and keys to other addresses, which no model has decided on.
_AGENT_SETTINGS = frozenset(
    {".claude", ".claude.json", ".mcp.json", ".codex", ".opencode", "opencode.json"}
    | {"opencode.jsonc", ".pi"}
)
_GIT = ".git"
# Parts of a Git folder by which each `git status` can run a program.
_GIT_PROGRAMS = frozenset({"config", "config.worktree", "hooks", "modules", "worktrees"})


def create_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a new folder, which is removed with all that a program left in it."""
    return tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True)


def prepare_workspace(
    sample: Sample, workspace: Path, *, folder: Path | None, dataset_folder: Path | None
) -> None:
    """Fill a new folder: with the copy of `folder`, then with the folder and files of the row.

    `dataset_folder` is that of the dataset, in which the row's own one is looked for. Raises
    `DatasetError` for a row that names anything outside.
    """
    workspace.mkdir()
    if folder is not None:
        _copy_files(folder, workspace, list_author_files(folder))
    name = sample.input.get(FOLDER_FIELD)
    if name is not None:
        source = _find_row_folder(name, dataset_folder)
        _copy_files(source, workspace, _limit_size(source, _walk_row_folder(source)))
    write_row_files(sample, FILES_FIELD, workspace)


def check_workspace_row(sample: Sample, *, dataset_folder: Path | None) -> None:
    """Raise `DatasetError` for files and a folder of a row that cannot be used."""
    for field in (FILES_FIELD, CHECK_FILES_FIELD):
        _read_files(sample, field)
    if (name := sample.input.get(FOLDER_FIELD)) is not None:
        folder = _find_row_folder(name, dataset_folder)
        for _ in _limit_size(folder, _walk_row_folder(folder)):
            pass  # refuses what cannot be copied


def write_row_files(sample: Sample, field: str, workspace: Path) -> None:
    """Write the files of a field of the row, over those that exist."""
    for path, text in _read_files(sample, field).items():
        _write_inside(workspace, path, text)


def digest_folder(folder: Path) -> str:
    """Return the SHA-256 of the names and contents of the files that are copied."""
    digest = hashlib.sha256()
    for name in sorted(list_author_files(folder)):
        path = folder / name
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogateescape") + content)
    return digest.hexdigest()


def list_author_files(folder: Path) -> list[str]:
    """List the files of a folder; those of a Git repository without the ignored ones.

    Raises `ConfigError` for a folder that is too large.
    """
    # Only for the folder of the evaluation's author: the settings of a repository can run programs.
    if (folder / ".git").exists() and shutil.which("git") is not None:
        command = "git ls-files -z --cached --others --exclude-standard".split()
        try:
            listed = subprocess.run(
                command, cwd=folder, capture_output=True, check=True, timeout=_GIT_TIMEOUT_S
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigError(f"the files cannot be listed: {error}", where=str(folder)) from None
        found = os.fsdecode(listed).split("\0")
        names = iter([name for name in found if name and os.path.lexists(folder / name)])
    else:
        names = _walk_workspace(folder)
    try:
        return list(_limit_size(folder, names))
    except DatasetError as error:
        raise ConfigError(
            error.message, where=str(folder), hint="copy the files that the task needs elsewhere"
        ) from None


def _walk_workspace(folder: Path) -> Iterator[str]:
    for root, _, names in os.walk(folder):
        for name in names:
            yield str(Path(root, name).relative_to(folder))


def _walk_row_folder(folder: Path) -> Iterator[str]:
    """List the files of a row's folder. Raises `DatasetError` for settings of agents."""
    for name in _walk_workspace(folder):
        parts = [part.lower() for part in Path(name).parts]
        _check_settings(name, f"`{FOLDER_FIELD}` of the row")
        inside = parts[parts.index(_GIT) + 1 :] if _GIT in parts else None
        # The history of a repository is data; what it runs is not.
        if inside is None or (inside and not _GIT_PROGRAMS.intersection(inside)):
            yield name


def _check_settings(name: str, where: str) -> None:
    found = next((p for p in PurePosixPath(name).parts if p.lower() in _AGENT_SETTINGS), None)
    if found is not None:
        raise DatasetError(
            f"{name!r} would be read as settings of a coding agent, which can run commands",
            where=where,
            hint=f"rows cannot contain {found}; put it into the evaluation's `workspace` folder",
        )


def _limit_size(folder: Path, names: Iterable[str]) -> Iterator[str]:
    count = size = 0
    for name in names:
        count, size = count + 1, size + (folder / name).lstat().st_size
        if count > _MAX_FILES or size > _MAX_BYTES:
            raise DatasetError(
                f"the folder has more than {_MAX_FILES:,} files or {_MAX_BYTES:,} bytes",
                where=str(folder),
            )
        yield name


def _copy_files(source: Path, target: Path, names: Iterable[str]) -> None:
    root = source.resolve()
    for name in names:
        path, copy = source / name, target / name
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise DatasetError(
                f"the link {name!r} leads outside the folder",
                where=str(source),
                hint="remove the link, or replace it with a copy",
            )
        if not path.is_symlink() and not path.is_file():
            continue  # a socket, or the folder of a submodule
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy, follow_symlinks=False)


def _find_row_folder(name: object, dataset_folder: Path | None) -> Path:
    where = f"`{FOLDER_FIELD}` of the row"
    if dataset_folder is None:
        raise DatasetError(
            "the folder cannot be found, since the dataset is not a file",
            where=where,
            hint=f"write the files into the row, as `{FILES_FIELD}`",
        )
    folder = (dataset_folder / _check_path(name, where)).resolve()
    if not folder.is_relative_to(dataset_folder.resolve()) or folder == dataset_folder.resolve():
        raise DatasetError(f"{name!r} leads outside the dataset's folder", where=where)
    if not folder.is_dir():
        raise DatasetError(f"{name!r} is not a folder beside the dataset", where=where)
    return folder


def _read_files(sample: Sample, field: str) -> Mapping[str, str]:
    found = sample.input.get(field)
    where = f"`{field}` of the row"
    if found is None:
        return {}
    if not isinstance(found, Mapping) or not all(isinstance(each, str) for each in found.values()):
        raise DatasetError(
            "the value is not an object of file names and texts",
            where=where,
            hint='write it as {"src/sums.py": "def add(a, b): ..."}',
        )
    for path in found:
        parts = _check_path(path, where).parts
        if field == FILES_FIELD:
            _check_settings(path, where)
            if any(part.lower() == _GIT for part in parts):
                raise DatasetError(
                    f"{path!r} is a part of a Git repository, which can run commands",
                    where=where,
                    hint="run `git init` in `setup`",
                )
    return found


def _check_path(name: object, where: str) -> PurePosixPath:
    path = PurePosixPath(name) if isinstance(name, str) and name.strip() else None
    if path is None or "\0" in str(path) or "\\" in str(path):
        raise DatasetError(f"{name!r} is not the name of a file", where=where)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise DatasetError(
            f"{name!r} leads outside the workspace", where=where, hint="write a relative path"
        )
    return path


def _write_inside(workspace: Path, name: str, text: str) -> None:
    # The agent may have left links on the way: following one would write outside of the folder.
    path = workspace
    for part in PurePosixPath(name).parts[:-1]:
        path = path / part
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            path.unlink()
        path.mkdir(exist_ok=True)
    path = path / PurePosixPath(name).name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(path, flags, 0o644), "wb") as file:
        file.write(text.encode("utf-8", "surrogatepass"))
