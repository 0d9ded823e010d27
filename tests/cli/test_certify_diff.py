"""`assay certify diff`: what is told of changes, and which of them are refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.cli.certify_diff import format_manifest_changes
from certifying import RIGHT, agent, profile


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    written("old.yaml", profile())
    return tmp_path


def written(name: str, evaluation: dict[str, Any], **fields: Any) -> None:
    Path(name).write_text(json.dumps({"definitions": {"helper": agent(evaluation, **fields)}}))


def diff(*options: str) -> int:
    return main(["certify", "diff", "old.yaml", "new.yaml", *options])


def test_a_lower_bar_is_shown_and_refused_when_asked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written("new.yaml", profile({**RIGHT, "threshold": 0.8}))

    assert diff() == 0
    assert diff("--no-move") == 0
    assert diff("--no-weaken") == 1

    assert capsys.readouterr().out.startswith(
        "weakened      helper: evaluation.grading_rubric.exact_answer.threshold\n"
        "              old 0.9\n"
        "              new 0.8\n"
        "\n"
        "changes       1 weakened\n"
    )


def test_another_dataset_is_refused_only_when_moves_are(folder: Path) -> None:
    written("new.yaml", profile(golden_dataset_uri="new.jsonl"))

    assert diff("--no-weaken") == 0
    assert diff("--no-weaken", "--no-move") == 1


def test_a_higher_bar_is_never_refused(folder: Path) -> None:
    written("new.yaml", profile({**RIGHT, "threshold": 0.99}, repeats=3), goal="More.")

    assert diff("--no-weaken", "--no-move") == 0


def test_json_says_what_the_text_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written("new.yaml", profile(repeats=2, golden_dataset_uri="new.jsonl"))

    assert diff("--json", "--agent", "helper", "--no-move") == 1

    told = json.loads(capsys.readouterr().out)
    assert told["exit_status"] == 1
    assert told["counts"] == {"weakened": 0, "moved": 1, "strengthened": 1, "other": 0}
    assert [each["path"] for each in told["changes"]] == [
        "evaluation.golden_dataset_uri",
        "evaluation.repeats",
    ]


def test_no_change_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written("new.yaml", profile())

    assert diff("--no-weaken", "--no-move") == 0
    assert capsys.readouterr().out == "nothing changed\n"
    assert format_manifest_changes(()) == ["nothing changed"]


def test_a_manifest_that_cannot_be_read_exits_2(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diff("--no-weaken") == 2
    assert "new.yaml" in capsys.readouterr().err


def test_what_a_manifest_says_does_not_act_on_the_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written("new.yaml", profile(), goal="\x1b[2J\u202e")

    assert diff() == 0

    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\u202e" not in printed
