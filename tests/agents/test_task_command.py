"""Commands in a workspace: rows fill arguments, and nothing else."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.agents.task_command import TaskCommand
from assay.errors import ConfigError, DatasetError


def fill(text: str, **row: Any) -> list[str]:
    return TaskCommand(text, where="check").fill(row, Path("/w"))


def test_fields_of_the_row_are_single_arguments() -> None:
    filled = fill("grep -q {word} a/{name}.txt --n={n} {workspace}", word="a; ls $X", name="b", n=3)

    assert filled == ["grep", "-q", "a; ls $X", "a/b.txt", "--n=3", "/w"]


@pytest.mark.parametrize(
    "row",
    [{}, {"word": None}, {"word": ["a"]}, {"word": True}, {"word": "-f"}, {"word": "a\0b"}],
)
def test_values_that_cannot_be_an_argument_are_refused(row: dict[str, Any]) -> None:
    with pytest.raises(DatasetError, match="field 'word' of the row"):
        fill("grep {word} file", **row)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the command is empty"),
        ("grep '", "cannot be parsed"),
        ("no-such-program-1 x", "'no-such-program-1' was not found"),
        ("{program} x", "a row cannot name the program"),
        ("sh -c 'pytest {tests}'", "would be read as code"),
        ("bash -lc 'pytest {tests}'", "would be read as code"),
        (f"{sys.executable} -c 'print({{tests}})'", "would be read as code"),
        ("node/x --eval '{tests}'", "would be read as code"),
    ],
)
def test_unsafe_and_impossible_commands_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"check: .*{problem}"):
        TaskCommand(text, where="check")


def test_a_shell_gets_fields_as_its_arguments(tmp_path: Path) -> None:
    command = TaskCommand("sh -c 'echo \"$1\" > out' check {text}", where="setup")

    asyncio.run(command.run({"text": "$(touch owned)"}, tmp_path))

    assert (tmp_path / "out").read_text() == "$(touch owned)\n"
    assert not (tmp_path / "owned").exists()


def test_the_secrets_of_the_user_are_not_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    monkeypatch.setenv("MY_SETTING", "kept")

    end = asyncio.run(TaskCommand("env", where="check").run({}, tmp_path))

    assert b"canary" not in end.stdout
    assert b"MY_SETTING=kept" in end.stdout
    assert f"ASSAY_WORKSPACE={tmp_path}".encode() in end.stdout
