"""Follows the references of code from one file to the next. Nothing is imported or run."""

import os
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any

import rfc8785

from assay.errors import ConfigError
from assay.scorers import build_import_path, is_installed
from assay.types import compute_file_sha256, compute_sha256

from .module_lookup import (
    FolderNames,
    ModuleFiles,
    is_python_module,
    is_standard_library,
    locate_module,
)
from .source_text import (
    NODE_CODE,
    SourceReferences,
    is_makefile,
    read_script_references,
    read_shebang,
    read_source_references,
    split_command,
)

_MAX_SCANNED_FILES = 20_000
_MAX_DATA_FOLDERS = 50

# Folder names joined to one path: `HERE / "data" / "words" / "en.txt"` has two.
_MAX_FOLDER_DEPTH = 3

# Imported by Python when it starts.
_STARTUP_MODULES = ("sitecustomize", "usercustomize")

# Found before any folder is searched.
_FIXED_MODULES = frozenset({"assay", *sys.builtin_module_names})

_EXTERNAL_FOLDERS = frozenset({"__pycache__", "site-packages", "dist-packages", "node_modules"})
# Reports of earlier certifications, which change with each run.
_REPORT_FILES = ("certificate.json", "certificate.dsse.json", "result.json", "card.md", "junit.xml")
_IGNORED_OUTPUTS = frozenset({*_REPORT_FILES, *(f"{name}.previous" for name in _REPORT_FILES)})
_CODE_SUFFIXES = NODE_CODE | {".py", ".sh", ".bash", ".mk"}
_CONFIG_SUFFIXES = frozenset({".yaml", ".yml", ".json", ".toml", ".ini", ".cfg"})
# Larger files are data, whose words refer to nothing.
_MAX_CONFIG_BYTES = 256 * 1024


@dataclass(frozen=True)
class CodeFiles:
    """The files of some code: path inside the project, and sha256."""

    files: Mapping[str, str]
    modules: frozenset[str] = field(default_factory=frozenset)
    """The code files; all others are data."""

    @property
    def sha256(self) -> str:
        """The digest of a single file, or of the list of all files."""
        if len(self.files) == 1:
            return next(iter(self.files.values()))
        return compute_sha256(rfc8785.dumps(dict(self.files)))

    @property
    def data(self) -> dict[str, str]:
        """The data files."""
        return {name: each for name, each in self.files.items() if name not in self.modules}


@dataclass
class CodeScan:
    """Follows the references of files from one to the next."""

    folders: tuple[Path, ...]
    leave_out: frozenset[Path] = frozenset()
    """Files with digests of their own: the manifest and the dataset."""

    run_from: Path | None = None
    """The current folder of the process that runs the code; None: it is this process."""

    found: dict[Path, Path] = field(default_factory=dict)
    """Each file, with the folder that its name is relative to."""

    modules: set[Path] = field(default_factory=set)
    entries: set[Path] = field(default_factory=set)
    """The folders that modules were found in."""

    own: set[str] = field(default_factory=set)
    """Top-level packages that are followed even if they are installed."""

    more: set[tuple[str, bool]] = field(default_factory=set)
    """Folders that code adds to `sys.path`, and whether as the folder of a program.

    Only the latter precede Python's own modules.
    """

    requested: dict[str, dict[str, bool]] = field(default_factory=dict)
    """Modules that were looked up, by top-level name, and whether they have a file."""

    configured: set[str] = field(default_factory=set)
    """Words of configuration files, which may be modules if code imports by name."""

    imports_by_name: bool = False

    def __post_init__(self) -> None:
        self.folders = tuple(dict.fromkeys(Path(os.path.abspath(each)) for each in self.folders))
        self.path = self._list_import_path()
        self.todo: list[tuple[Path, Path, str]] = []
        self._names = FolderNames()
        self._packages: set[str] = set()
        self._programs: Mapping[str, list[str]] | None = None
        self._folders_of: dict[str, list[str]] = {}

    def _list_import_path(self) -> list[str]:
        # Packages in `src` are installed where the agent runs, which may be another environment.
        sources = [str(each / "src") for each in self.folders]
        if self.run_from is None:
            return [*build_import_path(self.folders), *sources]
        # `sys.path` also has the current folder and the program of this process: a file in them is
        # never used in place of one of the project.
        path = (os.path.abspath(self.run_from / entry) for entry in sys.path)
        return list(dict.fromkeys([*map(str, self.folders), *path, *sources]))

    def collect(self) -> CodeFiles:
        """Follow all references, and digest every file."""
        self.read_all()
        if len(self.found) >= _MAX_SCANNED_FILES:
            raise ConfigError(
                f"the code refers to more than {_MAX_SCANNED_FILES} files, too many to certify",
                hint="move unrelated data out of the folders that the code lists",
            )
        digests: dict[str, str] = {}
        named = self._name_files()
        for name, file in named.items():
            try:
                digests[name] = compute_file_sha256(file)
            except OSError as error:
                raise ConfigError(
                    f"{file} cannot be read: {error.strerror}",
                    hint="make it readable: the code refers to it, so it is certified as well",
                ) from error
        names = frozenset(name for name, file in named.items() if file in self.modules)
        return CodeFiles(dict(sorted(digests.items())), names)

    def read_all(self) -> None:
        """Follow the references of all files."""
        while len(self.found) < _MAX_SCANNED_FILES:
            if self.todo:
                self._follow_references(*self.todo.pop())
                continue
            named = self.configured if self.imports_by_name else set()
            if not named:
                return
            self.configured = set()
            self._add_modules(sorted(named))

    def add_module(self, name: str, *, root: bool = False) -> bool:
        """Add a module of the project. Returns whether it has a file."""
        top = name.partition(".")[0]
        requested = self.requested.setdefault(top, {})
        if root:
            self.own.add(top)
        elif name in requested:
            return requested[name]
        found = [False]
        if root or not _is_shadowed(top):
            found = [self._add_located(name, *locate_module(name, self.path, self._names))]
        # Add every candidate: which one Python imports is only known when the code runs.
        found += [self._add_from(each, name) for each in self._folders_of.get(top, ())]
        requested[name] = any(found)
        return requested[name]

    def _add_from(self, folder: str, name: str) -> bool:
        found = locate_module(name, [folder], self._names, installed=False)
        return self._add_located(name, *found)

    def _add_located(self, name: str, entry: str, files: ModuleFiles) -> bool:
        if name.partition(".")[0] not in self.own and (
            is_installed(entry) or is_standard_library(entry)
        ):
            return False
        package = name
        for file in reversed(files):
            if file.stem != "__init__":
                package = name.rpartition(".")[0]
            self.add_file(file, entry=Path(entry), package=package)
            package = package.rpartition(".")[0]
        return bool(files)

    def add_file(self, file: Path, *, entry: Path, package: str | None = None) -> None:
        """Add a code file; `entry` is the folder that it is imported from."""
        if file in self.found:
            return
        self.found[file] = entry
        self.modules.add(file)
        self.entries.add(entry)
        if package is None:
            inside = file.parent.relative_to(entry).parts if file.is_relative_to(entry) else ()
            package = ".".join(inside)
        self.todo.append((file, entry, package))

    def add_named(self, word: str) -> None:
        """Add the project file that a word of a command line refers to, if any."""
        for folder in self.folders:
            file = Path(os.path.abspath(folder / word)) if word else folder
            # `Path.is_file` raises for a name that is too long.
            is_file = os.path.isfile(file) and self._is_inside(file)
            if is_file and file not in self.found and file.resolve() not in self.leave_out:
                # Python searches the folder of a script for modules first.
                if str(file.parent) not in self.path[:1]:
                    self.path = [str(file.parent), *self.path]
                self.add_program(file, entry=file.parent)
                self.found[file] = folder
                return

    def add_program(self, file: Path, *, entry: Path) -> None:
        """Add a file that is started, with the folders that its interpreter searches."""
        self.add_script_folder(file.parent)
        self.add_file(file, entry=entry, package="")
        for folder in self.folders:
            whole, inside = file.resolve(), folder.resolve()
            target = folder / whole.relative_to(inside) if whole.is_relative_to(inside) else file
            if target != file and target not in self.found:
                # Interpreters look beside the file that a link leads to.
                self.add_program(target, entry=target.parent)

    def _follow_references(self, file: Path, entry: Path, package: str) -> None:
        self._follow(read_source_references(file), file, entry, package)

    def add_command(self, text: str) -> None:
        """Add what a command line refers to, as if it was a script in the project's folder."""
        folder = self.folders[0]
        programs = [os.path.basename(each) for each in split_command(text)]
        data = text.encode(errors="replace")
        references = read_script_references(data, programs=programs)
        self._follow(references, folder / "-", folder, "")
        for name in _STARTUP_MODULES if self.found else ():
            # Every Python that is started runs them; those of the system are not the project's.
            for each in map(str, self.folders):
                self._add_located(name, *locate_module(name, [each], self._names, installed=False))

    def add_installed_program(self, program: str) -> None:
        """Add the module that a program installed from the project starts."""
        if self._programs is None:
            self._programs = _read_project_programs(self.folders)
        for module in self._programs.get(program, ()):
            self.add_module(module, root=True)

    def _follow(self, references: SourceReferences, file: Path, entry: Path, package: str) -> None:
        folders = self._find_data_folders(file, entry, references.texts)
        if references.extends_path and file.suffix not in _CONFIG_SUFFIXES:
            above = [*file.parents][:_MAX_FOLDER_DEPTH]
            if file.suffix != ".py":
                above = [each for each in above if self._is_inside(each)]
            self._extend_path([*above, *folders])
        self.add_imports(references, package)
        if file.stem == "__init__":
            # `from package import *` imports the submodules listed in `__all__`.
            self._add_modules(f"{package}.{name}" for name in references.module_names)
        if references.imports_by_name:
            self.imports_by_name = True
            self._add_named_modules(references, package)
        self._add_computed_modules(file, entry, references.module_patterns)
        if file.suffix in _CONFIG_SUFFIXES:
            self.configured |= {
                name
                for name in references.module_names
                for folder in self.folders
                if name.partition(".")[0] in self._names.list_modules(folder)
            }
        self._add_data(file, entry, references, folders)

    def add_imports(self, references: SourceReferences, package: str) -> None:
        """Add imported modules."""
        for level, module, names in references.imports:
            base = _resolve_import_name(level, module, package)
            if base is None:
                continue
            if base:
                self.add_module(base)
            self._add_modules(f"{base}.{name}" if base else name for name in names)

    def _add_modules(self, names: Iterable[str]) -> None:
        for name in names:
            self.add_module(name)

    def add_script_folder(self, folder: Path) -> None:
        """Search a program's folder for modules, including those that shadow Python's own."""
        self._extend_path([folder], program=True)

    def _add_computed_modules(self, file: Path, entry: Path, patterns: Iterable[str]) -> None:
        for pattern in patterns:
            folders = [file.parent] if pattern[0] in "*." else [entry, *self.folders]
            path = pattern.strip(".").replace(".", "/")
            for folder in folders:
                for found in (f"{path}.py", f"{path}/__init__.py"):
                    self._add_modules(_list_module_names(folder.glob(found), entry))

    def _extend_path(self, folders: Iterable[Path], *, program: bool = False) -> None:
        """Search more folders, also for the modules that were looked up before."""
        for folder in map(str, folders):
            names = self._names.list_modules(folder)
            for top in sorted(names) if (folder, program) not in self.more else ():
                if _is_shadowed(top) is not program or top in _FIXED_MODULES:
                    continue
                self._folders_of.setdefault(top, []).append(folder)
                requested = self.requested.get(top, {})
                for name in sorted(requested):
                    requested[name] |= self._add_from(folder, name)
            self.more.add((folder, program))
            if program:
                self._extend_path([Path(folder)])

    def _add_named_modules(self, references: SourceReferences, package: str) -> None:
        """Add the candidates of an import whose name is computed."""
        # Any module that a text refers to, and all modules of the packages it may be in.
        known = {
            _resolve_import_name(level, module, package) for level, module, _ in references.imports
        }
        named = {*references.module_names, *(each for each in known if each)}
        if package:
            named |= {package, *(f"{package}.{each}" for each in references.module_names)}
        for name in sorted(named):
            if self.add_module(name):
                self._add_package(name)

    def _add_package(self, name: str) -> None:
        """Add all modules of a package."""
        if name in self._packages:
            return
        self._packages.add(name)
        path = [*self._folders_of.get(name.partition(".")[0], ()), *self.path]
        _, files = locate_module(name, path, self._names)
        if files and files[-1].stem == "__init__":
            below = islice(files[-1].parent.rglob("*.py"), _MAX_SCANNED_FILES)
            inside = _list_module_names(below, files[-1].parent)
            self._add_modules(f"{name}.{each}".rstrip(".") for each in inside)

    def _add_data(
        self, file: Path, entry: Path, references: SourceReferences, folders: list[Path]
    ) -> None:
        for folder in folders:
            for text in references.texts:
                found = self._find_existing(folder, text, entry)
                if found is not None and found.is_file():
                    self._add_data_file(found, entry)
        self._add_suffixed(file, entry, references, folders)
        if references.lists_folders:
            self._add_listed(folders, entry, references.texts)
        if references.lists_deep:
            patterns = [text for text in references.texts if text.startswith("*.")]
            patterns += [f"*{suffix}" for suffix in sorted(references.suffixes)]
            self._add_all(_walk_files(file.parent, patterns), entry)
        base = self._list_base_folders(file, entry)
        for folder in folders:
            for pattern in references.patterns:
                # A pattern without a folder applies only to folders that the file refers to: in
                # the project's own folder it would match anything.
                if "/" in pattern or folder not in base:
                    self._add_all(folder.glob(pattern), entry)

    def _add_suffixed(
        self, file: Path, entry: Path, references: SourceReferences, folders: list[Path]
    ) -> None:
        """Add files whose stem and suffix are separate texts, or whose suffix alone is known."""
        suffixes, stems = references.suffixes, {*references.texts, file.stem}
        for folder in folders if suffixes else []:
            every = references.lists_folders and folder == file.parent
            names = [Path(name) for name in sorted(self._names.list_names(folder))]
            fitting = [n for n in names if n.suffix in suffixes and (every or n.stem in stems)]
            self._add_all((folder / name for name in fitting), entry)
            for text in stems:
                if "/" in text and self._find_existing(folder, os.path.dirname(text), entry):
                    self._add_all((folder / f"{text}{each}" for each in suffixes), entry)

    def _find_data_folders(self, file: Path, entry: Path, texts: Iterable[str]) -> list[Path]:
        """Return the folders that paths in a file may start from."""
        found = self._list_base_folders(file, entry)
        for _ in range(_MAX_FOLDER_DEPTH):
            named = [
                each
                for folder in found
                for text in texts
                if (each := self._find_existing(folder, text, entry)) is not None and each.is_dir()
            ]
            found = list(dict.fromkeys([*found, *named]))[:_MAX_DATA_FOLDERS]
        return found

    def _list_base_folders(self, file: Path, entry: Path) -> list[Path]:
        around = [each for each in file.parents if each.is_relative_to(entry)]
        return list(dict.fromkeys([*around, entry, *self.folders]))

    def _find_existing(self, folder: Path, text: str, entry: Path) -> Path | None:
        """Return the project path that a text refers to, if it exists."""
        first = text.partition("/")[0]
        # A cached listing is cheap: there are many texts, and most are not paths.
        if first not in ("", ".", "..") and first not in self._names.list_names(folder):
            return None
        found = Path(os.path.abspath(folder / text))
        return found if os.path.exists(found) and self._is_inside(found, entry) else None

    def _add_listed(self, folders: list[Path], entry: Path, texts: Iterable[str]) -> None:
        """Add the matches of patterns, and the files of listed folders."""
        texts = list(texts)
        for folder in folders:
            for text in texts:
                if "*" in text and any(letter.isalnum() for letter in text):
                    if not text.startswith("/"):
                        self._add_all(folder.glob(text), entry)
                elif (named := self._find_existing(folder, text, entry)) and named.is_dir():
                    self._add_all(named.rglob("*"), entry)

    def _add_all(self, files: Iterable[Path], entry: Path) -> None:
        fitting = (
            file
            for file in _skip_glob_errors(files)
            if file.is_file() and "__pycache__" not in file.parts and self._is_inside(file, entry)
        )
        # Sorted: file systems list names in any order.
        left = max(0, _MAX_SCANNED_FILES - len(self.found))
        for file in sorted(islice((each for each in fitting if each not in self.found), left)):
            self._add_data_file(Path(os.path.abspath(file)), entry)

    def _add_data_file(self, file: Path, entry: Path) -> None:
        if file in self.found or file.resolve() in self.leave_out:
            return
        shebang = read_shebang(file) or ""
        if file.suffix == ".py" or "python" in shebang:
            self.add_program(file, entry=file.parent)
        elif file.suffix in _CODE_SUFFIXES or shebang or is_makefile(file):
            self.add_file(file, entry=entry, package="")
        elif file.suffix in _CONFIG_SUFFIXES and file.stat().st_size <= _MAX_CONFIG_BYTES:
            self.todo.append((file, entry, ""))
        self.found[file] = entry

    def _is_inside(self, file: Path, *more: Path) -> bool:
        for folder in (*self.folders, *more):
            if file.is_relative_to(folder):
                return not (is_installed(file) or self._is_in_environment(file, folder))
        return False

    def _is_in_environment(self, file: Path, folder: Path) -> bool:
        """Whether a file belongs to a virtual environment or to packages inside a folder."""
        inside = file.relative_to(folder).parts
        if "node_modules" in inside:
            return True
        above = [folder.joinpath(*inside[: n + 1]) for n in range(len(inside))]
        return any("pyvenv.cfg" in self._names.list_names(each) for each in above)

    def _name_files(self) -> dict[str, Path]:
        """Return all files by their path inside the project, which is equal on every machine."""
        named: dict[str, list[Path]] = {}
        for file, entry in self.found.items():
            named.setdefault(self._shorten(file, (entry, *self.folders)), []).append(file)
        found = {name: files[0] for name, files in named.items() if len(files) == 1}
        for files in (files for files in named.values() if len(files) > 1):
            for file in sorted(files):
                # Two programs may each have a `main.py`.
                longer = shown = self._shorten(file, self.folders)
                number = 1
                while shown in found:
                    number += 1
                    shown = f"{longer} ({number})"
                found[shown] = file
        return found

    def _shorten(self, file: Path, folders: Iterable[Path]) -> str:
        inside = (each for each in folders if file.is_relative_to(each))
        folder = next(inside, file.parent)
        return file.relative_to(folder).as_posix()


def _read_project_programs(folders: Iterable[Path]) -> dict[str, list[str]]:
    """Return the modules of the programs that projects install, by the program's name."""
    found: dict[str, list[str]] = {}
    for folder in folders:
        try:
            with (folder / "pyproject.toml").open("rb") as file:
                project = tomllib.load(file)
        except (OSError, ValueError, RecursionError):
            continue
        for keys in (("project", "scripts"), ("tool", "poetry", "scripts")):
            table: Any = project
            for key in keys:
                table = table.get(key) if isinstance(table, dict) else None
            for name, target in table.items() if isinstance(table, dict) else ():
                if isinstance(target, str):
                    found.setdefault(name, []).append(target.partition(":")[0].strip())
    return found


def _skip_glob_errors(files: Iterable[Path]) -> Iterator[Path]:
    # A text that only looks like a pattern is not an error.
    with suppress(ValueError, NotImplementedError, OSError):
        yield from files


def _walk_files(folder: Path, patterns: list[str]) -> Iterator[Path]:
    """Yield the files below a folder whose names match a pattern."""
    for path, folders, names in os.walk(folder) if patterns else ():
        folders[:] = [
            each for each in sorted(folders) if each[0] != "." and each not in _EXTERNAL_FOLDERS
        ]
        # Reports of certifications change with each run.
        if not set(names) <= _IGNORED_OUTPUTS:
            fitting = (n for n in sorted(names) if any(fnmatch(n, each) for each in patterns))
            yield from (Path(path, name) for name in fitting)


def _list_module_names(files: Iterable[Path], entry: Path) -> list[str]:
    """Return the dotted names of modules below their import folder."""
    inside = sorted(file for file in _skip_glob_errors(files) if file.is_relative_to(entry))
    parts = [file.relative_to(entry).with_suffix("").parts for file in inside]
    return [".".join(part for part in each if part != "__init__") for each in parts]


def _resolve_import_name(level: int, module: str, package: str) -> str | None:
    """Return the absolute name of an import; None if it leaves the top-level package."""
    if not level:
        return module
    parts = package.split(".") if package else []
    if level > len(parts):
        return None
    base = parts[: len(parts) - level + 1]
    return ".".join([*base, module] if module else base)


def _is_shadowed(top: str) -> bool:
    """Whether a module of the project with this name is imported by programs beside it only."""
    return top in _FIXED_MODULES or is_python_module(top)
