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
from typing import NoReturn

from assay.errors import ConfigError, DatasetError
from assay.types import Sample

from .agent import CHECK_FILES_FIELD
from .workspace_rules import check_repositories, check_row_files, keep_in_row_folder

FILES_FIELD = "files"
FOLDER_FIELD = "workspace"
_MAX_FILES = 20_000
_MAX_BYTES = 500_000_000
_GIT_TIMEOUT_S = 60.0


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
    source = _find_row_folder(sample, dataset_folder)
    names = _list_row_files(sample, source)
    if source is not None:
        _copy_files(source, workspace, names)
    write_row_files(sample, FILES_FIELD, workspace)


def check_workspace_row(sample: Sample, *, dataset_folder: Path | None) -> None:
    """Raise `DatasetError` for files and a folder of a row that cannot be used."""
    _read_files(sample, CHECK_FILES_FIELD)
    _list_row_files(sample, _find_row_folder(sample, dataset_folder))


def write_row_files(sample: Sample, field: str, workspace: Path) -> None:
    """Write the files of a field of the row, over those that exist."""
    for path, text in _read_files(sample, field).items():
        _write_inside(workspace, path, text)


def digest_folder(folder: Path) -> str:
    """Return the SHA-256 of the names and contents of the files that are copied."""
    digest = hashlib.sha256()
    for name in sorted(list_author_files(folder)):
        path = folder / name
        content = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogateescape") + content)
    return digest.hexdigest()


def list_author_files(folder: Path) -> list[str]:
    """List the files of a folder; those of a Git repository without the ignored ones.

    Raises `ConfigError` for a folder that is too large.
    """
    try:
        return list(_limit_size(folder, _walk_author_folder(folder)))
    except DatasetError as error:
        raise ConfigError(
            error.message, where=str(folder), hint="copy the files that the task needs elsewhere"
        ) from None


def _walk_author_folder(folder: Path) -> Iterator[str]:
    # Only for the folder of the evaluation's author: the settings of a repository can run programs.
    if not (folder / ".git").exists() or shutil.which("git") is None:
        yield from _walk_workspace(folder)
        return
    command = "git ls-files -z --cached --others --exclude-standard".split()
    try:
        listed = subprocess.run(
            command, cwd=folder, capture_output=True, check=True, timeout=_GIT_TIMEOUT_S
        ).stdout
    except subprocess.CalledProcessError as error:
        problem = error.stderr.decode(errors="replace").strip() or error
        raise ConfigError(f"the files cannot be listed: {problem}", where=str(folder)) from None
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"the files cannot be listed: {error}", where=str(folder)) from None
    # An unresolved merge lists a file once for each side.
    for name in dict.fromkeys(os.fsdecode(listed).split("\0")):
        path = folder / name
        if not name or not (path.is_symlink() or path.exists()):
            continue
        if path.is_dir() and not path.is_symlink():
            # A submodule, or a repository inside of this one.
            yield from (os.path.join(name, each) for each in _walk_author_folder(path))
        else:
            yield name


def _walk_workspace(folder: Path) -> Iterator[str]:
    """List the files and links below a folder, without sockets and other special files."""
    for root, folders, names in os.walk(folder, onerror=_refuse_unreadable):
        for name in (*folders, *names):
            path = Path(root, name)
            if path.is_symlink() or path.is_file():
                yield str(path.relative_to(folder))


def _refuse_unreadable(error: OSError) -> NoReturn:
    raise DatasetError(f"the folder cannot be read: {error.strerror}", where=str(error.filename))


def _list_row_files(sample: Sample, source: Path | None) -> list[str]:
    """List the files of a row's folder that are copied. Raises `DatasetError` for refused ones."""
    where = _name_field(sample, FOLDER_FIELD)
    names: list[str] = []
    if source is not None:
        found = (name for name in _walk_workspace(source) if keep_in_row_folder(name, where))
        names = list(_limit_size(source, found))
        for link in (source / name for name in names if (source / name).is_symlink()):
            _find_link_target(link, source)
    written = _read_files(sample, FILES_FIELD)
    # Together: a repository may come in parts.
    both = f"`{FOLDER_FIELD}` and {_name_field(sample, FILES_FIELD)}"
    check_repositories([*names, *written], both)
    return names


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
    for name in names:
        path = source / name
        if path.is_symlink():
            _make_room(target, name).symlink_to(_find_link_target(path, source))
        elif path.is_file():
            shutil.copy2(path, _make_room(target, name))


def _find_link_target(link: Path, folder: Path) -> str:
    """Return where the copy of a link leads. Raises `DatasetError` for a link out of the folder."""
    root, text = folder.resolve(), os.readlink(link)
    try:
        found = link.resolve()
        is_inside = found.is_relative_to(root)
    except (OSError, RuntimeError):
        is_inside = False  # a link to itself
    if not is_inside:
        raise DatasetError(
            f"the link {str(link.relative_to(folder))!r} leads outside the folder",
            where=str(folder),
            hint="remove the link, or replace it with a copy",
        )
    # An absolute link, or one by way of a folder above, would lead to the original: the agent
    # would change the files of the author.
    parent = link.parent.resolve()
    stays = not os.path.isabs(text) and _stays_below(text, len(parent.relative_to(root).parts))
    return text if stays else os.path.relpath(found, parent)


def _stays_below(path: str, depth: int) -> bool:
    """Whether a path from a folder at this depth leads through no folder above the first."""
    for part in PurePosixPath(path).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return False
    return True


def _make_room(workspace: Path, name: str) -> Path:
    """Remove the file, link or folder of this name, and return its path."""
    # A link on the way is replaced as well: following one would write outside of the folder.
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
    return path


def _find_row_folder(sample: Sample, dataset_folder: Path | None) -> Path | None:
    """Return the folder that a row names; None if it names none."""
    name, where = sample.input.get(FOLDER_FIELD), _name_field(sample, FOLDER_FIELD)
    if name is None:
        return None
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
    where = _name_field(sample, field)
    if found is None:
        return {}
    if not isinstance(found, Mapping) or not all(isinstance(each, str) for each in found.values()):
        raise DatasetError(
            "the value is not an object of file names and texts",
            where=where,
            hint='write it as {"src/sums.py": "def add(a, b): ..."}',
        )
    for path in found:
        _check_path(path, where)
    check_row_files(found, where, for_agent=field == FILES_FIELD)
    return found


def _name_field(sample: Sample, field: str) -> str:
    return f"`{field}` of the row {sample.id!r}"


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
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(_make_room(workspace, name), flags, 0o644), "wb") as file:
        file.write(text.encode("utf-8", "surrogatepass"))
