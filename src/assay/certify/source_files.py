"""The files that code is made of, found by reading it. Nothing is imported or run.

Covered are the module itself, the modules of the same project that it imports, however deep, and
the data files that their text names. Installed packages and the standard library are not.
"""

import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

import rfc8785

from assay.errors import ConfigError
from assay.scorers import build_import_path, is_installed
from assay.types import compute_file_sha256, compute_sha256, find_code

from .source_text import (
    SourceReferences,
    read_python_references,
    read_source_references,
    split_words,
)

_MODULE_SUFFIXES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES)
_MAX_SCANNED_FILES = 20_000
_MAX_DATA_FOLDERS = 50
_MAX_FOLDER_DEPTH = 3
"""Names joined to one path: `HERE / "data" / "words" / "en.txt"` has two folders."""

_EXTERNAL_FOLDERS = frozenset({"__pycache__", "site-packages", "dist-packages", "node_modules"})
_REPORT_FILES = ("certificate.json", "certificate.dsse.json", "result.json", "card.md", "junit.xml")
_IGNORED_OUTPUTS = frozenset({*_REPORT_FILES, *(f"{name}.previous" for name in _REPORT_FILES)})
_CODE_SUFFIXES = frozenset({".py", ".sh", ".js", ".mjs", ".cjs", ".ts"})
_CONFIG_SUFFIXES = frozenset({".yaml", ".yml", ".json", ".toml", ".ini", ".cfg"})
_MAX_CONFIG_BYTES = 256 * 1024
"""Bytes. Larger ones are data, whose words name nothing."""

ModuleFiles = tuple[Path, ...]
"""The files of a module: those of the packages around it, then its own."""


@dataclass(frozen=True)
class CodeFiles:
    """The files of some code, by their paths inside the project, with the sha256 of each."""

    files: Mapping[str, str]
    modules: frozenset[str] = field(default_factory=frozenset)
    """Which of them are code; the others are data."""

    @property
    def sha256(self) -> str:
        """The digest of a single file is its own; that of several is of the list of them."""
        if len(self.files) == 1:
            return next(iter(self.files.values()))
        return compute_sha256(rfc8785.dumps(dict(self.files)))

    @property
    def data(self) -> dict[str, str]:
        """Those of the files that are not code."""
        return {name: each for name, each in self.files.items() if name not in self.modules}


def find_module_code(
    name: str, folders: tuple[Path, ...], leave_out: frozenset[Path] = frozenset()
) -> CodeFiles | None:
    """The files of a module, by its dotted name; None when it has no file."""
    scan = _CodeScan(folders, leave_out)
    return scan.collect() if scan.add_module(name, root=True) else None


def find_command_code(
    argv: Iterable[str], folders: tuple[Path, ...], leave_out: frozenset[Path] = frozenset()
) -> CodeFiles | None:
    """The files of the project that a command line names; None when it names none."""
    scan, words = _CodeScan(folders, leave_out), list(argv)
    for before, word in zip(["", *words], words, strict=False):
        if before == "-m" or word.startswith("-m"):
            module = word if before == "-m" else word.removeprefix("-m")
            scan.add_script_folder(scan.folders[0])
            scan.add_module(module, root=True)
            scan.add_module(f"{module}.__main__", root=True)
        if before == "-c":
            scan.add_script_folder(scan.folders[0])
            scan.add_imports(read_python_references(word), "")
        # `sh -c "python agent.py"` has a command line in a word.
        for each in dict.fromkeys([word, word.rpartition("=")[2], *split_words(word)]):
            scan.add_named(each)
            scan.add_named(f"{each}/__main__.py")
    return scan.collect() if scan.found else None


def find_file_code(
    file: Path, folders: tuple[Path, ...], leave_out: frozenset[Path] = frozenset()
) -> CodeFiles:
    """A file that is not code itself, with the modules and files that its words name."""
    scan = _CodeScan((file.absolute().parent, *folders), leave_out)
    scan.add_named(str(file.absolute()))
    return scan.collect()


def find_callable_code(function: Callable[..., object]) -> CodeFiles | None:
    """The files of a function that is there already; None when it has no file."""
    scan = _CodeScan(())
    for file in _find_function_files(function):
        scan.add_file(file, entry=_find_import_root(file))
    return scan.collect() if scan.found else None


@dataclass(frozen=True)
class LocatedCode:
    """The files of some code where they are on this machine."""

    files: tuple[Path, ...]
    import_folders: tuple[Path, ...]
    """The folders that its modules are imported from."""


def locate_code(
    scripts: Iterable[Path], folders: tuple[Path, ...], leave_out: frozenset[Path] = frozenset()
) -> LocatedCode:
    """The files of Python scripts, with the modules and data files that they name."""
    given = [Path(os.path.abspath(each)) for each in scripts]
    scan = _CodeScan((*(each.parent for each in given), *folders), leave_out)
    for script in given:
        scan.add_file(script, entry=_find_import_root(script))
    scan.read_all()
    return LocatedCode(tuple(sorted(scan.found)), tuple(sorted(scan.entries)))


def _find_function_files(function: object) -> list[Path]:
    """The files of a function and of all that it claims to wrap: a claim adds, never replaces."""
    found: list[Path] = []
    for _ in range(100):
        code = find_code(function)
        if code is not None and os.path.isfile(code.co_filename):
            found.append(Path(code.co_filename).absolute())
        inner = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
        if inner is None:
            break
        function = inner
    # Of a decorator that is installed, the function behind it is the project's part.
    own = [file for file in found if not (is_installed(file) or _is_standard_library(str(file)))]
    return list(dict.fromkeys(own or found))


def _find_import_root(file: Path) -> Path:
    """The folder that the packages around a file are imported from."""
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


@dataclass
class _CodeScan:
    """Follows the references of files from one to the next."""

    folders: tuple[Path, ...]
    leave_out: frozenset[Path] = frozenset()
    """Data that is certified by other means: the manifest and the dataset."""

    found: dict[Path, str] = field(default_factory=dict)
    modules: set[Path] = field(default_factory=set)
    entries: set[Path] = field(default_factory=set)
    """The folders that modules were found in."""

    own: set[str] = field(default_factory=set)
    """Top-level packages that are followed wherever they are installed."""

    more: list[str] = field(default_factory=list)
    """Folders that the code itself adds to the path."""

    asked: set[str] = field(default_factory=set)
    """Modules that were looked for."""

    scripts: list[str] = field(default_factory=list)
    """Folders of programs: there Python looks before its standard library."""

    configured: set[str] = field(default_factory=set)
    """Words of configurations, which are modules where code imports by name."""

    imports_by_name: bool = False

    def __post_init__(self) -> None:
        self.folders = tuple(dict.fromkeys(Path(os.path.abspath(each)) for each in self.folders))
        self.path = build_import_path(self.folders)
        self.todo: list[tuple[Path, Path, str]] = []
        self._listings: dict[Path, frozenset[str]] = {}

    def collect(self) -> CodeFiles:
        """Read what is left to read, and digest all of it."""
        self.read_all()
        if len(self.found) >= _MAX_SCANNED_FILES:
            raise ConfigError(
                f"the code names more than {_MAX_SCANNED_FILES} files, which is too many to certify",
                hint="keep data that is not a part of it out of the folders that it lists",
            )
        digests = {name: _digest_source_file(file) for file, name in self.found.items()}
        names = frozenset(name for file, name in self.found.items() if file in self.modules)
        return CodeFiles(dict(sorted(digests.items())), names)

    def read_all(self) -> None:
        """Follow the references of all files that were found."""
        while len(self.found) < _MAX_SCANNED_FILES:
            if self.todo:
                self._follow_references(*self.todo.pop())
                continue
            named = self.configured - self.asked if self.imports_by_name else set()
            if not named:
                return
            self._add_modules(sorted(named))

    def add_module(self, name: str, *, root: bool = False) -> bool:
        """Add a module of the project; whether it has a file."""
        top = name.partition(".")[0]
        self.asked.add(name)
        if root:
            self.own.add(top)
        elif top == "assay" or _is_python_module(top):
            folders = [] if top in ("assay", *sys.builtin_module_names) else self.scripts
            found = [self._add_located(name, *_locate_module(name, [each])) for each in folders]
            return any(found)
        places = [
            _locate_module(name, self.path),
            *(_locate_module(name, [each]) for each in self.more),
        ]
        # All of them: which comes first is only known when the code runs.
        return sum(self._add_located(name, *place) for place in places) > 0

    def _add_located(self, name: str, entry: str, files: ModuleFiles) -> bool:
        if name.partition(".")[0] not in self.own and (
            is_installed(entry) or _is_standard_library(entry)
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
        """Add a file of code; `entry` is the folder that it is imported from."""
        if file in self.found:
            return
        self.found[file] = self._name_file(file, entry)
        self.modules.add(file)
        self.entries.add(entry)
        if package is None:
            inside = file.parent.relative_to(entry).parts if file.is_relative_to(entry) else ()
            package = ".".join(inside)
        self.todo.append((file, entry, package))

    def add_named(self, word: str) -> None:
        """Add the file that a word of a command line names, where it is one of the project."""
        for folder in self.folders:
            file = Path(os.path.abspath(folder / word)) if word else folder
            # Of a word that is too long for a name, `Path.is_file` raises.
            is_file = os.path.isfile(file) and self._is_inside(file)
            if is_file and file not in self.found and file.resolve() not in self.leave_out:
                # A script's own folder is where Python looks for its modules.
                self.path = [str(file.parent), *self.path]
                self.add_script_folder(file.parent)
                self.add_file(file, entry=file.parent, package="")
                self.found[file] = self._name_file(file, folder)
                return

    def _follow_references(self, file: Path, entry: Path, package: str) -> None:
        references = read_source_references(file)
        folders = self._find_data_folders(file, entry, references.texts)
        if references.extends_path:
            self._extend_path([*[*file.parents][:_MAX_FOLDER_DEPTH], *folders])
        self.add_imports(references, package)
        if file.stem == "__init__":
            # `__all__` names submodules, which `from package import *` imports.
            self._add_modules(f"{package}.{name}" for name in references.module_names)
        if references.imports_by_name:
            self.imports_by_name = True
            self._add_named_modules(references, package)
        self._add_computed_modules(file, entry, references.module_patterns)
        if file.suffix in _CONFIG_SUFFIXES:
            tops = {
                name.partition(".")[0] for each in self.folders for name in self._list_folder(each)
            }
            names = references.module_names
            self.configured |= {each for each in names if each.partition(".")[0] in tops}
        self._add_data(file, entry, references, folders)

    def add_imports(self, references: SourceReferences, package: str) -> None:
        """Add the modules that some code imports."""
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
        """Look for modules in the folder of a program, also for those of Python's own names."""
        if str(folder) not in self.scripts:
            self.scripts.append(str(folder))
            self._extend_path([folder])
            self._add_modules(sorted(self.asked))

    def _add_computed_modules(self, file: Path, entry: Path, patterns: Iterable[str]) -> None:
        for pattern in patterns:
            folders = [file.parent] if pattern[0] in "*." else [entry, *self.folders]
            path = pattern.strip(".").replace(".", "/")
            for folder in folders:
                for found in (f"{path}.py", f"{path}/__init__.py"):
                    self._add_modules(_list_module_names(folder.glob(found), entry))

    def _extend_path(self, folders: Iterable[Path]) -> None:
        new = [str(each) for each in folders if str(each) not in (*self.path, *self.more)]
        self.more += new
        if new:
            self._add_modules(sorted(self.asked))

    def _add_named_modules(self, references: SourceReferences, package: str) -> None:
        """Add what an import by a name that is not known may lead to.

        That is any module that a text names, and all modules of the packages that are known.
        """
        known = {
            _resolve_import_name(level, module, package) for level, module, _ in references.imports
        }
        named = {*references.module_names, *(each for each in known if each)}
        if package:
            named |= {package, *(f"{package}.{each}" for each in references.module_names)}
        for name in sorted(named):
            if self.add_module(name):
                self._add_modules(
                    _list_package_modules(name, *_locate_module(name, [*self.more, *self.path]))
                )

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
        named = self._list_base_folders(file, entry)
        for folder in folders:
            for pattern in references.patterns:
                # A name without a folder is looked for in folders that the file names: in the
                # project's own folder it would fit anything.
                if "/" in pattern or folder not in named:
                    self._add_all(folder.glob(pattern), entry)

    def _add_suffixed(
        self, file: Path, entry: Path, references: SourceReferences, folders: list[Path]
    ) -> None:
        """Add files whose name and suffix stand apart, or whose suffix alone is known."""
        suffixes, stems = references.suffixes, {*references.texts, file.stem}
        for folder in folders if suffixes else []:
            every = references.lists_folders and folder == file.parent
            names = [Path(name) for name in sorted(self._list_folder(folder))]
            fitting = [n for n in names if n.suffix in suffixes and (every or n.stem in stems)]
            self._add_all((folder / name for name in fitting), entry)
            for text in stems:
                if "/" in text and self._find_existing(folder, os.path.dirname(text), entry):
                    self._add_all((folder / f"{text}{each}" for each in suffixes), entry)

    def _find_data_folders(self, file: Path, entry: Path, texts: Iterable[str]) -> list[Path]:
        """Where names in a file may lead: its folder, those around it, and folders it names."""
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
        """What a text names in a folder, where that is a part of the project."""
        first = text.partition("/")[0]
        # A look into a listing: most texts name nothing, and there are many of them.
        if first not in ("", ".", "..") and first not in self._list_folder(folder):
            return None
        found = Path(os.path.abspath(folder / text))
        return found if os.path.exists(found) and self._is_inside(found, entry) else None

    def _list_folder(self, folder: Path) -> frozenset[str]:
        if folder not in self._listings:
            try:
                names = frozenset(os.listdir(folder))
            except OSError:
                names = frozenset()
            self._listings[folder] = names
        return self._listings[folder]

    def _add_listed(self, folders: list[Path], entry: Path, texts: Iterable[str]) -> None:
        """Add what a pattern or a listing of a folder that is named gives."""
        texts = list(texts)
        for folder in folders:
            for text in texts:
                if "*" in text and any(letter.isalnum() for letter in text):
                    if not text.startswith("/"):
                        self._add_all(folder.glob(text), entry)
                elif (named := self._find_existing(folder, text, entry)) and named.is_dir():
                    self._add_all(named.rglob("*"), entry)

    def _add_all(self, files: Iterable[Path], entry: Path) -> None:
        for file in _skip_glob_errors(files):
            if len(self.found) >= _MAX_SCANNED_FILES:
                return
            if file.is_file() and "__pycache__" not in file.parts and self._is_inside(file, entry):
                self._add_data_file(Path(os.path.abspath(file)), entry)

    def _add_data_file(self, file: Path, entry: Path) -> None:
        if file in self.found or file.resolve() in self.leave_out:
            return
        if file.suffix in _CODE_SUFFIXES:
            if file.suffix == ".py":
                self.add_script_folder(file.parent)
            self.add_file(file, entry=file.parent, package="")
        elif file.suffix in _CONFIG_SUFFIXES and file.stat().st_size <= _MAX_CONFIG_BYTES:
            self.todo.append((file, entry, ""))
        self.found[file] = self._name_file(file, entry)

    def _is_inside(self, file: Path, *more: Path) -> bool:
        if is_installed(file):
            return False
        return any(file.is_relative_to(folder) for folder in (*self.folders, *more))

    def _name_file(self, file: Path, entry: Path) -> str:
        """The path inside the project, which is the same on another machine."""
        for folder in (entry, *self.folders):
            if file.is_relative_to(folder):
                name = file.relative_to(folder).as_posix()
                break
        else:
            name = file.name
        taken = {other for known, other in self.found.items() if known != file}
        return name if name not in taken else f"{file.parent.name}/../{name}"


def _skip_glob_errors(files: Iterable[Path]) -> Iterator[Path]:
    """What a pattern gives; nothing for a text that only looks like one."""
    with suppress(ValueError, NotImplementedError, OSError):
        yield from files


def _walk_files(folder: Path, patterns: list[str]) -> Iterator[Path]:
    """The files in a folder and in those below it whose names fit one of the patterns."""
    for place, folders, names in os.walk(folder) if patterns else ():
        folders[:] = [
            each for each in sorted(folders) if each[0] != "." and each not in _EXTERNAL_FOLDERS
        ]
        # What certifications left here changes with each of them.
        if not set(names) <= _IGNORED_OUTPUTS:
            fitting = (n for n in sorted(names) if any(fnmatch(n, each) for each in patterns))
            yield from (Path(place, name) for name in fitting)


def _list_module_names(files: Iterable[Path], entry: Path) -> list[str]:
    """The dotted names of modules below the folder that they are imported from."""
    inside = sorted(file for file in _skip_glob_errors(files) if file.is_relative_to(entry))
    parts = [file.relative_to(entry).with_suffix("").parts for file in inside]
    return [".".join(part for part in each if part != "__init__") for each in parts]


def _digest_source_file(file: Path) -> str:
    try:
        return compute_file_sha256(file)
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
        raise ConfigError(message, hint="the code names it, so it is certified with it") from error


def _resolve_import_name(level: int, module: str, package: str) -> str | None:
    """The absolute name of an import; None for one that leads out of its package."""
    if not level:
        return module
    parts = package.split(".") if package else []
    if level > len(parts):
        return None
    base = parts[: len(parts) - level + 1]
    return ".".join([*base, module] if module else base)


def _locate_module(name: str, path: Iterable[str]) -> tuple[str, ModuleFiles]:
    """The entry of the path that has a module, and its files; of a part, where only that is."""
    top, *rest = name.split(".")
    without_file: list[tuple[str, ModuleFiles]] = []
    for entry in path:
        found = _find_in_folder(Path(entry), top)
        if found is not None and found[1]:
            return entry, (*found[1], *_find_submodules(found[0], rest))
        if found is not None:
            without_file.append((entry, _find_submodules(found[0], rest)))
    if without_file:
        # A plain folder is a package only where nothing else has the name.
        return next((each for each in without_file if each[1]), without_file[0])
    try:
        # Packages that are installed for editing are found by hooks. This imports nothing: a
        # name without a dot has no parent.
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
    """A module in a folder: the folder of its submodules, and its file. In Python's own order."""
    package = folder / name
    # `Path.is_file` raises for a name that is too long.
    for suffix in _MODULE_SUFFIXES:
        if os.path.isfile(file := package / f"__init__{suffix}"):
            return package, (file,)
    for suffix in _MODULE_SUFFIXES:
        if os.path.isfile(file := folder / f"{name}{suffix}"):
            return None, (file,)
    return (package, ()) if os.path.isdir(package) else None


def _list_package_modules(name: str, entry: str, files: ModuleFiles) -> list[str]:
    """The modules of a package, by their dotted names."""
    if not files or files[-1].stem != "__init__":
        return []
    below = sorted(files[-1].parent.rglob("*.py"))[:_MAX_SCANNED_FILES]
    parts = [file.relative_to(files[-1].parent).with_suffix("").parts for file in below]
    return [".".join([name, *(part for part in each if part != "__init__")]) for each in parts]


def _is_python_module(top: str) -> bool:
    """Whether a top-level module comes with this Python: some are only on other systems."""
    if top in sys.builtin_module_names:
        return True
    library = sysconfig.get_path("stdlib")
    folders = (Path(library), Path(library, "lib-dynload"), Path(sysconfig.get_path("platstdlib")))
    return top in sys.stdlib_module_names and any(_find_in_folder(each, top) for each in folders)


def _is_standard_library(entry: str) -> bool:
    standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    return any(entry == each or entry.startswith(f"{each}{os.sep}") for each in standard if each)
