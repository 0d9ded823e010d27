"""Writes docs/reference.md from the docstrings of every public name.

python docs/make_reference.py
"""

import inspect
import re
from importlib import import_module
from pathlib import Path

PAGE = Path(__file__).with_name("reference.md")
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
    "assay.pytest_plugin",
    "assay.cli",
    "assay.compat",
    "assay.errors",
    "assay.registry",
)


def reference() -> str:
    """The whole page."""
    return "# Reference\n\nMade from the docstrings by `docs/make_reference.py`.\n" + "".join(
        _unit(name) for name in UNITS
    )


def _unit(name: str) -> str:
    module = import_module(name)
    lines = [f"\n## `{name}`\n\n{_summary(module)}\n\n| name | what it is |\n|---|---|\n"]
    for public in sorted(_public(name), key=str.lower):
        value = getattr(module, public)
        lines.append(f"| `{_shown(public, value)}` | {_described(public, value)} |\n")
    return "".join(lines)


def _public(name: str) -> list[str]:
    module = import_module(name)
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        public
        for public, value in vars(module).items()
        if not public.startswith("_") and getattr(value, "__module__", None) == name
    ]


def _described(public: str, value: object) -> str:
    real = getattr(value, "__name__", public)
    if inspect.isclass(value) and real != public:
        return f"another spelling of `{real}`"
    if inspect.isclass(value) or inspect.isroutine(value):
        return _summary(value).replace("|", "\\|")
    if isinstance(value, dict | str):
        return f"a `{type(value).__name__}`"
    return "a type"


def _shown(public: str, value: object) -> str:
    if not inspect.isfunction(value):
        return public
    names = []
    for parameter in inspect.signature(value).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in names:
            names.append("*")
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        default = "" if parameter.default is parameter.empty else "=…"
        names.append(f"{stars}{parameter.name}{default}")
    return f"{public}({', '.join(names)})"


def _summary(value: object) -> str:
    text = inspect.getdoc(value) or ""
    return re.sub(r"\s+", " ", text.split("\n\n")[0]).strip()


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
