"""The files of modules, found by their names in Python's search order. Nothing is imported."""

import functools
import os
import sys
import sysconfig
from collections.abc import Iterable
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

_MODULE_SUFFIXES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES)

ModuleFiles = tuple[Path, ...]
"""The files of a module: the `__init__` files of its packages, then its own."""


class FolderNames:
    """The names of files and folders in a folder. Each folder is listed once."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str]] = {}
        self._modules: dict[str, frozenset[str]] = {}

    def list_names(self, folder: Path | str) -> frozenset[str]:
        """Return all names in a folder; none if it cannot be read."""
        key = str(folder)
        if key not in self._names:
            try:
                self._names[key] = frozenset(os.listdir(key))
            except (OSError, ValueError):
                self._names[key] = frozenset()
        return self._names[key]

    def list_modules(self, folder: Path | str) -> frozenset[str]:
        """Return the names of top-level modules that a folder may have."""
        key = str(folder)
        if key not in self._modules:
            names = (each.partition(".")[0] for each in self.list_names(key))
            self._modules[key] = frozenset(names)
        return self._modules[key]


def locate_module(
    name: str, path: Iterable[str], names: FolderNames, *, installed: bool = True
) -> tuple[str, ModuleFiles]:
    """Return the path entry of a module and its files, or those of the packages found.

    With `installed`, a module that is not on the path is looked up among installed ones.
    """
    top, *rest = name.split(".")
    without_file: list[tuple[str, ModuleFiles]] = []
    for entry in path:
        found = _find_in_folder(Path(entry), top) if top in names.list_modules(entry) else None
        if found is not None and found[1]:
            return entry, (*found[1], *_find_submodules(found[0], rest))
        if found is not None:
            without_file.append((entry, _find_submodules(found[0], rest)))
    if without_file:
        # A namespace package is used only if no regular module has the name.
        return next((each for each in without_file if each[1]), without_file[0])
    return _locate_installed(top, rest) if installed else ("", ())


def _locate_installed(top: str, rest: Iterable[str]) -> tuple[str, ModuleFiles]:
    try:
        # Finds editable installs, which use import hooks. Imports nothing: only a dotted name
        # has a parent package to import.
        spec = find_spec(top)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None or spec.origin is None or not os.path.isfile(spec.origin):
        return "", ()
    file = Path(spec.origin)
    package = file.parent if file.stem == "__init__" else None
    entry = str(file.parents[1] if package else file.parent)
    return entry, (file, *_find_submodules(package, rest))


def _find_submodules(package: Path | None, names: Iterable[str]) -> ModuleFiles:
    files: ModuleFiles = ()
    for name in names:
        found = None if package is None else _find_in_folder(package, name)
        if found is None:
            break
        package, files = found[0], (*files, *found[1])
    return files


def _find_in_folder(folder: Path, name: str) -> tuple[Path | None, ModuleFiles] | None:
    """Return the submodule folder and the file of a module, in Python's search order."""
    package = folder / name
    # `Path.is_file` raises for a name that is too long.
    for suffix in _MODULE_SUFFIXES:
        if os.path.isfile(file := package / f"__init__{suffix}"):
            return package, (file,)
    for suffix in _MODULE_SUFFIXES:
        if os.path.isfile(file := folder / f"{name}{suffix}"):
            return None, (file,)
    return (package, ()) if os.path.isdir(package) else None


@functools.cache
def is_python_module(top: str) -> bool:
    """Whether a top-level module is part of this Python."""
    # `stdlib_module_names` lists the modules of all systems: check that the file exists here.
    if top in sys.builtin_module_names:
        return True
    library = sysconfig.get_path("stdlib")
    folders = (Path(library), Path(library, "lib-dynload"), Path(sysconfig.get_path("platstdlib")))
    return top in sys.stdlib_module_names and any(_find_in_folder(each, top) for each in folders)


def is_standard_library(entry: str) -> bool:
    """Whether a file or folder belongs to Python's own modules."""
    return any(entry == each or entry.startswith(f"{each}{os.sep}") for each in _list_standard())


@functools.cache
def _list_standard() -> frozenset[str]:
    found = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
    return frozenset(each for each in found if each)
