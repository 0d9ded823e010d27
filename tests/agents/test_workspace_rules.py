"""Files of rows: what a program runs because it is there is refused, source files are not."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay.agents.workspace import check_workspace_row, prepare_workspace, write_row_files
from assay.errors import DatasetError
from assay.types import Sample

GIT_NAMES = [
    ".git/config",
    ".git",
    "sub/.git",
    "sub/.GIT/hooks/post-checkout",
    ".git./config",
    ".git /config",
    ".git . /config",
    ".g\u200cit/config",
    "\ufeff.GiT/config",
    ".git::$INDEX_ALLOCATION/config",
    "git~1/config",
]


def sample(**row: Any) -> Sample:
    return Sample(id="s", prompt="?", input=row)


def build_program(mark: Path) -> str:
    return f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch {mark}\n"


@pytest.mark.parametrize("field", ["files", "check_files"])
@pytest.mark.parametrize("name", GIT_NAMES)
def test_a_file_of_a_row_in_a_git_folder_is_refused_in_every_spelling(
    name: str, field: str, tmp_path: Path
) -> None:
    row = sample(**{field: {name: "x"}})

    with pytest.raises(DatasetError, match="part of a Git repository"):
        check_workspace_row(row, dataset_folder=None)
    with pytest.raises(DatasetError, match="part of a Git repository"):
        write_row_files(row, field, tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", [".Claude /x", ".c\u200dodex/config.toml", "OpenCode.json."])
def test_settings_of_agents_are_refused_in_every_spelling(name: str) -> None:
    with pytest.raises(DatasetError, match="settings of a coding agent"):
        check_workspace_row(sample(files={name: "{}"}), dataset_folder=None)


@pytest.mark.parametrize("folder", ["", "tests/fixture/"])
@pytest.mark.parametrize("parts", [["commondir"], ["objects/a", "refs/a"], ["Objects/a", "REFS"]])
def test_a_repository_without_a_git_folder_is_refused(
    parts: list[str], folder: str, tmp_path: Path
) -> None:
    head = {f"{folder}HEAD": "ref: refs/heads/main"}
    more = {f"{folder}{name}": "" for name in parts}

    with pytest.raises(DatasetError, match="is a Git repository, which can run commands"):
        check_workspace_row(sample(files=head | more), dataset_folder=None)

    # In two parts, of which neither is a repository.
    task = tmp_path / "data" / "task" / folder
    task.mkdir(parents=True)
    (task / "HEAD").write_text("ref: refs/heads/main")
    row = sample(workspace="task", files=more)
    with pytest.raises(DatasetError, match="is a Git repository, which can run commands"):
        check_workspace_row(row, dataset_folder=tmp_path / "data")
    with pytest.raises(DatasetError, match="is a Git repository, which can run commands"):
        prepare_workspace(
            row, tmp_path / "workspace", folder=None, dataset_folder=tmp_path / "data"
        )


def test_git_takes_the_refused_folders_for_repositories(tmp_path: Path) -> None:
    mark, bare = tmp_path / "ran", tmp_path / "bare"
    for name in ("objects", "refs"):
        (bare / name).mkdir(parents=True)
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    (bare / "config").write_text(build_program(mark) + "\tbare = false\n\tworktree = .\n")

    subprocess.run(["git", "status"], cwd=bare, check=True, capture_output=True)

    assert mark.exists()


def test_git_runs_nothing_of_a_row_whose_repository_refers_to_another_folder(
    tmp_path: Path,
) -> None:
    task, mark = tmp_path / "data" / "task", tmp_path / "ran"
    task.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", task], check=True)
    (task / ".git" / "HEAD").rename(task / "HEAD")
    for name in ("config", "objects", "refs"):
        (task / ".git" / name).rename(task / name)
    (task / "config").write_text(build_program(mark))
    (task / "HEAD").rename(task / ".git" / "HEAD")
    (task / ".git" / "commondir").write_text("..")
    status = ["git", "status"]
    subprocess.run(status, cwd=task, check=True, capture_output=True)
    assert mark.exists()  # the files of the row are dangerous where they are
    mark.unlink()

    workspace = tmp_path / "workspace"
    row = sample(workspace="task")
    check_workspace_row(row, dataset_folder=tmp_path / "data")
    prepare_workspace(row, workspace, folder=None, dataset_folder=tmp_path / "data")
    subprocess.run(status, cwd=workspace, check=False, capture_output=True)

    assert not mark.exists()


def test_source_files_of_a_task_are_written_and_git_runs_none_of_them(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    files = {
        ".gitignore": "*.log",
        ".gitattributes": "* filter=evil diff=evil merge=evil",
        ".gitmodules": f'[submodule "a"]\n\tpath = a\n\turl = /a\n\tupdate = !touch {mark}\n',
        ".github/workflows/ci.yml": "on: push",
        ".gitconfig": f"[core]\n\tfsmonitor = touch {mark}",
        ".pre-commit-config.yaml": "repos: []",
        "src/head": "text",
        "config/settings.py": "DEBUG = True",
        "src/hooks/use_cart.ts": "export {}",
        "HEAD": "text",
        "docs/git/config": "text",
    }
    workspace = tmp_path / "workspace"

    row = sample(files=files)
    check_workspace_row(row, dataset_folder=None)
    prepare_workspace(row, workspace, folder=None, dataset_folder=None)
    for words in (["init", "-q"], ["add", "-A"], ["status"], ["diff", "--cached"]):
        subprocess.run(["git", *words], cwd=workspace, check=True, capture_output=True)

    assert (workspace / "src" / "hooks" / "use_cart.ts").exists()
    assert not mark.exists()


def test_branches_of_a_row_s_repository_may_have_any_name(tmp_path: Path) -> None:
    task, workspace = tmp_path / "data" / "task", tmp_path / "workspace"
    remote = task / ".git" / "refs" / "remotes" / "origin"
    subprocess.run(["git", "init", "-q", task], check=True)
    remote.mkdir(parents=True)
    for name in ("HEAD", "config", "hooks"):
        (remote / name).write_text("ref: refs/heads/main\n")

    prepare_workspace(
        sample(workspace="task"), workspace, folder=None, dataset_folder=tmp_path / "data"
    )

    assert (workspace / ".git" / "refs" / "remotes" / "origin" / "hooks").exists()
    assert not (workspace / ".git" / "config").exists()
