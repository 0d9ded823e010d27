"""Which unit may import which, and what else holds for every module. Proven to say no."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "assay"

LEVELS = {
    "errors": 0,
    "registry": 1,
    "types": 1,
    "formats": 2,
    "providers": 3,
    "environments": 4,
    "datasets": 4,
    "scorers": 4,
    "store": 4,
    "stats": 4,
    "export": 4,
    "sessions": 5,
    "agents": 5,
    "gateway": 5,
    "runner": 6,
    "certify": 7,
    "train": 7,
    "web": 8,
    "cli": 9,
    "pytest_plugin": 9,
    "compat": 9,
}
"""A unit imports itself and units of a lower level: never its own level, never a higher one."""

TABLE = "__init__.py"
"""`assay/__init__.py` may name any unit, but only for type checkers and in its lazy table."""

ENTRY, ENTRY_IMPORTS = "__main__", "cli"
LIGHT = frozenset({*sys.stdlib_module_names, "assay", "lazy_loader"})
"""What the `__init__` of a unit may import when it is imported: `import assay.store` is instant."""

TORCH_HOMES = ("train/", "providers/in_process")
PRINTING = ("cli/",)
OUTPUT = "cli/output.py"
WRITES = frozenset({"write", "writelines", "buffer"})
STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")
COMPUTED_IMPORTS = ("__init__.py", "cli/__init__.py", "compat.py")
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

    @cached_property
    def nodes(self) -> list[tuple[ast.AST, bool]]:
        """Every node, and whether it is run when the module is imported."""
        return _list_nodes(self.tree)

    @cached_property
    def imports(self) -> list["Imported"]:
        return list(imports_of(self))


@dataclass(frozen=True)
class Imported:
    """One imported name, wherever the import stands."""

    target: str
    module: str
    """The module that is imported from: `target` itself, or without its last name."""

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
    for node, at_import in module.nodes:
        if isinstance(node, ast.Import):
            names = [(alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node.module or "", node.level)
            names = [(f"{base}.{alias.name}", base) for alias in node.names]
        elif isinstance(node, ast.Call) and (name := _import_argument(node)) is not None:
            relative = name.lstrip(".")
            absolute = _absolute(module, relative, len(name) - len(relative))
            names = [(absolute, absolute)]
        else:
            continue
        for target, source in names:
            yield Imported(target, source, getattr(node, "lineno", 0), at_import)


def _list_nodes(tree: ast.Module) -> list[tuple[ast.AST, bool]]:
    # A list that grows while it is read: each node is met once, and no generator is nested.
    nodes: list[tuple[ast.AST, bool]] = [(tree, True)]
    for node, at_import in nodes:
        test = ast.unparse(node.test) if isinstance(node, ast.If) else ""
        if isinstance(node, ast.If) and re.fullmatch(r"(not )?(typing\.)?TYPE_CHECKING", test):
            negated = test.startswith("not ")
            nodes += [(each, at_import and negated) for each in node.body]
            nodes += [(each, at_import and not negated) for each in node.orelse]
            continue
        functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        inside = at_import and not isinstance(node, functions)
        nodes += [(child, inside) for child in ast.iter_child_nodes(node)]
    return nodes


def _absolute(module: Module, name: str, level: int) -> str:
    if level == 0:
        return name
    package = module.package[: len(module.package) - (level - 1)]
    return ".".join((*package, name) if name else package)


def _importer(node: ast.Call) -> bool:
    called = node.func
    if isinstance(called, ast.Attribute):
        return called.attr == "import_module"
    return isinstance(called, ast.Name) and called.id in ("__import__", "import_module")


def _import_argument(node: ast.Call) -> str | None:
    """The module that a call imports, where it is written as a literal."""
    if not _importer(node) or not node.args or not isinstance(node.args[0], ast.Constant):
        return None
    return str(node.args[0].value)


def direction(module: Module) -> Iterator[str]:
    if module.path == TABLE:
        for found in module.imports:
            if found.at_import and found.target.split(".")[0] not in sys.stdlib_module_names:
                yield f"{found.line}: the lazy table imports {found.target} when it is imported"
        return
    if module.unit not in LEVELS and module.unit != ENTRY:
        yield f"1: {module.unit!r} is not a unit of the table in DESIGN"
        return
    for found in module.imports:
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


def door(module: Module) -> Iterator[str]:
    """Other units are imported from their `__init__`, never from inside."""
    for found in module.imports:
        parts = found.module.split(".")
        outside = parts[0] == "assay" and len(parts) > 2 and parts[1] != module.unit
        if outside and module.path != TABLE:
            yield f"{found.line}: {found.module} is inside a unit; import from assay.{parts[1]}"


def computed_imports(module: Module) -> Iterator[str]:
    if module.path in COMPUTED_IMPORTS:
        return
    for node, _ in module.nodes:
        if isinstance(node, ast.Call) and _importer(node) and _import_argument(node) is None:
            yield f"{node.lineno}: imports a name that is computed, which nobody can check"


def weight(module: Module) -> Iterator[str]:
    for found in module.imports:
        top = found.target.split(".")[0]
        if top == "torch" and not module.path.startswith(TORCH_HOMES):
            yield f"{found.line}: torch is imported outside {', '.join(TORCH_HOMES)}"
        elif found.at_import and module.path.endswith("__init__.py") and top not in LIGHT:
            yield f"{found.line}: {top} is imported by a door; import it in the module that uses it"


def output(module: Module) -> Iterator[str]:
    """Commands write through one module, which makes untrusted text harmless for a terminal."""
    if not module.path.startswith(PRINTING) or module.path == OUTPUT:
        return
    names = (node for node, _ in module.nodes if isinstance(node, ast.Name | ast.Attribute))
    for node in names:
        is_print = isinstance(node, ast.Name) and node.id == "print"
        stream = node.value if isinstance(node, ast.Attribute) and node.attr in WRITES else None
        name = stream.attr if isinstance(stream, ast.Attribute) else getattr(stream, "id", None)
        if is_print or name in STREAMS:
            yield f"{node.lineno}: commands print through {OUTPUT} only"


def printing(module: Module) -> Iterator[str]:
    if module.path.startswith(PRINTING):
        return
    for node, _ in module.nodes:
        if isinstance(node, ast.Name) and node.id == "print":
            yield f"{node.lineno}: only cli/ prints"
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in STREAMS
            and isinstance(node.value, ast.Name)
            and node.value.id == "sys"
        ):
            yield f"{node.lineno}: only cli/ writes to sys.{node.attr}"


def vague_names(module: Module) -> Iterator[str]:
    for part in module.path.removesuffix(".py").split("/"):
        if VAGUE.match(part):
            yield f"1: {part!r} does not say what is in it"


PER_MODULE: tuple[Callable[[Module], Iterator[str]], ...] = (
    direction,
    door,
    computed_imports,
    weight,
    output,
    printing,
    vague_names,
)


def function_names(modules: list[Module]) -> Iterator[str]:
    """A public function has no module of its unit as namesake, and no test's name."""
    stems: dict[str, set[str]] = {}
    for module in modules:
        if not module.path.endswith("__init__.py"):
            stems.setdefault(module.unit, set()).add(module.dotted[-1])
    for module in modules:
        for node in module.tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name in stems.get(module.unit, ()) and not node.name.startswith("_"):
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
    read = {module.path for module in modules_under(SOURCE / "scorers")}

    assert {"__init__.py", "answer.py", "checks/rules.py"} <= read


REFUSED = {
    "absolute": ("types/a.py", "import assay.scorers"),
    "absolute from": ("datasets/a.py", "from assay.scorers import exact_answer"),
    "from assay": ("scorers/a.py", "from assay import datasets"),
    "relative": ("scorers/a.py", "from ..datasets import load_samples"),
    "relative, deep": ("scorers/checks/a.py", "from ...datasets import load_samples"),
    "relative, bare": ("types/a.py", "from .. import providers"),
    "in a function": ("types/a.py", "def f():\n    from assay.datasets import g"),
    "in a method": ("types/a.py", "class A:\n    async def f(self):\n        import assay.cli"),
    "in a try": ("types/a.py", "try:\n    import assay.cli\nexcept ImportError:\n    pass"),
    "for type checkers": ("types/a.py", "if TYPE_CHECKING:\n    from assay.cli import main"),
    "import_module": ("types/a.py", "importlib.import_module('assay.cli')"),
    "import_module, relative": ("types/a.py", "import_module('..cli', __package__)"),
    "__import__": ("types/a.py", "__import__('assay.cli')"),
    "up from errors": ("errors.py", "import assay.types"),
    "face to face": ("pytest_plugin/a.py", "from assay.cli import main"),
    "level 7 to level 7": ("certify.py", "import assay.train"),
    "below to the runner": ("stats/a.py", "from assay.runner import evaluate"),
    "entry to a unit": ("__main__.py", "import assay.types"),
    "through the table": ("scorers/a.py", "from assay import Sample"),
    "everything": ("scorers/a.py", "from assay import *"),
    "assay alone": ("scorers/a.py", "import assay"),
    "unknown unit": ("plugins/a.py", ""),
    "unknown file": ("rollout.py", ""),
    "eager table": ("__init__.py", "from assay.types import Sample"),
    "eager table, relative": ("__init__.py", "from .models import Sample"),
    "past a door": ("runner/a.py", "from assay.store.writer import Writer"),
    "past a door, relative": ("runner/a.py", "from ..store.writer import Writer"),
    "past a door, in a function": ("cli/a.py", "def f():\n    from assay.stats.power import g"),
    "past a door, plain": ("cli/a.py", "import assay.store.writer"),
    "past a door, computed": ("cli/a.py", "import_module('assay.store.writer')"),
    "computed": ("types/a.py", "import_module(name)"),
    "torch elsewhere": ("scorers/a.py", "def f():\n    import torch.nn"),
    "torch for type checkers": ("types/a.py", "if TYPE_CHECKING:\n    import torch"),
    "heavy door": ("datasets/__init__.py", "import pyarrow.parquet"),
    "heavy door, in a class": ("datasets/__init__.py", "class A:\n    import rich"),
    "heavy door, in a try": ("cli/__init__.py", "try:\n    import rich\nexcept OSError:\n    pass"),
    "heavy door, not checking": ("cli/__init__.py", "if not TYPE_CHECKING:\n    import rich"),
    "heavy door, on a condition": ("cli/__init__.py", "if late or TYPE_CHECKING:\n    import rich"),
    "print": ("scorers/a.py", "print('scored')"),
    "print passed on": ("scorers/a.py", "show = print"),
    "print of a command": ("cli/a.py", "print('scored', file=sys.stderr)"),
    "print passed on by a command": ("cli/a.py", "def f(show=print): ..."),
    "stdout of a command": ("cli/a.py", "def f():\n    sys.stdout.write('x')"),
    "bytes of a command": ("cli/a.py", "sys.stdout.buffer.flush()"),
    "lines of a command": ("cli/a.py", "from sys import stderr\nstderr.writelines(['x'])"),
    "stderr": ("stats/a.py", "def f():\n    sys.stderr.write('x')"),
    "utils": ("types/utils.py", ""),
    "helpers": ("scorers/helpers/a.py", ""),
    "base_": ("scorers/base_scorer.py", ""),
    "namesake": ("scorers/answer.py", "def answer(): ..."),
    "namesake of the unit": ("runner.py", "def runner(): ..."),
    "test name": ("scorers/a.py", "async def test_connection(): ..."),
}

ALLOWED = {
    "down": ("scorers/a.py", "from assay.types import Sample\nimport assay.errors"),
    "own unit": ("scorers/checks/a.py", "from ..outcome import Outcome\nfrom . import b"),
    "joining": ("runner.py", "import assay.datasets, assay.scorers, assay.store"),
    "face": ("cli/a.py", "def f():\n    from assay.train import grpo_train"),
    "entry": ("__main__.py", "from assay.cli import main"),
    "version": ("cli/a.py", "from assay import __version__"),
    "light": ("types/a.py", "import json, pydantic\nfrom pydantic_core import core_schema"),
    "heavy leaf": ("datasets/a.py", "import pyarrow.parquet"),
    "heavy door, late": ("datasets/__init__.py", "def f():\n    import pyarrow.parquet"),
    "heavy for type checkers": ("web/__init__.py", "if TYPE_CHECKING:\n    import starlette"),
    "torch at home": ("train/a.py", "import torch"),
    "torch in process": ("providers/in_process.py", "def f():\n    import torch"),
    "lazy table": ("__init__.py", "if TYPE_CHECKING:\n    from assay.types import Sample"),
    "print": ("cli/output.py", "print('scored', file=sys.stderr)"),
    "files of a command": ("cli/a.py", "def f(path):\n    path.write_text('x')"),
    "flush": ("cli/a.py", "sys.stdout.flush()\nfile.write('x')"),
    "private namesake": ("scorers/answer.py", "def _answer(): ..."),
    "text": ("types/a.py", "'print: import assay.cli'"),
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

    found = violations(tree(tmp_path, "scorers/exact.py", "\ndef answer(): ..."))

    assert found == ["scorers/exact.py:2: answer is also a module of its unit"]
