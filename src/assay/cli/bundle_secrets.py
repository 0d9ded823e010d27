"""Detection of secrets in files that are about to be bundled."""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from assay.errors import ConfigError
from assay.types import Redactor, redact

_SECRET_FILES = (
    ".env .env.* *.env .netrc .npmrc .pypirc .pgpass *.pem *.key *.p12 *.pfx *.kdbx id_rsa* "
    "id_ed25519* *credentials* service_account*.json secrets.*"
).split()
_SECRET_NAME_IN_CODE = re.compile(
    r"api[_-]?key|secret|passw|credential|(^|[_-])token$|(access|auth|oauth|bearer)[_-]token"
    r"|^authorization$",
    re.IGNORECASE,
)
# A name and its value in a settings file, such as `api_key: "..."`.
_SETTING_LINE = re.compile(r"""["']?([\w.-]+)["']?\s*[:=]\s*["']?([^\s"',;]+)""")
_PASSWORD_IN_ADDRESS = re.compile(r"://[^\s/:@{}]*:[^\s/@{}<$]{4,}@")
_SETTINGS_SUFFIXES = frozenset({".cfg", ".conf", ".ini", ".json", ".toml", ".yaml", ".yml"})
# Shorter values are mostly ports, versions and placeholders.
_MIN_SUSPECTED_LENGTH = 8
# Without values from the environment it finds secrets by pattern only.
_PATTERN_REDACTOR = Redactor(())


def is_secret_file(path: Path) -> bool:
    """Whether the name of a file marks it as one for secrets."""
    name = path.name.lower()
    return path.suffix != ".py" and any(fnmatch(name, pattern) for pattern in _SECRET_FILES)


def refuse_secrets(path: Path, name: str, *, allow_suspected: bool) -> None:
    """Raise `ConfigError` with the line of the first secret in a file.

    `allow_suspected` permits text that only looks like a secret, never one of this process.
    """
    # A line that the pattern redactor leaves and the full one changes has a known value in it.
    known = (n for n, text in _number_lines(path) if redact(text) != _PATTERN_REDACTOR.clean(text))
    line = next(known, None)
    if line is not None:
        raise ConfigError(
            f"{name}:{line} contains the secret of an environment variable of this process",
            hint="read it from the environment in the code, then run the evaluation again",
        )
    line = None if allow_suspected else next(_find_suspected_secrets(path), None)
    if line is not None:
        raise ConfigError(
            f"{name}:{line} contains a suspected secret",
            hint="read it from an environment variable; if it is not a secret, pass "
            f"--allow-suspected-secret {name}",
        )


def _number_lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        yield from enumerate(file, start=1)


def _find_suspected_secrets(path: Path) -> Iterator[int]:
    for number, line in _number_lines(path):
        if _PATTERN_REDACTOR.clean(line) != line or _PASSWORD_IN_ADDRESS.search(line):
            yield number
        settings = _SETTING_LINE.finditer(line) if path.suffix.lower() in _SETTINGS_SUFFIXES else ()
        if any(_SECRET_NAME_IN_CODE.search(s[1]) and _is_secret_text(s[2]) for s in settings):
            yield number
    if path.suffix == ".py":
        yield from _find_secret_literals(path)


def _find_secret_literals(path: Path) -> Iterator[int]:
    """Yield the lines that assign a literal to a secret's name, such as `api_key="..."`."""
    try:
        tree = ast.parse(path.read_bytes())
    # Not Python of this version: the patterns above still apply.
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        for name, value in _find_named_values(node):
            texts = _find_literal_texts(value) if _SECRET_NAME_IN_CODE.search(name) else ()
            if any(map(_is_secret_text, texts)):
                yield value.lineno


def _find_named_values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.keyword) and node.arg is not None:
        yield node.arg, node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pair_target(target, node.value)
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id, node.value
    elif isinstance(node, ast.arguments):
        parameters = [*node.posonlyargs, *node.args]
        # The last ones have the defaults.
        last = parameters[len(parameters) - len(node.defaults) :] + node.kwonlyargs
        for parameter, default in zip(last, [*node.defaults, *node.kw_defaults], strict=True):
            if default is not None:
                yield parameter.arg, default
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield _read_last_name(node.target), node.value
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    elif isinstance(node, ast.Call) and _read_last_name(node.func) == "setdefault":
        # As of `os.environ`.
        yield from zip(map(_read_constant_text, node.args[:1]), node.args[1:], strict=False)


def _pair_target(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    sequence = ast.Tuple | ast.List
    if isinstance(target, sequence) and isinstance(value, sequence):
        for each in zip(target.elts, value.elts, strict=False):
            yield from _pair_target(*each)
    else:
        yield _read_last_name(target), value


def _read_last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return _read_constant_text(node.slice) if isinstance(node, ast.Subscript) else ""


def _read_constant_text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _find_literal_texts(value: ast.expr) -> Iterator[str]:
    """Yield the literals that a value may be: itself, or the fallback of a variable."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        # The value follows the scheme of a header, as in `Token ...`.
        yield value.value.rpartition(" ")[2] if value.value.count(" ") == 1 else value.value
    elif isinstance(value, ast.JoinedStr | ast.BoolOp):
        for each in value.values:
            yield from _find_literal_texts(each)
    elif isinstance(value, ast.IfExp):
        yield from (*_find_literal_texts(value.body), *_find_literal_texts(value.orelse))
    elif isinstance(value, ast.Call) and _read_last_name(value.func) in (
        "get",
        "getenv",
        "SecretStr",
    ):
        # The first argument of `get` and `getenv` is the name of the variable, not a value.
        for each in value.args[0 if _read_last_name(value.func) == "SecretStr" else 1 :]:
            yield from _find_literal_texts(each)


def _is_secret_text(text: str) -> bool:
    # Letters and digits without spaces; placeholders such as `not-needed` have no digits.
    if len(text) < _MIN_SUSPECTED_LENGTH or any(map(str.isspace, text)):
        return False
    return any(map(str.isdigit, text)) and any(map(str.isalpha, text))
