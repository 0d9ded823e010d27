"""`assay init`: which files it writes, and which it leaves alone."""

import json
from pathlib import Path

import pytest

from assay.cli import main
from assay.cli.init import PROJECT_FILES


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def list_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def test_a_project_is_written_into_a_new_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "deep/my evals"]) == 0

    printed = capsys.readouterr().out
    assert list_files(folder / "deep/my evals") == set(PROJECT_FILES)
    assert "next:\n  cd 'deep/my evals'\n  assay eval evaluation.py\n" in printed


def test_the_current_folder_is_the_default(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert list_files(folder) == set(report["files"]) == set(PROJECT_FILES)
    assert report["next"][0] == "assay eval evaluation.py"


def test_files_that_exist_are_listed_and_left_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "agent.py").write_text("mine")
    (folder / "README.md").write_text("mine")

    assert main(["init"]) == 2

    assert ".: agent.py already exists\n  hint: " in capsys.readouterr().err
    assert list_files(folder) == {"agent.py", "README.md"}
    assert (folder / "agent.py").read_text() == "mine"


@pytest.mark.parametrize("options", [[], ["--force"]])
def test_a_project_is_added_to_a_folder_with_a_readme(
    options: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("README.md", ".gitignore", "notes.txt"):
        (folder / name).write_text("mine")

    assert main(["init", *options]) == 0

    assert "kept your README.md and .gitignore\n" in capsys.readouterr().out
    assert list_files(folder) == {*PROJECT_FILES, "notes.txt"}
    for name in ("README.md", ".gitignore"):
        assert (folder / name).read_text() == "mine"


def test_files_are_overwritten_on_demand_only(folder: Path) -> None:
    (folder / "agent.py").write_text("mine")
    (folder / "notes.txt").write_text("mine")

    assert main(["init", "--force"]) == 0

    assert (folder / "agent.py").read_text() == PROJECT_FILES["agent.py"]
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_folder_that_is_a_file_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "taken").write_text("mine")

    assert main(["init", "taken"]) == 2

    assert "taken cannot be made: File exists" in capsys.readouterr().err
