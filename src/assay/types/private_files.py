"""Files and folders that only their owner may read, because they contain conversations.

Existing files keep the permissions that their owner chose.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from assay.errors import ConfigError

FILE_MODE = 0o600
FOLDER_MODE = 0o700
SHARED_FILE_MODE = 0o660
SHARED_FOLDER_MODE = 0o770


def open_private(path: Path) -> TextIO:
    """Open a new text file for writing; replaces one that a killed process left behind."""
    path.unlink(missing_ok=True)
    create_private(path)
    return path.open("r+", encoding="utf-8", newline="\n")


def create_private(path: Path, mode: int = FILE_MODE) -> None:
    """Create an empty file. Raises `FileExistsError` for an existing file or link."""
    # O_EXCL also refuses a symbolic link that another user planted under the name.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & FILE_MODE)
    try:
        if mode != FILE_MODE:
            os.fchmod(handle, mode)  # the umask would remove the group's permissions
    finally:
        os.close(handle)


def check_file_target(target: Path) -> None:
    """Raise `ConfigError` for a folder, a device or a pipe: a file must not replace it."""
    if not target.name or os.path.isdir(target):
        raise ConfigError(f"{target} is a folder", hint="pass the name of a file")
    with suppress(OSError):
        mode = target.lstat().st_mode
        # A rename replaces /dev/null like any file, for every process of the machine.
        if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
            raise ConfigError(
                f"{target} is a device or a pipe, not a file", hint="pass the name of a file"
            )


def write_private(path: Path, text: str) -> None:
    """Write a text atomically to a file that only its owner may read."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open_private(unfinished) as file:
            file.write(text)
        replace_private(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def replace_private(unfinished: Path, target: Path) -> None:
    """Move a finished file to its target, with the permissions of the file it replaces.

    Raises `ConfigError` if the target is not a file.
    """
    check_file_target(target)
    with suppress(OSError):
        before = target.stat()
        if before.st_gid != unfinished.stat().st_gid:
            os.chown(unfinished, -1, before.st_gid)
        os.chmod(unfinished, before.st_mode & 0o777)
    unfinished.replace(target)


def make_private_folder(folder: Path, mode: int = FOLDER_MODE) -> None:
    """Create a folder and its missing parents."""
    if folder.is_dir():
        return
    if not folder.parent.exists():
        make_private_folder(folder.parent, mode)
    folder.mkdir(mode=mode & FOLDER_MODE, exist_ok=True)
    if mode != FOLDER_MODE:
        folder.chmod(mode)
