"""The files that code consists of, found by static analysis. Nothing is imported or run.

They are the module itself, the modules of the same project that it imports, directly or not, and
the data files that their text refers to, without installed packages and Python's own modules.
"""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from assay.scorers import is_installed
from assay.types import find_code

from .code_scan import CodeFiles, CodeScan
from .module_lookup import is_standard_library
from .source_text import read_python_references, split_command

_MODULE_OPTION = re.compile(r"-[bBdEiIOPqRsSuvx]*m(.*)")
_CODE_OPTION = re.compile(r"-[A-Za-z]*c")


def find_module_code(
    name: str,
    folders: tuple[Path, ...],
    leave_out: frozenset[Path] = frozenset(),
    *,
    run_from: Path | None = None,
) -> CodeFiles | None:
    """Find the files of a module by its dotted name; None when it has no file.

    `run_from` is the folder in which another process runs the code; None: this process runs it.
    """
    scan = CodeScan(folders, leave_out, run_from)
    return scan.collect() if scan.add_module(name, root=True) else None


def find_command_code(
    argv: Iterable[str],
    folders: tuple[Path, ...],
    leave_out: frozenset[Path] = frozenset(),
    *,
    run_from: Path | None = None,
) -> CodeFiles | None:
    """Find the project files that a command line refers to; None without any."""
    scan, words = CodeScan(folders, leave_out, run_from), list(argv)
    for before, word in zip(["", *words], words, strict=False):
        option = _MODULE_OPTION.fullmatch(word)
        if _MODULE_OPTION.fullmatch(before) or (option and option[1]):
            module = option[1] if option else word
            scan.add_script_folder(scan.folders[0])
            scan.add_module(module, root=True)
            scan.add_module(f"{module}.__main__", root=True)
        if _CODE_OPTION.fullmatch(before):
            scan.add_script_folder(scan.folders[0])
            scan.add_imports(read_python_references(word), "")
        # `sh -c "python agent.py"` contains a command line in one word.
        for each in dict.fromkeys([word, word.rpartition("=")[2], *split_command(word)]):
            scan.add_named(each)
            scan.add_named(f"{each}/__main__.py")
            scan.add_installed_program(os.path.basename(each))
    scan.add_command(" ".join(words))
    return scan.collect() if scan.found else None


def find_file_code(
    file: Path,
    folders: tuple[Path, ...],
    leave_out: frozenset[Path] = frozenset(),
    *,
    run_from: Path | None = None,
) -> CodeFiles:
    """Find the modules and files that a data file, such as a check file, refers to."""
    scan = CodeScan((file.absolute().parent, *folders), leave_out, run_from)
    scan.add_named(str(file.absolute()))
    return scan.collect()


def find_callable_code(function: Callable[..., object]) -> CodeFiles | None:
    """Find the files of an imported function; None when it has no file."""
    scan = CodeScan(())
    for file in _find_function_files(function):
        scan.add_file(file, entry=_find_import_root(file))
    return scan.collect() if scan.found else None


@dataclass(frozen=True)
class LocatedCode:
    """The files of some code, with absolute paths."""

    files: tuple[Path, ...]
    import_folders: tuple[Path, ...]
    """Folders that the modules are imported from."""


def locate_code(
    scripts: Iterable[Path], folders: tuple[Path, ...], leave_out: frozenset[Path] = frozenset()
) -> LocatedCode:
    """Find the files of Python scripts, with the modules and data files they refer to."""
    given = [Path(os.path.abspath(each)) for each in scripts]
    scan = CodeScan((*(each.parent for each in given), *folders), leave_out)
    for script in given:
        scan.add_file(script, entry=_find_import_root(script))
    scan.read_all()
    return LocatedCode(tuple(sorted(scan.found)), tuple(sorted(scan.entries)))


def _find_function_files(function: object) -> list[Path]:
    """Return the files of a function and of the functions it wraps."""
    found: list[Path] = []
    # `__wrapped__` is a claim that any code can make: it adds files, and never replaces them. The
    # limit ends a cycle of claims.
    for _ in range(100):
        code = find_code(function)
        if code is not None and os.path.isfile(code.co_filename):
            found.append(Path(code.co_filename).absolute())
        inner = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
        if inner is None:
            break
        function = inner
    # Behind an installed decorator, the wrapped function is the part of the project.
    own = [file for file in found if not (is_installed(file) or is_standard_library(str(file)))]
    return list(dict.fromkeys(own or found))


def _find_import_root(file: Path) -> Path:
    """Return the folder that the packages around a file are imported from."""
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder
