"""The import path and the loaded files of a user's own modules."""

import hashlib
import os
import sys
import sysconfig
from collections.abc import Container, Iterable
from pathlib import Path

_INSTALLED = ("site-packages", "dist-packages")


def build_import_path(folders: Iterable[str | Path]) -> list[str]:
    """Return `sys.path` with `folders` after Python's own modules, before installed packages.

    A file in `folders` therefore never shadows one of Python's own modules.
    """
    path = [os.path.abspath(entry) for entry in sys.path]
    first = next((n for n, entry in enumerate(path) if is_installed(entry)), len(path))
    given = dict.fromkeys(map(os.path.abspath, folders))
    more = [folder for folder in given if folder not in path[:first]]
    return [*path[:first], *more, *(entry for entry in path[first:] if entry not in given)]


def hash_loaded_files(start: Path, *, ignore: Container[str] = ()) -> dict[str, str]:
    """Return the files of loaded modules that are not installed, with the sha256 of each.

    Paths inside `start` are relative to it. `ignore` are names of modules.
    """
    own = Path(__file__).parents[1]
    standard = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
    found: dict[str, str] = {}
    # A copy: looking up `__file__` of a lazy module may import others.
    for name, module in list(sys.modules.items()):
        file = None if name in ignore else getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or file.startswith(standard):
            continue
        path = Path(os.path.abspath(file))
        if is_installed(path) or path.is_relative_to(own) or not path.is_file():
            continue
        inside = path.is_relative_to(start)
        shown = path.relative_to(start).as_posix() if inside else str(path)
        with path.open("rb") as opened:
            found[shown] = hashlib.file_digest(opened, "sha256").hexdigest()
    return dict(sorted(found.items()))


def is_installed(path: str | Path) -> bool:
    """Whether a file or a folder belongs to installed packages."""
    return any(part in _INSTALLED for part in Path(path).parts)
