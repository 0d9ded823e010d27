"""Golden datasets in local files: inside the folder of the manifest, unless that is waived."""

import stat
from pathlib import Path

from assay.errors import DatasetError

from .access_rules import FetchRules, FileVersion
from .addresses import DatasetAddress
from .download import Download

_COPY_CHUNK_BYTES = 1024 * 1024


def find_file(address: DatasetAddress, root: Path | None, rules: FetchRules) -> Path:
    """Resolve a path and its symbolic links. Raises `DatasetError` outside of `root`."""
    given = Path(address.text)
    if root is None and not given.is_absolute():
        hint = "pass root=, the folder that the path is relative to"
        raise DatasetError(
            "the path is relative, and no root folder is given", where=address.shown, hint=hint
        )
    try:
        path = given if root is None else root / given
        found = path.resolve()
        inside = root is not None and found.is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError):
        raise DatasetError("the path is invalid", where=address.shown) from None
    if not inside and not rules.allow_outside:
        raise DatasetError(
            "the path leads out of the folder of the manifest",
            where=address.shown,
            hint="move the file there, or allow it with --allow-outside",
        )
    return found


def copy_file(path: Path, download: Download, shown: str) -> FileVersion:
    """Copy a regular file. Raises `DatasetError` for anything else."""
    try:
        # Checked before opening: a named pipe would block, and a device might never end.
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind):
            actual = "a folder" if stat.S_ISDIR(kind) else "not a regular file"
            raise DatasetError(f"the path is {actual}", where=shown, hint="name a file")
        with path.open("rb") as file:
            while piece := file.read(_COPY_CHUNK_BYTES):
                download.write(piece)
    except FileNotFoundError:
        raise DatasetError("the file does not exist", where=shown, hint="check the path") from None
    except OSError as error:
        raise DatasetError(f"the file cannot be read: {error.strerror}", where=shown) from error
    return FileVersion()
