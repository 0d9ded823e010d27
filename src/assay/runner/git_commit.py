"""The commit that is checked out here, read from git's files without starting git."""

import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REFERENCE = re.compile(r"refs/[A-Za-z0-9][\w./+@-]{0,200}")
# Far more than any of these files has, except for `packed-refs` of a huge repository.
_MAX_FILE_BYTES = 16_000_000


def read_git_commit(folder: Path) -> str | None:
    """Return the checked-out commit of the repository around a folder; None if there is none."""
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.is_dir():
            return _resolve_head(git)
        if git.is_file():
            # A worktree or a submodule: the file names the folder.
            where = _read_text(git).removeprefix("gitdir:").strip()
            return _resolve_head(place / where) if where else None
    return None


def _resolve_head(git: Path) -> str | None:
    head = _read_text(git / "HEAD").strip()
    if _COMMIT.fullmatch(head):
        return head
    name = head.removeprefix("ref:").strip()
    if not _REFERENCE.fullmatch(name) or ".." in name:
        return None
    # Worktrees share the branches of their repository.
    shared = git / (_read_text(git / "commondir").strip() or ".")
    for home in (git, shared):
        commit = _read_text(home / name).strip()
        if _COMMIT.fullmatch(commit):
            return commit
    for line in _read_text(shared / "packed-refs").splitlines():
        commit, _, packed = line.partition(" ")
        if packed.strip() == name and _COMMIT.fullmatch(commit):
            return commit
    return None


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
