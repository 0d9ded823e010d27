"""Which files a row may put into a workspace: none that runs a command because it is there.

Rows are data. Source files, also of tests, run only when the agent or the check starts them.
"""

import re
import unicodedata
from collections.abc import Iterable
from pathlib import PurePosixPath

from assay.errors import DatasetError

# Settings that agents read from the folder they work in. They run commands (hooks, plug-ins, MCP
# servers) and lead calls and keys to other addresses, which no model has decided on.
_AGENT_SETTINGS = frozenset(
    {".claude", ".claude.json", ".mcp.json", ".codex", ".opencode", "opencode.json"}
    | {"opencode.jsonc", ".pi"}
)
_GIT = ".git"
_GIT_SHORT_NAME = re.compile(r"git~\d+")
# The history of a repository is data.
_GIT_DATA = frozenset(
    {"head", "orig_head", "fetch_head", "packed-refs", "index", "shallow", "description"}
    | {"objects", "refs", "logs"}
)
# What makes any folder a repository. `commondir` refers to the one with the other two.
_GIT_MARKS = frozenset({"head", "objects", "refs", "commondir"})


def check_row_files(names: Iterable[str], where: str, *, for_agent: bool) -> None:
    """Raise `DatasetError` for files of a row that are part of a repository, or settings.

    `for_agent`: the agent finds the files. Settings of agents mean nothing to a check.
    """
    names = list(names)
    for name in names:
        if for_agent:
            _check_settings(name, where)
        if _GIT in _fold_path(name):
            raise DatasetError(
                f"{name!r} is a part of a Git repository, which can run commands",
                where=where,
                hint="run `git init` in `setup`",
            )
    check_repositories(names, where)


def keep_in_row_folder(name: str, where: str) -> bool:
    """Whether a file of a row's folder is copied: of a repository its history only.

    Raises `DatasetError` for settings of agents.
    """
    _check_settings(name, where)
    parts = _fold_path(name)
    if _GIT not in parts:
        return True
    inside = parts[parts.index(_GIT) + 1 :]
    if _GIT in inside or inside[:2] == ("objects", "info"):
        return False  # it can refer to the objects of another repository
    return bool(inside) and inside[0] in _GIT_DATA


def check_repositories(names: Iterable[str], where: str) -> None:
    """Raise `DatasetError` for a folder that Git takes for a repository without being `.git`."""
    found: dict[tuple[str, ...], set[str]] = {}
    for name in names:
        parts = _fold_path(name)
        if _GIT in parts:
            continue  # its history, with branches of any name
        for depth, part in enumerate(parts):
            if part in _GIT_MARKS:
                found.setdefault(parts[:depth], set()).add(part)
    for folder, marks in found.items():
        if {"head", "commondir"} <= marks or {"head", "objects", "refs"} <= marks:
            raise DatasetError(
                f"the folder {'/'.join(folder) or '.'!r} is a Git repository, which can run "
                f"commands: it contains {', '.join(sorted(marks))}",
                where=where,
                hint="rename one of them, or create the repository in `setup`",
            )


def _check_settings(name: str, where: str) -> None:
    for part, folded in zip(PurePosixPath(name).parts, _fold_path(name), strict=True):
        if folded in _AGENT_SETTINGS:
            raise DatasetError(
                f"{name!r} would be read as settings of a coding agent, which can run commands",
                where=where,
                hint=f"rows cannot contain {part}; put it into the evaluation's `workspace` folder",
            )


def _fold_path(name: str) -> tuple[str, ...]:
    return tuple(_fold_name(part) for part in PurePosixPath(name).parts)


def _fold_name(part: str) -> str:
    """Return one spelling for all names by which some file system finds the same file."""
    # macOS ignores case and invisible characters; Windows also the end of a name.
    visible = "".join(each for each in part if unicodedata.category(each) != "Cf")
    folded = visible.casefold().partition(":")[0].rstrip(" .")
    return _GIT if _GIT_SHORT_NAME.fullmatch(folded) else folded
