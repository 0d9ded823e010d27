"""The checked-out commit, compared with git's own answer."""

import subprocess
from pathlib import Path

from assay.runner.git_commit import read_git_commit


def git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *settings, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return git(folder, "rev-parse", "HEAD")


def test_a_branch_is_resolved_from_any_folder_inside(tmp_path: Path) -> None:
    expected = commit(tmp_path / "repo")
    inner = tmp_path / "repo" / "a" / "b"
    inner.mkdir(parents=True)

    assert read_git_commit(inner) == expected


def test_packed_branches_detached_heads_and_worktrees(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    expected = commit(repo)
    git(repo, "pack-refs", "--all")
    packed = read_git_commit(repo)
    git(repo, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    in_tree = read_git_commit(tmp_path / "tree")
    git(repo, "checkout", "-q", "--detach")

    assert [packed, in_tree, read_git_commit(repo)] == [expected] * 3


def test_without_a_commit_it_is_unknown(tmp_path: Path) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")

    assert read_git_commit(folder) is None


def test_a_damaged_repository_is_unknown(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/../../secret\n")

    assert read_git_commit(tmp_path) is None
