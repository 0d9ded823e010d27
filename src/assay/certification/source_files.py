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
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

from assay.errors import ConfigError
from assay.scoring.user_modules import import_path, is_installed

from .canonical_form import canonical
from .digests import code_of, file_sha256, sha256_of
from .source_text import References, read_python, read_script

_SUFFIXES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES)
_MOST_FILES = 5000
_MOST_FOLDERS = 50
_FOLDERS_DEEP = 3
"""Names joined to one path: `HERE / "data" / "words" / "en.txt"` has two folders."""

Module = tuple[Path, ...]
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
        return sha256_of(canonical(dict(self.files)))

    @property
    def data(self) -> dict[str, str]:
        """Those of the files that are not code."""
        return {name: each for name, each in self.files.items() if name not in self.modules}


def find_module_code(
    name: str, folders: tuple[Path, ...], leave_out: frozenset[Path] = frozenset()
) -> CodeFiles | None:
    """The files of a module, by its dotted name; None when it has no file."""
    scan = _Scan(folders, leave_out)
    return scan.collect() if scan.add_module(name, root=True) else None


def find_command_code(
    argv: Iterable[str], folders: tuple[Path, ...], leave_out: frozenset[Path] = frozenset()
) -> CodeFiles | None:
    """The files of the project that a command line names; None when it names none."""
    scan, words = _Scan(folders, leave_out), list(argv)
    for before, word in zip(["", *words], words, strict=False):
        if before == "-m":
            scan.add_module(word, root=True)
        scan.add_named(word)
        scan.add_named(word.rpartition("=")[2])
    return scan.collect() if scan.found else None


def find_file_code(
    file: Path, folders: tuple[Path, ...], leave_out: frozenset[Path] = frozenset()
) -> CodeFiles:
    """A file that is not code itself, with the modules and files that its words name."""
    scan = _Scan((file.absolute().parent, *folders), leave_out)
    scan.add_named(str(file.absolute()))
    return scan.collect()


def find_callable_code(function: Callable[..., object]) -> CodeFiles | None:
    """The files of a function that is there already; None when it has no file."""
    scan = _Scan(())
    for file in _files_of(function):
        scan.add_file(file, entry=_import_root(file))
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
    scan = _Scan((*(each.parent for each in given), *folders), leave_out)
    for script in given:
        scan.add_file(script, entry=_import_root(script))
    scan.read_all()
    return LocatedCode(tuple(sorted(scan.found)), tuple(sorted(scan.entries)))


def _files_of(function: object) -> list[Path]:
    """The files of a function and of all that it claims to wrap: a claim adds, never replaces."""
    found: list[Path] = []
    for _ in range(100):
        code = code_of(function)
        if code is not None and os.path.isfile(code.co_filename):
            found.append(Path(code.co_filename).absolute())
        inner = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
        if inner is None:
            break
        function = inner
    # Of a decorator that is installed, the function behind it is the project's part.
    own = [file for file in found if not (is_installed(file) or _is_standard(str(file)))]
    return list(dict.fromkeys(own or found))


def _import_root(file: Path) -> Path:
    """The folder that the packages around a file are imported from."""
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


@dataclass
class _Scan:
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

    def __post_init__(self) -> None:
        self.folders = tuple(dict.fromkeys(Path(os.path.abspath(each)) for each in self.folders))
        self.path = import_path(self.folders)
        self.todo: list[tuple[Path, Path, str]] = []
        self._listings: dict[Path, frozenset[str]] = {}

    def collect(self) -> CodeFiles:
        """Read what is left to read, and digest all of it."""
        self.read_all()
        digests = {name: _digest(file) for file, name in self.found.items()}
        names = frozenset(name for file, name in self.found.items() if file in self.modules)
        return CodeFiles(dict(sorted(digests.items())), names)

    def read_all(self) -> None:
        """Follow the references of all files that were found."""
        while self.todo and len(self.found) < _MOST_FILES:
            self._read(*self.todo.pop())

    def add_module(self, name: str, *, root: bool = False) -> bool:
        """Add a module of the project; whether it has a file."""
        top = name.partition(".")[0]
        if root:
            self.own.add(top)
        elif top in sys.stdlib_module_names or top == "assay":
            return False
        entry, files = _locate(name, self.path)
        if top not in self.own and (is_installed(entry) or _is_standard(entry)):
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
        self.found[file] = self._name(file, entry)
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
            if file.is_file() and self._is_inside(file) and file.resolve() not in self.leave_out:
                # A script's own folder is where Python looks for its modules.
                self.path = [str(file.parent), *self.path]
                self.add_file(file, entry=file.parent, package="")
                self.found[file] = self._name(file, folder)
                return

    def _read(self, file: Path, entry: Path, package: str) -> None:
        references = read_python(file) if file.suffix == ".py" else read_script(file)
        for level, module, names in references.imports:
            base = _absolute(level, module, package)
            if base is None:
                continue
            if base:
                self.add_module(base)
            for name in names:
                self.add_module(f"{base}.{name}" if base else name)
        self._add_data(file, entry, references)

    def _add_data(self, file: Path, entry: Path, references: References) -> None:
        folders = self._data_folders(file, entry, references.texts)
        for folder in folders:
            for text in references.texts:
                found = self._existing(folder, text, entry)
                if found is not None and found.is_file():
                    self._add_data_file(found, entry, follow=file.suffix != ".py")
        if references.lists_folders:
            self._add_listed(folders, entry, references.texts)
        named = self._base_folders(file, entry)
        for folder in folders:
            for pattern in references.patterns:
                # A name without a folder is looked for in folders that the file names: in the
                # project's own folder it would fit anything.
                if "/" in pattern or folder not in named:
                    self._add_all(folder.glob(pattern), entry)

    def _data_folders(self, file: Path, entry: Path, texts: Iterable[str]) -> list[Path]:
        """Where names in a file may lead: its folder, those around it, and folders it names."""
        found = self._base_folders(file, entry)
        for _ in range(_FOLDERS_DEEP):
            named = [
                each
                for folder in found
                for text in texts
                if (each := self._existing(folder, text, entry)) is not None and each.is_dir()
            ]
            found = list(dict.fromkeys([*found, *named]))[:_MOST_FOLDERS]
        return found

    def _base_folders(self, file: Path, entry: Path) -> list[Path]:
        around = [each for each in file.parents if each.is_relative_to(entry)]
        return list(dict.fromkeys([*around, entry, *self.folders]))

    def _existing(self, folder: Path, text: str, entry: Path) -> Path | None:
        """What a text names in a folder, where that is a part of the project."""
        first = text.partition("/")[0]
        # A look into a listing: most texts name nothing, and there are many of them.
        if first not in ("", ".", "..") and first not in self._listing(folder):
            return None
        found = Path(os.path.abspath(folder / text))
        return found if found.exists() and self._is_inside(found, entry) else None

    def _listing(self, folder: Path) -> frozenset[str]:
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
                elif (named := self._existing(folder, text, entry)) and named.is_dir():
                    self._add_all(named.rglob("*"), entry)

    def _add_all(self, files: Iterable[Path], entry: Path) -> None:
        for file in _without_errors(files):
            if len(self.found) >= _MOST_FILES:
                return
            if file.is_file() and "__pycache__" not in file.parts and self._is_inside(file, entry):
                self._add_data_file(Path(os.path.abspath(file)), entry, follow=False)

    def _add_data_file(self, file: Path, entry: Path, *, follow: bool) -> None:
        if file in self.found or file.resolve() in self.leave_out:
            return
        if follow and file.suffix in (".py", ".sh"):
            self.add_file(file, entry=file.parent, package="")
        self.found[file] = self._name(file, entry)

    def _is_inside(self, file: Path, *more: Path) -> bool:
        if is_installed(file):
            return False
        return any(file.is_relative_to(folder) for folder in (*self.folders, *more))

    def _name(self, file: Path, entry: Path) -> str:
        """The path inside the project, which is the same on another machine."""
        for folder in (entry, *self.folders):
            if file.is_relative_to(folder):
                name = file.relative_to(folder).as_posix()
                break
        else:
            name = file.name
        taken = {other for known, other in self.found.items() if known != file}
        return name if name not in taken else f"{file.parent.name}/../{name}"


def _without_errors(files: Iterable[Path]) -> Iterator[Path]:
    """What a pattern gives; nothing for a text that only looks like one."""
    with suppress(ValueError, NotImplementedError, OSError):
        yield from files


def _digest(file: Path) -> str:
    try:
        return file_sha256(file)
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
        raise ConfigError(message, hint="the code names it, so it is certified with it") from error


def _absolute(level: int, module: str, package: str) -> str | None:
    """The absolute name of an import; None for one that leads out of its package."""
    if not level:
        return module
    parts = package.split(".") if package else []
    if level > len(parts):
        return None
    base = parts[: len(parts) - level + 1]
    return ".".join([*base, module] if module else base)


def _locate(name: str, path: Iterable[str]) -> tuple[str, Module]:
    """The entry of the path that has a module, and its files; of a part, where only that is."""
    top, *rest = name.split(".")
    for entry in path:
        found = _in_folder(Path(entry), top)
        if found is not None:
            return entry, (*found[1], *_submodules(found[0], rest))
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
    return entry, (file, *_submodules(package, rest))


def _submodules(package: Path | None, names: Iterable[str]) -> Module:
    files: Module = ()
    for name in names:
        found = None if package is None else _in_folder(package, name)
        if found is None:
            break
        package, files = found[0], (*files, *found[1])
    return files


def _in_folder(folder: Path, name: str) -> tuple[Path | None, Module] | None:
    """A module in a folder: the folder of its submodules, and its file. In Python's own order."""
    package = folder / name
    for suffix in _SUFFIXES:
        if (file := package / f"__init__{suffix}").is_file():
            return package, (file,)
    for suffix in _SUFFIXES:
        if (file := folder / f"{name}{suffix}").is_file():
            return None, (file,)
    return (package, ()) if package.is_dir() else None


def _is_standard(entry: str) -> bool:
    standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    return any(entry == each or entry.startswith(f"{each}{os.sep}") for each in standard if each)
