"""Ready evaluations: files of `examples/evals` and of installed packages, found by name."""

import ast
import os
import re
from argparse import Namespace
from pathlib import Path

from assay.errors import ConfigError
from assay.registry import find_plugin, list_names, list_plugins

from .example_files import list_examples
from .output import print_report

_NAME = re.compile(r"[\w-]+")


def find_ready_eval(name: str) -> Path | None:
    """Return the file of the ready evaluation with this name.

    None if there is none, or if a file or folder of the current folder has the name: it comes
    first. Raises `ConfigError` for an unusable plug-in.
    """
    # A path is never the name of one; the entry points of packages take long to read.
    if os.path.exists(name) or not _NAME.fullmatch(name):
        return None
    return find_own_evals().get(name) or find_eval_plugin(name)


def build_unknown_eval_error(name: str) -> ConfigError:
    """Return the error for a target without a scorer that is not a ready evaluation."""
    ready = list_names("assay.evals", find_own_evals())
    if not os.path.exists(name) and _NAME.fullmatch(name):
        return ConfigError(
            f"no file, folder or ready evaluation is named {name!r}",
            where="assay eval",
            hint=f"the ready evaluations are {', '.join(ready)}; a dataset of a hub also needs "
            "--scorer",
        )
    hint = (
        "add --scorer exact_answer, your own function with --scorer FILE.py:function, or "
        "--check COMMAND for an agent that works in a folder"
    )
    if name in ready:
        hint += (
            f"; the file or folder {name} here comes before the ready evaluation of that name, "
            "which you get in another folder"
        )
    return ConfigError("no scorer is given for the dataset", where=name, hint=hint)


def print_ready_evals(args: Namespace) -> int:
    """Print each ready evaluation with the first line of its description."""
    own = find_own_evals()
    abouts = {name: _read_summary(path) for name, path in own.items()}
    for entry in list_plugins("assay.evals", own, find_eval_plugin)[len(own) :]:
        problem = "" if entry.error is None else f"; unusable: {entry.error}"
        abouts.setdefault(entry.name, f"registered by {entry.origin}{problem}")
    width = max(map(len, abouts), default=0)
    lines = [f"{name:{width}}  {about}" for name, about in abouts.items()]
    files = {name: str(path) for name, path in own.items()}
    plain = {name: {"about": about, "file": files.get(name)} for name, about in abouts.items()}
    print_report(args, [*lines, "", "next: assay eval NAME --agent openai:gpt-5"], plain)
    return 0


def find_own_evals() -> dict[str, Path]:
    """Return the files of the ready evaluations of assay, by name."""
    return {path.stem: path for path in list_examples("evals", "*.py")}


def find_eval_plugin(name: str) -> Path | None:
    """Return the file of the evaluation that a plug-in registers; None if there is none.

    Raises `ConfigError` for a plug-in that is something else.
    """
    plugin = find_plugin("assay.evals", name)
    if plugin is None:
        return None
    file = getattr(plugin.value, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        kind = type(plugin.value).__name__
        raise plugin.build_error(f"the evaluation is of type `{kind}`, not a module of Python")
    return Path(file)


def _read_summary(path: Path) -> str:
    # Parsed, not imported: a list must not run anything.
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return text.partition("\n")[0]
