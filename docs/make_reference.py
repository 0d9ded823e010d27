"""Writes docs/reference.md and the pages of docs/api from the code of every public name.

python docs/make_reference.py
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

DOCS = Path(__file__).parent
UNITS = (
    "assay",
    "assay.types",
    "assay.formats",
    "assay.datasets",
    "assay.sessions",
    "assay.providers",
    "assay.environments",
    "assay.agents",
    "assay.gateway",
    "assay.scorers",
    "assay.runner",
    "assay.store",
    "assay.stats",
    "assay.export",
    "assay.certify",
    "assay.train",
    "assay.web",
    "assay.pytest_plugin",
    "assay.cli",
    "assay.compat",
    "assay.errors",
    "assay.registry",
)

HEAD = """# Python API

Every name that you can import, by unit. The page of a unit lists parameters and fields with their
types and defaults. Names that are not listed here may change without notice.

```python
from assay import EvalConfig, evaluate_sync

report = evaluate_sync(
    [{"question": "Lima", "answer": "Lima"}],
    EvalConfig(agent="mock:echo", score_fn=lambda sample: sample.response == sample.ground_truth),
)

assert report.mean == 1.0
```

These pages are generated from the code by `docs/make_reference.py`.
"""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def build_pages() -> dict[str, str]:
    """Build the text of each page, by its path in docs/."""
    pages = {f"api/{name}.md": build_unit_page(name) for name in UNITS}
    return {"reference.md": HEAD + "".join(map(list_unit, UNITS)), **pages}


def list_unit(unit: str) -> str:
    """Build the table of a unit's names."""
    rows = "".join(
        f"| [`{name}`](api/{unit}.md#{_anchor(name)}) | {_describe(name, value)} |\n"
        for name, value in read_public(unit)
    )
    head = f"\n## [`{unit}`](api/{unit}.md)\n\n{_summarize(import_module(unit))}\n\n"
    return f"{head}| name | what it is |\n|---|---|\n{rows}"


def build_unit_page(unit: str) -> str:
    """Build the page of a unit: each name with its parameters, fields and methods."""
    parts = [f"# {unit}\n\n{_summarize(import_module(unit))} See [all units](../reference.md).\n"]
    for name, value in read_public(unit):
        heading = name.replace("_", "\\_") if name.startswith("_") else name
        parts.append(f"\n## {heading}\n\n{_document(name, value)}\n")
        if home := find_home(unit, name, value):
            parts.append(f"\nDocumented at [`{home}`]({home}.md#{_anchor(name)}).\n")
        elif inspect.isclass(value) and value.__name__ == name:
            parts += map("\n{}".format, _tabulate_class(value))
        elif inspect.isfunction(value):
            parts.append(f"\n{_tabulate_parameters(_parse(value))}")
    return "".join(parts)


def find_home(unit: str, name: str, value: object) -> str | None:
    """Return the unit whose page documents a name that several units offer."""
    home = getattr(value, "__module__", "").split(".")[:2]
    full = ".".join(home)
    if unit == full or full not in UNITS or not (inspect.isclass(value) or callable(value)):
        return None
    return full if name in dict(read_public(full)) else None


def read_public(unit: str) -> list[tuple[str, object]]:
    """Read the public names of a unit and their values, in alphabetical order."""
    module = import_module(unit)
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == unit
    ]
    return [(name, getattr(module, name)) for name in sorted(names, key=str.lower)]


def _describe(name: str, value: object) -> str:
    real = getattr(value, "__name__", name)
    if inspect.isclass(value) and real != name:
        return f"another spelling of `{real}`"
    if inspect.isclass(value) or inspect.isroutine(value):
        return _escape(_summarize(value))
    if isinstance(value, dict | str):
        return f"a `{type(value).__name__}`"
    return "a type"


def _document(name: str, value: object) -> str:
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return _describe(name, value).capitalize() + "."
    if getattr(value, "__name__", name) != name:
        return f"{_describe(name, value).capitalize()}."
    text = inspect.getdoc(value) or ""
    asynchronous = "Async. " if inspect.iscoroutinefunction(value) else ""
    return asynchronous + text


def _parse(value: object) -> ast.stmt:
    """Parse the source of a function or class, where types are written as readers know them."""
    source = inspect.getsource(inspect.unwrap(value))  # type: ignore[arg-type]  # has a source
    return ast.parse(textwrap.dedent(source)).body[0]


def _tabulate_parameters(function: ast.stmt) -> str:
    assert isinstance(function, Function)
    rows = [
        f"| `{name}` | {_code(kind)} | {_code(default) if default else 'required'} |\n"
        for name, kind, default in _list_parameters(function)
    ]
    table = f"| parameter | type | default |\n|---|---|---|\n{''.join(rows)}" if rows else ""
    returns = (
        "" if function.returns is None else f"Returns {_code(_unparse_type(function.returns))}."
    )
    return "\n".join(part for part in (table, returns) if part) + "\n"


def _list_parameters(function: Function) -> Iterator[tuple[str, str, str | None]]:
    """Yield name, type and default of each parameter. Keyword-only ones come after `*`."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults))
    for argument, default in zip(positional, [*missing, *given.defaults], strict=True):
        if argument.arg not in ("self", "cls"):
            yield argument.arg, _unparse_type(argument.annotation), _unparse(default) or None
    if given.vararg:
        yield f"*{given.vararg.arg}", _unparse_type(given.vararg.annotation), "none"
    elif given.kwonlyargs:
        yield "*", "", "by keyword from here"
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield argument.arg, _unparse_type(argument.annotation), _unparse(default) or None
    if given.kwarg:
        yield f"**{given.kwarg.arg}", _unparse_type(given.kwarg.annotation), "none"


def _tabulate_class(value: type) -> Iterator[str]:
    fields, methods, constructor = _read_class(value)
    if fields:
        rows = "".join(
            f"| `{name}` | {_code(kind)} | {_code(default) if default else 'required'} "
            f"| {_escape(text)} |\n"
            for name, (kind, default, text) in fields.items()
        )
        yield f"| field | type | default | meaning |\n|---|---|---|---|\n{rows}"
    elif constructor is not None and any(_list_parameters(constructor)):
        constructor.returns = None
        yield _tabulate_parameters(constructor)
    if methods:
        rows = "".join(f"| {shown} | {text} |\n" for shown, text in methods.values())
        yield f"| method | what it does |\n|---|---|\n{rows}"


Field = tuple[str, str | None, str]


def _read_class(
    value: type,
) -> tuple[dict[str, Field], dict[str, tuple[str, str]], Function | None]:
    """Read fields, methods and constructor of a class and of its bases in assay."""
    fields: dict[str, Field] = {}
    methods: dict[str, tuple[str, str]] = {}
    constructor = None
    for base in reversed(value.__mro__):
        if not base.__module__.startswith("assay"):
            continue
        parsed = _parse(base)
        assert isinstance(parsed, ast.ClassDef)
        for node, after in zip(parsed.body, [*parsed.body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign | ast.Assign):
                fields.update(_read_field(node, after))
            elif isinstance(node, Function) and node.name == "__init__":
                constructor = node
            elif isinstance(node, Function) and not node.name.startswith("_"):
                methods.update(_read_method(node))
    return fields, methods, constructor


def _read_field(node: ast.AnnAssign | ast.Assign, after: ast.stmt | None) -> dict[str, Field]:
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    kind = _unparse_type(node.annotation) if isinstance(node, ast.AnnAssign) else ""
    name = _unparse(target)
    if name.startswith("_") or name == "model_config" or "ClassVar" in kind:
        return {}
    text = ""
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
        text = " ".join(inspect.cleandoc(str(after.value.value)).split())
    return {name: (kind, _read_default(node.value), text)}


def _read_default(value: ast.expr | None) -> str | None:
    """Return a default as text; for `Field(...)` and `field(...)`, the one that they name."""
    if not isinstance(value, ast.Call) or _unparse(value.func).lower() != "field":
        # The default of a descriptor is an instance of its private class.
        return re.sub(r"^_\w+\(\)$", "None", _unparse(value)) or None
    given = {each.arg: each.value for each in value.keywords}
    if "default_factory" in given:
        factory = _unparse(given["default_factory"])
        return {"list": "[]", "dict": "{}", "tuple": "()"}.get(factory, f"{factory}()")
    default = value.args[0] if value.args else given.get("default")
    return _unparse(default) or None


def _read_method(node: Function) -> dict[str, tuple[str, str]]:
    decorators = [_unparse(each) for each in node.decorator_list]
    if any("validator" in each or "serializer" in each or ".setter" in each for each in decorators):
        return {}
    text = (ast.get_docstring(node) or "").split("\n\n")[0]
    shown = node.name
    if not any("property" in each for each in decorators):
        shown += f"({', '.join(_shorten_parameters(node))})"
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    returns = f" -> {_unparse_type(node.returns)}" if node.returns is not None else ""
    return {node.name: (_code(prefix + shown + returns), _escape(" ".join(text.split())))}


def _shorten_parameters(node: Function) -> Iterator[str]:
    for name, _, default in _list_parameters(node):
        with_default = default is not None and not name.startswith("*")
        yield f"{name}={default}" if with_default else name


def _unparse(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node)


def _unparse_type(node: ast.expr | None) -> str:
    # Quoted where the name is defined later. Private ones are descriptors that take many types.
    quoted = isinstance(node, ast.Constant) and isinstance(node.value, str)
    text = str(node.value) if isinstance(node, ast.Constant) and quoted else _unparse(node)
    return re.sub(r"^_\w+$", "object", text)


def _code(text: str) -> str:
    # A stroke ends the cell of a table, in code as well.
    return f"`{_escape(text)}`" if text and text != "none" and "by keyword" not in text else text


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def _anchor(name: str) -> str:
    return name.lower()


def _summarize(value: object) -> str:
    text = inspect.getdoc(value) or ""
    return re.sub(r"\s+", " ", text.split("\n\n")[0]).strip()


if __name__ == "__main__":
    (DOCS / "api").mkdir(exist_ok=True)
    for path, text in build_pages().items():
        (DOCS / path).write_text(text, encoding="utf-8")
