"""What the text of a source file refers to: modules, files and folders. Nothing is run."""

import ast
import glob
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

_LARGEST = 4 * 1024 * 1024
"""Bytes of a file that is searched. Generated tables of more name no other files."""

_LONGEST_PATH = 255
_IMPORTERS = frozenset({"import_module", "__import__", "run_module", "find_spec", "get_data"})
_LISTERS = frozenset({"glob", "iglob", "rglob", "iterdir", "listdir", "scandir", "walk", "fnmatch"})
_WORD = re.compile(r"[^\s\"'`=;|&<>(){}$,]+")
_CODE_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""`module:function`, as check files and manifests write it."""

_FILE_PATTERN = re.compile(r"^[^/].*/|\.[A-Za-z0-9]{1,6}$")

Import = tuple[int, str, tuple[str, ...]]
"""The dots of a relative import, the module, and the names that are taken from it."""


@dataclass(frozen=True)
class References:
    """What one file refers to."""

    imports: tuple[Import, ...] = ()
    texts: tuple[str, ...] = ()
    """Texts in it that may be names of files or folders."""

    patterns: tuple[str, ...] = ()
    """Names that are put together when it runs, such as `prompts/*.txt`."""

    lists_folders: bool = False
    """Whether it lists folders, and therefore reads files that it does not name."""


def read_python(file: Path) -> References:
    """The references of a Python file. One that cannot be parsed has none: it cannot run either."""
    try:
        tree = ast.parse(_head(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
        return References()
    imports: list[Import] = []
    texts: dict[str, None] = {}
    patterns: dict[str, None] = {}
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(0, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names if alias.name != "*")
            imports.append((node.level, node.module or "", names))
        elif isinstance(node, ast.Call):
            imports += _called_import(node)
            used.add(_called(node))
        elif isinstance(node, ast.JoinedStr):
            patterns[_pattern(node)] = None
        elif isinstance(node, ast.Constant) and _may_be_path(node.value):
            texts[node.value] = None
    made = tuple(each for each in patterns if _FILE_PATTERN.search(each) and _may_be_path(each))
    return References(tuple(imports), tuple(texts), made, bool(used & _LISTERS))


def read_script(file: Path) -> References:
    """The references of other text, such as a shell script or a check file: its words.

    A binary has none.
    """
    try:
        data = _head(file)
        text = data.decode()
    except (UnicodeDecodeError, ValueError, OSError):
        return References()
    words = dict.fromkeys(_WORD.findall(text))
    named = tuple((0, word.partition(":")[0], ()) for word in words if _CODE_NAME.fullmatch(word))
    return References(named, tuple(word for word in words if _may_be_path(word)))


def _head(file: Path) -> bytes:
    with file.open("rb") as opened:
        data = opened.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError("too large to be searched")
    return data


def _pattern(node: ast.JoinedStr) -> str:
    """What an f-string can come to, as a pattern for names of files."""
    parts = [
        glob.escape(str(part.value)) if isinstance(part, ast.Constant) else "*"
        for part in node.values
    ]
    return re.sub(r"\*+", "*", "".join(parts))


def _called_import(node: ast.Call) -> list[Import]:
    """An import by a function, where the module's name stands there as text."""
    if _called(node) not in _IMPORTERS or not node.args:
        return []
    first = node.args[0]
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return []
    name = first.value.lstrip(".")
    return [(len(first.value) - len(name), name, ())] if name else []


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _may_be_path(text: object) -> TypeGuard[str]:
    return (
        isinstance(text, str)
        and 0 < len(text) <= _LONGEST_PATH
        and text.isprintable()
        and bool(text.strip(" ./*"))
    )
