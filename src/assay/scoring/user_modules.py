"""Where modules of the user's own are imported from."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

_INSTALLED = ("site-packages", "dist-packages")


def import_path(folders: Iterable[str | Path]) -> list[str]:
    """`sys.path` with `folders` in it, behind the standard library and before installed packages.

    A file in `folders` therefore never takes the place of a module of the standard library.
    """
    path = [os.path.abspath(entry) for entry in sys.path]
    first = next((n for n, entry in enumerate(path) if is_installed(entry)), len(path))
    given = dict.fromkeys(map(os.path.abspath, folders))
    more = [folder for folder in given if folder not in path[:first]]
    return [*path[:first], *more, *(entry for entry in path[first:] if entry not in given)]


def is_installed(path: str | Path) -> bool:
    """Whether a file or a folder belongs to installed packages."""
    return any(part in _INSTALLED for part in Path(path).parts)
