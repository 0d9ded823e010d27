"""Figures of the source itself: size, names, comments, and imports past a unit's door.

    python benchmarks/code_figures.py              # this tree
    python benchmarks/code_figures.py --at REVISION # the source of another commit

Counts only: nothing is imported and nothing is timed, so the figures are the same on any machine.
"""

import argparse
import ast
import io
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_PARTICIPLES = frozenset("embed feed need seed speed".split())
IRREGULAR = frozenset(
    "begun bound broken brought built chosen done drawn found given gone heard held hidden kept "
    "known laid left lost made meant met paid said seen sent shown spent spoken taken told "
    "written".split()
)


@dataclass(frozen=True)
class Module:
    """One source file."""

    path: str
    text: str
    tree: ast.Module

    @property
    def unit(self) -> str:
        return self.path.split("/")[0].removesuffix(".py")

    @property
    def package(self) -> tuple[str, ...]:
        return ("assay", *self.path.split("/")[:-1])


def read_modules(source: Path) -> list[Module]:
    """Parse every module of the package at `source`."""
    return [
        Module(path.relative_to(source).as_posix(), text, ast.parse(text))
        for path in sorted(source.rglob("*.py"))
        for text in [path.read_text("utf-8")]
    ]


def is_participle(name: str) -> bool:
    """Whether a function is named by a past participle, such as `_parsed` or `begun`."""
    word = name.strip("_").split("_")[0]
    return word in IRREGULAR or (word.endswith("ed") and word not in NOT_PARTICIPLES)


def functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def is_accessor(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a decorator makes the function a property or a validator: named after its value."""
    return any(
        "property" in ast.unparse(d) or "validator" in ast.unparse(d) for d in node.decorator_list
    )


def count_comment_lines(module: Module) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(module.text).readline)
    return len({token.start[0] for token in tokens if token.type == tokenize.COMMENT})


def cross_unit_imports(module: Module) -> Iterator[str]:
    """The modules of other units that a module imports from."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = module.package[: len(module.package) - node.level + 1] if node.level else ()
        target = ".".join((*base, *((node.module,) if node.module else ())))
        parts = target.split(".")
        if parts[0] == "assay" and len(parts) > 1 and parts[1] not in (module.unit, "errors"):
            yield target


def late_third_party_imports(module: Module) -> int:
    """Imports of other packages that wait for a call of the function that they are written in."""
    known = {*sys.stdlib_module_names, "assay"}
    found = set()
    for function in functions(module):
        for node in ast.walk(function):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            if any(name.split(".")[0] not in known for name in names):
                found.add(node.lineno)
    return len(found)


def collisions(modules: list[Module]) -> list[str]:
    """The top-level names of functions and classes that are defined in several modules."""
    homes = Counter(
        name
        for module in modules
        for name in {
            node.name
            for node in module.tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }
        if not (module.unit == "cli" and name in ("configure", "main"))
    )
    return sorted(name for name, count in homes.items() if count > 1)


def describe(modules: list[Module]) -> Iterator[str]:
    """The table, a line at a time."""
    lines = sum(module.text.count("\n") for module in modules)
    all_functions = [node for module in modules for node in functions(module)]
    named = [node for node in all_functions if is_participle(node.name) and not is_accessor(node)]
    past = sum(1 for m in modules for target in cross_unit_imports(m) if target.count(".") > 1)
    doors = sum(1 for m in modules for target in cross_unit_imports(m) if target.count(".") == 1)
    comments = sum(map(count_comment_lines, modules))
    shared = collisions(modules)
    yield f"source lines                      {lines:>7,}"
    yield f"modules                           {len(modules):>7,}"
    yield f"functions per 1,000 lines         {1000 * len(all_functions) / lines:>9.1f}"
    share = len(named) / len(all_functions)
    yield f"functions named by a participle   {len(named):>7,} ({share:.1%})"
    yield f"lines with a comment              {comments:>7,} ({comments / lines:.1%})"
    yield f"imports past a unit's door        {past:>7,} ({past / max(past + doors, 1):.0%})"
    yield f"third-party imports in functions  {sum(map(late_third_party_imports, modules)):>7,}"
    yield f"top-level names in several modules{len(shared):>7,}"
    yield from (f"  {name}" for name in shared)
    yield ""
    units = Counter(dict.fromkeys(sorted({module.unit for module in modules}), 0))
    for module in modules:
        units[module.unit] += module.text.count("\n")
    for unit, count in units.most_common():
        yield f"{unit:<20}{count:>7,}"


def source_at(revision: str, folder: Path) -> Path:
    """Unpack the package as it was in another commit."""
    packed = subprocess.run(
        ["git", "archive", revision, "src/assay"], cwd=ROOT, capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src" / "assay"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--at", metavar="REVISION", help="measure the source of another commit")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = ROOT / "src" / "assay"
        if args.at:
            source = source_at(args.at, Path(folder))
        print("\n".join(describe(read_modules(source))))


if __name__ == "__main__":
    main()
