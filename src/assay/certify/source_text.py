"""The modules, files and folders that the text of a source file refers to. Nothing is run."""

import ast
import glob
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

# Larger files are generated tables, which refer to no other files.
_MAX_SOURCE_BYTES = 4 * 1024 * 1024

_MAX_PATH_LENGTH = 255
# Functions that import by name, of Python and of common frameworks.
_IMPORTERS = frozenset(
    {
        *("import_module", "__import__", "run_module", "find_spec", "get_data"),
        *("resolve_name", "import_string", "import_from_string", "import_object"),
    }
)
_LISTERS = frozenset(
    {
        *("glob", "iglob", "rglob", "iterdir", "listdir", "scandir", "walk", "fnmatch"),
        *("iter_modules", "walk_packages"),
    }
)
_SCRIPT_WORD = re.compile(r"[^\s\"'`=;|&<>(){}$,]+")
# `module:function`, as in check files and manifests.
_CODE_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,6}")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
# The folder in front of a joined name: `"%s/words.txt" % here`.
_PLACEHOLDER = re.compile(r"^(?:%s|\*)?/+")

# Imports in code that is not parsed: `exec("import helper")`, `"python -m helper"`.
_IMPORT_IN_TEXT = re.compile(
    r"""(?:^|[;:\n"'])[ \t]*from[ \t]++(?P<dots>\.*)(?P<module>[^\W\d][\w.]*|)
        [ \t]+import\b(?P<names>[\w ,\t(]*)
    |(?:^|[;:\n"'])[ \t]*import[ \t]+(?P<modules>[\w., \t]+)
    |(?:^|[ \t])-[bBdEiIOPqRsSuvx]*m[ \t]*["']?(?P<program>[\w.]+)
    |(?:__import__|import_module)\([ \t]*["'](?P<called>[\w.]+)""",
    re.VERBOSE,
)
_FORMAT_FIELD = re.compile(r"\{[^{}]*\}|%\(\w+\)s|%\w")
# Suffixes that Node and its runners add to a required name.
_NODE_SUFFIXES = (
    *(".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".json"),
    *("/index.js", "/index.mjs", "/index.cjs", "/index.ts", "/index.tsx"),
)
NODE_CODE = frozenset(suffix for suffix in _NODE_SUFFIXES if suffix[0] == ".") - {".json"}
# In TypeScript, `./part.js` is written for `./part.ts`.
_COMPILED_SUFFIX = re.compile(r"\.([mc]?)jsx?$")
_NODE_TOOLS = ("node", "npm", "npx", "pnpm", "yarn", "bun", "bunx", "tsx", "ts-node", "deno")
_MAKEFILES = ("Makefile", "makefile", "GNUmakefile")
# Files that tools read without being given their names.
_TOOL_FILES = {
    **dict.fromkeys(_NODE_TOOLS, ("package.json", "index.js")),
    **dict.fromkeys(("make", "gmake"), _MAKEFILES),
}
# A path behind a variable or a substitution: `$HERE/tool.py`, `"$(dirname "$0")"/tool.py`.
_VARIABLE_PATH = re.compile(r"""(?:\$\w+|[})`])"?/+([^\s"'`;|&<>(){}$,=]+)""")
_QUOTED_PATH = re.compile(r"""["'](?:\$\w+/|\$\{\w+\}/)?([^"'\n$]{1,255})["']""")
_COMMENT = re.compile(r"^[ \t]*#(?!!).*$", re.MULTILINE)
# A word where a script or a configuration has the name of a program.
_PROGRAM = re.compile(
    r"""(?:^|[;&|({"'@]|\b(?:exec|then|do|else|time|env|nohup|run)\b)[ \t]*
        (?:\w+=\S{0,255}[ \t]+)*(?:[\w./-]*/)?(?P<name>[\w-]+)""",
    re.VERBOSE | re.MULTILINE,
)
_MAX_PATH_WORDS = 2000
_MAX_SOURCE_TEXT = 100_000
_FILE_PATTERN = re.compile(r"^[^/].*/|\.[A-Za-z0-9]{1,6}$")

Import = tuple[int, str, tuple[str, ...]]
"""The number of dots of a relative import, the module, and the imported names."""


@dataclass(frozen=True)
class SourceReferences:
    """The references of one file."""

    imports: tuple[Import, ...] = ()
    texts: tuple[str, ...] = ()
    """Texts that may be paths of files or folders."""

    patterns: tuple[str, ...] = ()
    """Paths computed at run time, as patterns such as `prompts/*.txt`."""

    lists_folders: bool = False
    """Whether the code lists folders, and so may read files that it does not name."""

    lists_deep: bool = False
    """Whether the code lists folders recursively."""

    imports_by_name: bool = False
    """Whether the code imports modules whose names are computed at run time."""

    module_patterns: tuple[str, ...] = ()
    """Module names computed at run time, as patterns such as `plugins.*`."""

    extends_path: bool = False
    """Whether the code changes `sys.path`."""

    @property
    def suffixes(self) -> frozenset[str]:
        """File suffixes among the texts, such as `.txt`."""
        return frozenset(text for text in self.texts if _SUFFIX.fullmatch(text))

    @property
    def module_names(self) -> list[str]:
        """Texts that may be names of modules or packages."""
        whole = (t.partition(":")[0] if _CODE_NAME.fullmatch(t) else t for t in self.texts)
        return [name for text in whole if _MODULE.fullmatch(name := text.strip("."))]


def read_source_references(file: Path) -> SourceReferences:
    """Read the references of a file. An unreadable file has none: it cannot run either."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_SOURCE_BYTES + 1)
            is_large = len(data) > _MAX_SOURCE_BYTES
            if is_large and file.suffix == ".py":
                # Searched as text: a syntax tree takes a hundred times the memory.
                data += opened.read()
    except OSError:
        return SourceReferences()
    if is_large:
        text = data.decode(errors="replace") if file.suffix == ".py" else ""
        return SourceReferences(tuple(_find_text_imports(text)))
    first = data.partition(b"\n")[0]
    is_python = file.suffix == ".py" or (first.startswith(b"#!") and b"python" in first)
    return read_python_references(data) if is_python else read_script_references(data, file.name)


def read_shebang(file: Path) -> str | None:
    """Return the interpreter line of a script; None for another file."""
    try:
        with file.open("rb") as opened:
            first = opened.readline(_MAX_PATH_LENGTH)
    except OSError:
        return None
    return first.decode(errors="replace") if first.startswith(b"#!") else None


def is_makefile(file: Path) -> bool:
    """Whether `make` runs this file without being given its name."""
    return file.name in _MAKEFILES


def read_python_references(code: bytes | str) -> SourceReferences:
    """Find the references of Python code."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Valid for another Python, perhaps: a command may run it with a newer one.
        text = code if isinstance(code, str) else code.decode(errors="replace")
        words = read_script_references(text.encode(errors="replace")).texts
        return SourceReferences(tuple(_find_text_imports(text)), words)
    imports: list[Import] = []
    texts: dict[str, None] = {}
    patterns: dict[str, None] = {}
    used: list[str] = []
    called: list[Import] = []
    computed: dict[str, None] = {}
    unused: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(0, alias.name, ()) for alias in node.names]
            used += ["sys.path" for alias in node.names if alias.name == "sys" and alias.asname]
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names if alias.name != "*")
            imports.append((node.level, node.module or "", names))
            used += [alias.name for alias in node.names if alias.asname]
            used += ["sys.path"] if node.module == "sys" and "path" in names else []
        elif isinstance(node, ast.Call):
            found = _find_called_import(node)
            if isinstance(found, str):
                computed[found] = None
            elif found is not None:
                called.append(found)
        elif isinstance(node, ast.Attribute | ast.Name):
            used.append(_get_last_name(node))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            unused.add(id(node.value))  # a docstring: its paths are for readers
        elif isinstance(node, ast.JoinedStr):
            patterns[_build_file_pattern(node)] = None
        elif isinstance(node, ast.Constant) and id(node) not in unused:
            texts |= dict.fromkeys(_find_file_names(node.value))
            imports += _find_text_imports(node.value)
    made = tuple(each for each in patterns if _FILE_PATTERN.search(each) and _may_be_path(each))
    # More uses of importers than calls with a literal: some names are computed.
    by_name = sum(name in _IMPORTERS for name in used) > len(called)
    by_name = by_name or not {"-m", *_IMPORTERS}.isdisjoint(texts)
    lists_folders = not _LISTERS.isdisjoint(used)
    if lists_folders and by_name:
        computed["*"] = None
    return SourceReferences(
        imports=(*imports, *called),
        texts=tuple(texts),
        patterns=made,
        lists_folders=lists_folders,
        lists_deep=not {"rglob", "walk"}.isdisjoint(used),
        imports_by_name=by_name,
        module_patterns=tuple(computed),
        extends_path="sys.path" in used or "addsitedir" in used or "PYTHONPATH" in texts,
    )


def read_script_references(
    data: bytes, name: str = "", *, programs: Iterable[str] | None = None
) -> SourceReferences:
    """Find the references of other text, such as a shell script or a check file, by its words.

    `name` is that of the file. `programs` are the programs that the text may start, by default
    those where a script has them.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return SourceReferences()  # a binary file
    suffix = Path(name).suffix
    is_node = suffix in NODE_CODE
    words = dict.fromkeys(_SCRIPT_WORD.findall(text))
    named: list[Import] = [
        (0, word.partition(":")[0], ()) for word in words if _CODE_NAME.fullmatch(word)
    ]
    # An `import` of JavaScript is not one of Python.
    found = _find_text_imports(text)
    imports = [*named, *(each for each in found if not is_node or each[2] == ("__main__",))]
    # `PYTHONPATH=lib:src`
    words |= dict.fromkeys(part for word in words if ":" in word for part in word.split(":"))
    words |= dict.fromkeys(_VARIABLE_PATH.findall(text))
    words |= dict.fromkeys(each for each in _QUOTED_PATH.findall(text) if " " in each)
    if programs is None:
        is_script = name == "package.json" or suffix in ("", ".sh", ".bash", ".mk")
        programs = _PROGRAM.findall(_COMMENT.sub("", text)) if is_script else []
    tools = _TOOL_FILES.keys() & set(programs)
    words |= dict.fromkeys(f"{word}/__main__.py" for word in [*words] if "python" in text)
    words |= dict.fromkeys(_find_node_paths(words, every=not tools.isdisjoint(_NODE_TOOLS)))
    words |= dict.fromkeys(name for tool in sorted(tools) for name in _TOOL_FILES[tool])
    return SourceReferences(
        tuple(imports),
        tuple(word for word in words if _may_be_path(word)),
        extends_path=not is_node,
    )


def _find_node_paths(words: Iterable[str], *, every: bool) -> list[str]:
    """Return the files that Node may find by a name: `require("./helper")` omits the suffix."""
    # `@/` and `~/` are the usual names of the source folder.
    short = [word.removeprefix("@/").removeprefix("~/") for word in words]
    changed = [one for one, word in zip(short, words, strict=True) if one != word]
    chosen = short if every else [*changed, *(w for w in words if w.startswith(("./", "../")))]
    chosen += [_COMPILED_SUFFIX.sub("", each) for each in chosen if _COMPILED_SUFFIX.search(each)]
    return [*changed, *(each + suffix for each in chosen for suffix in _NODE_SUFFIXES)]


def split_command(text: str) -> list[str]:
    """Split a text into the words of a command line."""
    return _SCRIPT_WORD.findall(text)


def _find_file_names(value: object) -> list[str]:
    """Return the possible paths in a text: all of it, and words that look like a path."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if not isinstance(text, str) or len(text) > _MAX_SOURCE_TEXT:
        return []
    words = (each.removeprefix("file:").partition("?")[0] for each in _SCRIPT_WORD.findall(text))
    found = [text, *[word for word in words if "." in word or "/" in word][:_MAX_PATH_WORDS]]
    found += [_PLACEHOLDER.sub("", each) for each in found]
    if _MODULE.fullmatch(text):
        found.append(text.replace(".", "/"))  # a package used as a data folder
    return [each for each in dict.fromkeys(found) if _may_be_path(each)]


def _build_file_pattern(node: ast.JoinedStr) -> str:
    """Return the glob pattern of an f-string."""
    parts = [
        glob.escape(str(part.value)) if isinstance(part, ast.Constant) else "*"
        for part in node.values
    ]
    # The first placeholder is the folder, in most cases that of the file.
    return _PLACEHOLDER.sub("./", re.sub(r"\*+", "*", "".join(parts)))


def _find_called_import(node: ast.Call) -> Import | str | None:
    """Return the import of a call such as `import_module("name")`, or the pattern of its name."""
    if _get_called_name(node) not in _IMPORTERS or not node.args:
        return None
    first = node.args[0]
    if isinstance(first, ast.Constant):
        whole = first.value.partition(":")[0] if isinstance(first.value, str) else ""
        name = whole.lstrip(".")
        level, base = len(whole) - len(name), _get_base_package(node)
        if level and base:
            return (0, ".".join([*base[: len(base) - level + 1], name]), ()) if name else None
        return (level, name, ()) if name else None
    try:
        pattern = re.sub(r"\*+", "*", _build_text_pattern(first))
    except RecursionError:
        return None
    return pattern if re.fullmatch(r"[\w.*]*\w[\w.*]*", pattern) else None


def _get_base_package(node: ast.Call) -> list[str]:
    """Return the package that a call such as `import_module(".name", "package")` starts from."""
    given = [*node.args[1:2], *(each.value for each in node.keywords if each.arg == "package")]
    if not given or not isinstance(given[0], ast.Constant) or not isinstance(given[0].value, str):
        return []
    return given[0].value.split(".")


def _build_text_pattern(node: ast.expr) -> str:
    """Return the pattern of an expression, with `*` for unknown parts."""
    if isinstance(node, ast.Constant):
        return _FORMAT_FIELD.sub("*", str(node.value))
    if isinstance(node, ast.JoinedStr):
        return "".join(_build_text_pattern(each) for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _build_text_pattern(node.left) + _build_text_pattern(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _build_text_pattern(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "format":
            return _build_text_pattern(node.func.value)
        if (
            node.func.attr == "join"
            and node.args
            and isinstance(node.args[0], ast.List | ast.Tuple)
        ):
            between = _build_text_pattern(node.func.value)
            return between.join(_build_text_pattern(each) for each in node.args[0].elts)
    return "*"


def _find_text_imports(value: object) -> list[Import]:
    """Find imports in a text that contains code or a command line."""
    if not isinstance(value, str) or not ("import" in value or "-" in value):
        return []
    found: list[Import] = []
    for each in _IMPORT_IN_TEXT.finditer(value):
        if each["dots"] is not None:
            names = tuple(_split_imported_modules(each["names"].replace("(", " ")))
            found.append((len(each["dots"]), each["module"].strip("."), names))
        elif each["program"] is not None:
            found.append((0, each["program"].strip("."), ("__main__",)))
        else:
            found += [
                (0, name, ()) for name in _split_imported_modules(each["modules"] or each["called"])
            ]
    return [each for each in found if each[0] or _MODULE.fullmatch(each[1])]


def _split_imported_modules(text: str) -> list[str]:
    """Return the modules of `a.b as c, d`."""
    words = (part.split() for part in text.split(","))
    return [each[0] for each in words if each and _MODULE.fullmatch(each[0])]


def _get_called_name(node: ast.Call) -> str:
    return _get_last_name(node.func) if isinstance(node.func, ast.Attribute | ast.Name) else ""


def _get_last_name(node: ast.Attribute | ast.Name) -> str:
    """Return the last name of an expression such as `os.path.join`, but `sys.path` in full."""
    if isinstance(node, ast.Name):
        return node.id
    whole = isinstance(node.value, ast.Name) and (node.value.id, node.attr) == ("sys", "path")
    return "sys.path" if whole else node.attr


def _may_be_path(text: object) -> TypeGuard[str]:
    return (
        isinstance(text, str)
        and 0 < len(text) <= _MAX_PATH_LENGTH
        and text.isprintable()
        and bool(text.strip(" ./*"))
    )
