"""The folder of a sample: copied and written, and never left."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay.agents import workspace as module
from assay.agents.workspace import (
    check_workspace_row,
    digest_folder,
    list_author_files,
    prepare_workspace,
    write_row_files,
)
from assay.errors import ConfigError, DatasetError
from assay.types import Sample


def sample(**row: Any) -> Sample:
    return Sample(id="s", prompt="?", input=row)


def prepare(parent: Path, row: Sample, **settings: Any) -> Path:
    workspace = parent / "workspace"
    given = {"folder": None, "dataset_folder": None, **settings}
    prepare_workspace(row, workspace, **given)
    return workspace


def list_tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_files_of_the_row_are_written_over_the_copies(tmp_path: Path) -> None:
    (tmp_path / "author").mkdir()
    (tmp_path / "author" / "a.txt").write_text("author")
    (tmp_path / "author" / "b.txt").write_text("author")
    (tmp_path / "data" / "task").mkdir(parents=True)
    (tmp_path / "data" / "task" / "b.txt").write_text("row's folder")
    row = sample(workspace="task", files={"sub/c.txt": "row's file"})

    workspace = prepare(tmp_path, row, folder=tmp_path / "author", dataset_folder=tmp_path / "data")

    assert list_tree(workspace) == {
        "a.txt": "author",
        "b.txt": "row's folder",
        "sub/c.txt": "row's file",
    }


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/../../x", "", " ", "a\0b", "..", ".", "a\\..\\b"]
)
def test_a_file_outside_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    row = sample(files={name: "text"})

    with pytest.raises(DatasetError, match="`files` of the row"):
        check_workspace_row(row, dataset_folder=None)
    with pytest.raises(DatasetError):
        prepare(tmp_path, row)


@pytest.mark.parametrize("files", ["text", ["a"], {"a": 1}, {"a": None}])
def test_other_kinds_of_files_are_refused(files: Any) -> None:
    with pytest.raises(DatasetError, match="not an object of file names and texts"):
        check_workspace_row(sample(check_files=files), dataset_folder=None)


@pytest.mark.parametrize("name", ["..", "../other", "/", ".", "link", "missing", "file", 7])
def test_a_folder_outside_or_missing_is_refused(name: object, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "other").mkdir()
    (data / "link").symlink_to(tmp_path / "other")
    (data / "file").write_text("")

    with pytest.raises(DatasetError, match="`workspace` of the row"):
        check_workspace_row(sample(workspace=name), dataset_folder=data)


def test_a_folder_needs_a_dataset_file() -> None:
    with pytest.raises(DatasetError, match="the dataset is not a file"):
        check_workspace_row(sample(workspace="task"), dataset_folder=None)


def test_a_link_out_of_a_copied_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data" / "task").mkdir(parents=True)
    (tmp_path / "secret").write_text("canary")
    (tmp_path / "data" / "task" / "link").symlink_to(tmp_path / "secret")

    with pytest.raises(DatasetError, match="the link 'link' leads outside"):
        prepare(tmp_path, sample(workspace="task"), dataset_folder=tmp_path / "data")


def test_a_folder_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_FILES", 1)
    for name in ("a", "b"):
        (tmp_path / name).write_text("")

    with pytest.raises(ConfigError, match="more than 1 files"):
        list_author_files(tmp_path)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    with pytest.raises(ConfigError, match="more than 1 files"):
        list_author_files(tmp_path)


def test_links_that_an_agent_left_are_replaced_and_not_followed(tmp_path: Path) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    workspace.mkdir()
    (outside / "test.py").write_text("mine")
    (workspace / "tests").symlink_to(outside)
    (workspace / "direct.py").symlink_to(outside / "test.py")
    (workspace / "folder.py").mkdir()
    row = sample(check_files=dict.fromkeys(["tests/test.py", "direct.py", "folder.py"], "check"))

    write_row_files(row, "check_files", workspace)

    assert (outside / "test.py").read_text() == "mine"
    assert set(list_tree(workspace).values()) == {"check"}


def test_ignored_files_of_a_repository_are_not_copied(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "a.log").write_text("")
    (tmp_path / "new.py").write_text("")

    assert sorted(list_author_files(tmp_path)) == [".gitignore", "new.py"]


def test_the_digest_follows_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = digest_folder(tmp_path)

    assert digest_folder(tmp_path) == before
    (tmp_path / "a").write_text("2")
    assert digest_folder(tmp_path) != before


SETTINGS = [
    ".claude/settings.json",
    "sub/.Claude/hooks.json",
    ".mcp.json",
    ".codex/config.toml",
    "opencode.json",
    "./opencode.jsonc",
    ".opencode/plugin/run.js",
    ".pi/extensions/run.ts",
]


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_agents_in_a_row_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="settings of a coding agent"):
        check_workspace_row(sample(files={name: "{}"}), dataset_folder=None)
    path = tmp_path / "data" / "task" / name
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(DatasetError, match="settings of a coding agent"):
        check_workspace_row(sample(workspace="task"), dataset_folder=tmp_path / "data")

    # The author of the evaluation decides about them, and a check is no agent.
    author = tmp_path / "data" / "task"
    workspace = prepare(tmp_path, sample(check_files={name: "{}"}), folder=author)
    assert (workspace / name).exists()


def test_an_absolute_link_of_the_author_leads_to_the_copy(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    (shop / "v1").mkdir(parents=True)
    (shop / "v1" / "cart.py").write_text("author")
    (shop / "absolute.py").symlink_to(shop / "v1" / "cart.py")
    (shop / "around.py").symlink_to("../shop/v1/cart.py")
    (shop / "current").symlink_to("v1")

    workspace = prepare(tmp_path, sample(), folder=shop)

    assert os.readlink(workspace / "current") == "v1"
    for name in ("absolute.py", "around.py", "current/cart.py"):
        (workspace / name).write_text("agent")
        assert (workspace / "v1" / "cart.py").read_text() == "agent"
        assert (shop / "v1" / "cart.py").read_text() == "author"


def test_a_row_replaces_files_links_and_folders_of_the_author(tmp_path: Path) -> None:
    author, task = tmp_path / "author", tmp_path / "data" / "task"
    for folder in (author / "folder", author / "kept", task):
        folder.mkdir(parents=True)
    (author / "folder" / "a").write_text("author")
    (author / "kept" / "b").write_text("author")
    (author / "link").symlink_to("kept/b")
    (author / "file").write_text("author")
    (task / "folder").write_text("row")
    (task / "link").write_text("row")
    (task / "file").symlink_to("link")

    row = sample(workspace="task")
    workspace = prepare(tmp_path, row, folder=author, dataset_folder=tmp_path / "data")

    assert list_tree(workspace) == {
        "folder": "row",
        "kept/b": "author",
        "link": "row",
        "file": "row",
    }


def test_special_files_and_repositories_inside_of_the_folder_have_a_digest(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    inner = shop / "inner"
    inner.mkdir(parents=True)
    os.mkfifo(shop / "pipe")
    (inner / "a.txt").write_text("1")
    without_git = digest_folder(shop)
    for folder in (inner, shop):
        subprocess.run(["git", "init", "-q", folder], check=True)

    assert list_author_files(shop) == ["inner/a.txt"]
    assert digest_folder(shop) == without_git
    (inner / "a.txt").write_text("2")
    assert digest_folder(shop) != without_git


def test_a_folder_that_git_refuses_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: missing")

    with pytest.raises(ConfigError, match="not a git repository"):
        list_author_files(tmp_path)


def test_a_folder_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)

    with pytest.raises(ConfigError, match="the folder cannot be read: Permission denied"):
        list_author_files(tmp_path)


def test_a_link_out_of_the_row_s_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "data" / "task").mkdir(parents=True)
    (tmp_path / "data" / "task" / "link").symlink_to(tmp_path)

    with pytest.raises(DatasetError, match="the link 'link' leads outside"):
        check_workspace_row(sample(workspace="task"), dataset_folder=tmp_path / "data")


def test_the_repository_of_a_row_is_copied_without_the_programs_it_runs(tmp_path: Path) -> None:
    task, ran = tmp_path / "data" / "task", tmp_path / "ran"
    task.mkdir(parents=True)
    (task / "a.txt").write_text("a")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=task, check=True)
    monitor = f"touch {ran}"
    subprocess.run([*git, "config", "core.fsmonitor", monitor], cwd=task, check=True)
    (task / ".git" / "hooks").mkdir(exist_ok=True)
    (task / ".git" / "hooks" / "post-checkout").write_text(f"#!/bin/sh\n{monitor}\n")

    workspace = prepare(tmp_path, sample(workspace="task"), dataset_folder=tmp_path / "data")
    log = subprocess.run(
        ["git", "log", "--format=%s"], cwd=workspace, check=True, capture_output=True
    )
    subprocess.run(["git", "status"], cwd=workspace, check=True, capture_output=True)

    assert log.stdout == b"first\n"
    assert not (workspace / ".git" / "hooks").exists()
    assert not ran.exists()
