"""Which unit may import which, and what else holds for every module. Proven to say no."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "assay"

LEVELS = {
    "errors": 0,
    "models": 1,
    "endpoints": 2,
    "sources": 3,
    "rollout": 3,
    "scoring": 3,
    "record": 3,
    "report": 3,
    "export": 3,
    "evaluation": 4,
    "certification": 5,
    "training": 5,
    "cli": 6,
    "pytest_plugin": 6,
    "web": 6,
    "compat": 6,
}
"""A unit imports itself and units of a lower level: never its own level, never a higher one."""

TABLE = "__init__.py"
"""`assay/__init__.py` may name any unit, but only for type checkers and in its lazy table."""

ENTRY, ENTRY_IMPORTS = "__main__", "cli"
LIGHT = frozenset({*sys.stdlib_module_names, "assay", "pydantic", "pydantic_core"})
"""What may be imported when a module is imported. All else waits for the function needing it."""

TORCH_HOMES = ("training/", "endpoints/in_process")
PRINTING = ("cli/",)
STREAMS = ("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__")
COMPUTED_IMPORTS = ("__init__.py", "cli/__init__.py", "compat.py", "report/__init__.py")
"""Modules that import by a name not written at the call: lazy tables, and foreign names."""

VAGUE = re.compile(r"(utils?|common|helpers?|misc|core|base_.*|legacy|experimental|v\d+)$")


@dataclass(frozen=True)
class Module:
    """One file of the package, parsed."""

    path: str
    tree: ast.Module

    @property
    def unit(self) -> str:
        return self.path.split("/")[0].removesuffix(".py")

    @property
    def dotted(self) -> tuple[str, ...]:
        """Its name as a tuple of parts; that of the package for an `__init__.py`."""
        parts = ("assay", *self.path.removesuffix(".py").split("/"))
        return parts[:-1] if parts[-1] == "__init__" else parts

    @property
    def package(self) -> tuple[str, ...]:
        return self.dotted if self.path.endswith("__init__.py") else self.dotted[:-1]


@dataclass(frozen=True)
class Imported:
    """One imported name, wherever the import stands."""

    target: str
    line: int
    at_import: bool = field(compare=False)
    """Whether it happens when the module is imported, not in a function or for type checkers."""

    @property
    def unit(self) -> str | None:
        """The unit of ours it reaches into; "" for `assay` itself; None for a foreign name."""
        parts = self.target.split(".")
        return None if parts[0] != "assay" else parts[1] if len(parts) > 1 else ""


def modules_under(root: Path) -> list[Module]:
    return [
        Module(path.relative_to(root).as_posix(), ast.parse(path.read_text("utf-8")))
        for path in sorted(root.rglob("*.py"))
    ]


def imports_of(module: Module) -> Iterator[Imported]:
    """Absolute, relative and in-function imports, and `import_module` of a literal."""
    for node, at_import in _walk(module.tree, at_import=True):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node.module or "", node.level)
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and (name := _import_argument(node)) is not None:
            written = name.lstrip(".")
            names = [_absolute(module, written, len(name) - len(written))]
        else:
            continue
        for name in names:
            yield Imported(name, getattr(node, "lineno", 0), at_import)


def _walk(node: ast.AST, *, at_import: bool) -> Iterator[tuple[ast.AST, bool]]:
    yield node, at_import
    test = ast.unparse(node.test) if isinstance(node, ast.If) else ""
    if isinstance(node, ast.If) and re.fullmatch(r"(not )?(typing\.)?TYPE_CHECKING", test):
        negated = test.startswith("not ")
        for branch, checked in ((node.body, not negated), (node.orelse, negated)):
            for statement in branch:
                yield from _walk(statement, at_import=at_import and not checked)
        return
    inside = at_import and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, at_import=inside)


def _absolute(module: Module, name: str, level: int) -> str:
    if level == 0:
        return name
    package = module.package[: len(module.package) - (level - 1)]
    return ".".join((*package, name) if name else package)


def _importer(node: ast.Call) -> bool:
    called = ast.unparse(node.func)
    return called == "__import__" or called.split(".")[-1] == "import_module"


def _import_argument(node: ast.Call) -> str | None:
    """The module that a call imports, where it is written as a literal."""
    if not _importer(node) or not node.args or not isinstance(node.args[0], ast.Constant):
        return None
    return str(node.args[0].value)


def direction(module: Module) -> Iterator[str]:
    if module.path == TABLE:
        for found in imports_of(module):
            if found.at_import and found.target.split(".")[0] not in sys.stdlib_module_names:
                yield f"{found.line}: the lazy table imports {found.target} when it is imported"
        return
    if module.unit not in LEVELS and module.unit != ENTRY:
        yield f"1: {module.unit!r} is not a unit of the table in DESIGN"
        return
    for found in imports_of(module):
        if problem := _wrong_direction(module.unit, found):
            yield f"{found.line}: {problem}"


def _wrong_direction(unit: str, found: Imported) -> str | None:
    target = found.unit
    if target is None or target == unit or found.target == "assay.__version__":
        return None
    if target not in LEVELS:
        return f"{found.target} is imported through `assay`: import from the unit that has it"
    allowed = target == ENTRY_IMPORTS if unit == ENTRY else LEVELS[target] < LEVELS[unit]
    return None if allowed else f"{unit} may not import {target} ({found.target})"


def computed_imports(module: Module) -> Iterator[str]:
    if module.path in COMPUTED_IMPORTS:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and _importer(node) and _import_argument(node) is None:
            yield f"{node.lineno}: imports a name that is computed, which nobody can check"


def weight(module: Module) -> Iterator[str]:
    for found in imports_of(module):
        top = found.target.split(".")[0]
        if top == "torch" and not module.path.startswith(TORCH_HOMES):
            yield f"{found.line}: torch is imported outside {', '.join(TORCH_HOMES)}"
        elif found.at_import and top not in LIGHT:
            yield f"{found.line}: {top} is imported at module level; do it where it is needed"


def printing(module: Module) -> Iterator[str]:
    if module.path.startswith(PRINTING):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name) and node.id == "print":
            yield f"{node.lineno}: only cli/ prints"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in STREAMS:
            yield f"{node.lineno}: only cli/ writes to {ast.unparse(node)}"


def vague_names(module: Module) -> Iterator[str]:
    for part in module.path.removesuffix(".py").split("/"):
        if VAGUE.match(part):
            yield f"1: {part!r} does not say what is in it"


PER_MODULE: tuple[Callable[[Module], Iterator[str]], ...] = (
    direction,
    computed_imports,
    weight,
    printing,
    vague_names,
)


def function_names(modules: list[Module]) -> Iterator[str]:
    """A public function has no module of its unit as namesake, and no test's name."""
    stems: dict[str, set[str]] = {}
    for module in modules:
        stems.setdefault(module.unit, {module.unit}).add(module.dotted[-1])
    for module in modules:
        for node in module.tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name in stems[module.unit] and not node.name.startswith("_"):
                yield f"{module.path}:{node.lineno}: {node.name} is also a module of its unit"
            if node.name.startswith("test_"):
                yield f"{module.path}:{node.lineno}: {node.name} would be collected as a test"


def violations(root: Path) -> list[str]:
    modules = modules_under(root)
    found = [
        f"{module.path}:{problem}"
        for module in modules
        for rule in PER_MODULE
        for problem in rule(module)
    ]
    return [*found, *function_names(modules)]


def test_the_package_keeps_every_rule() -> None:
    assert violations(SOURCE) == []


def test_the_package_is_really_read() -> None:
    read = {module.path for module in modules_under(SOURCE)}

    assert {"__init__.py", "errors.py", "types/sample.py"} <= read


REFUSED = {
    "absolute": ("models/a.py", "import assay.scorers"),
    "absolute from": ("sources/a.py", "from assay.scorers import exact_answer"),
    "from assay": ("scoring/a.py", "from assay import sources"),
    "relative": ("scoring/a.py", "from ..sources import load_samples"),
    "relative, deep": ("models/wire/a.py", "from ...sources import load_samples"),
    "relative, bare": ("models/a.py", "from .. import endpoints"),
    "in a function": ("models/a.py", "def f():\n    from assay.datasets import g"),
    "in a method": ("models/a.py", "class A:\n    async def f(self):\n        import assay.cli"),
    "in a try": ("models/a.py", "try:\n    import assay.cli\nexcept ImportError:\n    pass"),
    "for type checkers": ("models/a.py", "if TYPE_CHECKING:\n    from assay.cli import main"),
    "import_module": ("models/a.py", "importlib.import_module('assay.cli')"),
    "import_module, relative": ("models/a.py", "import_module('..cli', __package__)"),
    "__import__": ("models/a.py", "__import__('assay.cli')"),
    "up from errors": ("errors.py", "import assay.types"),
    "face to face": ("pytest_plugin/a.py", "from assay.cli import main"),
    "level 5 to level 5": ("certification.py", "import assay.train.loop"),
    "below to evaluation": ("report/a.py", "from assay.runner import evaluate"),
    "entry to a unit": ("__main__.py", "import assay.types"),
    "through the table": ("scoring/a.py", "from assay import Sample"),
    "everything": ("scoring/a.py", "from assay import *"),
    "assay alone": ("scoring/a.py", "import assay"),
    "unknown unit": ("plugins/a.py", ""),
    "unknown file": ("runner.py", ""),
    "eager table": ("__init__.py", "from assay.types import Sample"),
    "eager table, relative": ("__init__.py", "from .models import Sample"),
    "computed": ("models/a.py", "import_module(name)"),
    "torch elsewhere": ("scoring/a.py", "def f():\n    import torch.nn"),
    "torch for type checkers": ("models/a.py", "if TYPE_CHECKING:\n    import torch"),
    "torch at module level": ("training/a.py", "import torch"),
    "heavy": ("sources/a.py", "import pyarrow.parquet"),
    "heavy in a class": ("sources/a.py", "class A:\n    import rich"),
    "heavy in a try": ("cli/a.py", "try:\n    import rich\nexcept ImportError:\n    rich = None"),
    "heavy when not checking": ("cli/a.py", "if not TYPE_CHECKING:\n    import rich"),
    "heavy on a condition": ("cli/a.py", "if late or typing.TYPE_CHECKING:\n    import rich"),
    "print": ("scoring/a.py", "print('scored')"),
    "print passed on": ("scoring/a.py", "show = print"),
    "stderr": ("report/a.py", "def f():\n    sys.stderr.write('x')"),
    "utils": ("models/utils.py", ""),
    "helpers": ("scoring/helpers/a.py", ""),
    "base_": ("scoring/base_scorer.py", ""),
    "namesake": ("scorers/answer.py", "def answer(): ..."),
    "namesake of the unit": ("evaluation.py", "def evaluation(): ..."),
    "test name": ("scoring/a.py", "async def test_connection(): ..."),
}

ALLOWED = {
    "down": ("scoring/a.py", "from assay.types import Sample\nimport assay.errors"),
    "own unit": ("models/wire/a.py", "from ..message import Message\nfrom . import b"),
    "joining": ("evaluation.py", "import assay.datasets, assay.scorers, assay.store"),
    "face": ("cli/a.py", "def f():\n    from assay.train import loop"),
    "entry": ("__main__.py", "from assay.cli import main"),
    "version": ("cli/a.py", "from assay import __version__"),
    "light": ("models/a.py", "import json, pydantic\nfrom pydantic_core import core_schema"),
    "heavy, late": ("sources/a.py", "def f():\n    import pyarrow.parquet"),
    "heavy for type checkers": ("web/a.py", "if typing.TYPE_CHECKING:\n    import starlette"),
    "torch at home": ("training/a.py", "def f():\n    import torch"),
    "torch in process": ("providers/in_process.py", "def f():\n    import torch"),
    "lazy table": ("__init__.py", "if TYPE_CHECKING:\n    from assay.types import Sample"),
    "print": ("cli/a.py", "print('scored', file=sys.stderr)"),
    "private namesake": ("scorers/answer.py", "def _answer(): ..."),
    "text": ("models/a.py", "'print: import assay.cli'"),
}


def tree(root: Path, path: str, code: str) -> Path:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(code, "utf-8")
    return root


@pytest.mark.parametrize(("path", "code"), REFUSED.values(), ids=REFUSED)
def test_a_violation_is_caught(path: str, code: str, tmp_path: Path) -> None:
    found = violations(tree(tmp_path, path, code))

    assert len(found) == 1, found
    assert re.match(rf"{re.escape(path)}:\d+: .", found[0])


@pytest.mark.parametrize(("path", "code"), ALLOWED.values(), ids=ALLOWED)
def test_what_the_table_allows_passes(path: str, code: str, tmp_path: Path) -> None:
    assert violations(tree(tmp_path, path, code)) == []


def test_a_namesake_in_another_file_of_the_unit_is_caught(tmp_path: Path) -> None:
    tree(tmp_path, "scorers/answer.py", "")

    found = violations(tree(tmp_path, "scoring/exact.py", "\ndef answer(): ..."))

    assert found == ["scoring/exact.py:2: answer is also a module of its unit"]
