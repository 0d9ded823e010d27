"""The code of a bundle: found by static analysis, named by its path in the project."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from assay.certify import locate_code
from assay.datasets import BundledCode
from assay.errors import ConfigError
from assay.types import compute_file_sha256

from .bundle_secrets import is_secret_file, refuse_secrets

# The nearest parent folder with one of these is the project.
_ROOT_MARKERS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_EXCLUDED_FOLDERS = frozenset({".git", ".assay", "__pycache__", ".pytest_cache", ".venv"})
# Imported code outside the project, such as an editable install.
_EXTERNAL = "external"
_MAX_LISTED_CHANGED_FILES = 5


@dataclass(frozen=True)
class CodeRequest:
    """The code to bundle, and the conditions for it."""

    kind: Literal["eval", "pytest"]
    scripts: tuple[Path, ...]
    start: Path
    """The folder where the command was started."""

    root: Path | None = None
    """The project's root folder. None: search the parents of the script."""

    config: str = "config"
    tests: tuple[str, ...] = ()
    more_files: tuple[Path, ...] = ()
    """Files that the code needs and does not name, such as `pytest.ini`."""

    options: Mapping[str, str | int | float] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    """Files that the run imported, with their digests at that time."""

    leave_out: frozenset[Path] = frozenset()
    allow_changed: bool = False
    allow_suspected: frozenset[str] = frozenset()
    """Files that may contain a suspected secret."""


@dataclass(frozen=True)
class SelectedCode:
    """The files of a bundle's code, by their names inside `code/`."""

    code: BundledCode
    files: dict[str, Path]
    left_out: tuple[str, ...]


def collect_code(request: CodeRequest) -> SelectedCode:
    """Find the files. Raises `ConfigError` for changed files and for files with secrets."""
    scripts = [Path(os.path.abspath(each)) for each in request.scripts]
    for script in scripts:
        if not script.is_file():
            raise ConfigError(
                f"the code of the run is missing: {script} does not exist",
                hint="start the command in the folder of the run, or name the file with --code",
            )
    modules = _check_modules(request) if request.kind == "eval" else []
    root = request.root or _find_project_root(scripts[0], request.start)
    folders = tuple(each for each in (request.start, root, root / "src") if each.is_dir())
    located = locate_code([*scripts, *modules], folders, request.leave_out)
    if request.kind == "pytest":
        # A session also imports tests that are not evaluations: only bundled files must match.
        bundled = {os.path.relpath(file, request.start) for file in located.files}
        known = {name: each for name, each in request.modules.items() if name in bundled}
        _check_modules(replace(request, modules=known))
    layout = _CodeLayout(root, located.import_folders)
    left_out: list[str] = []
    files: dict[str, Path] = {}
    for file in (*located.files, *request.more_files):
        name = layout.name(file)
        # A file outside every import folder cannot be imported from the bundle.
        if name is None or not _EXCLUDED_FOLDERS.isdisjoint(Path(name).parts):
            continue
        if is_secret_file(file):
            left_out.append(name)
            continue
        refuse_secrets(file, name, allow_suspected=name in request.allow_suspected)
        files[name] = file
    start = request.start
    code = BundledCode(
        kind=request.kind,
        files=tuple(name for name, file in files.items() if file in scripts),
        tests=request.tests,
        config=request.config,
        folder=start.relative_to(root).as_posix() if start.is_relative_to(root) else ".",
        import_folders=layout.import_folders,
        options=dict(request.options),
    )
    return SelectedCode(code, dict(sorted(files.items())), tuple(sorted(left_out)))


def _check_modules(request: CodeRequest) -> list[Path]:
    """Return the modules that the run imported. Raises `ConfigError` if one has changed."""
    found, changed = [], []
    for name, digest in request.modules.items():
        file = request.start / name
        if not file.is_file() or compute_file_sha256(file) != digest:
            changed.append(name)
        if file.is_file():
            found.append(file)
    if changed and not request.allow_changed:
        listed = ", ".join(changed[:_MAX_LISTED_CHANGED_FILES]) + (
            ", …" if len(changed) > _MAX_LISTED_CHANGED_FILES else ""
        )
        raise ConfigError(
            f"the code changed since the run was made: {listed}",
            hint="run the evaluation again, or bundle the current code with --allow-changed-code",
        )
    return found


def _find_project_root(script: Path, start: Path) -> Path:
    marked = (
        folder
        for folder in script.parents
        if any((folder / mark).exists() for mark in _ROOT_MARKERS) and folder != Path.home()
    )
    # Without a marker the script is a project of its own.
    root = next(marked, script.parent)
    # The code may open files relative to the folder in which it was started.
    return start if script.is_relative_to(start) and root.is_relative_to(start) else root


class _CodeLayout:
    """Maps files to names inside `code/`: the project path, or a numbered import folder."""

    def __init__(self, root: Path, import_folders: tuple[Path, ...]) -> None:
        self._root = root
        outside = [each for each in import_folders if not each.is_relative_to(root)]
        self._external = {each: f"{_EXTERNAL}/{number}" for number, each in enumerate(outside)}
        inside = [each for each in import_folders if each.is_relative_to(root)]
        self.import_folders = (
            *(each.relative_to(root).as_posix() for each in inside),
            *self._external.values(),
        )

    def name(self, file: Path) -> str | None:
        if file.is_relative_to(self._root):
            return file.relative_to(self._root).as_posix()
        for folder, name in self._external.items():
            if file.is_relative_to(folder):
                return f"{name}/{file.relative_to(folder).as_posix()}"
        return None
