"""What GitHub is told of a certification: nothing elsewhere, and no command but ours."""

from pathlib import Path

import pytest

from assay.cli.github_summary import format_criterion_annotations, write_github_summary
from bars import certification, outcome

MISSED = certification(outcome(), outcome(3, name="wrong"), outcome(3, name="rude", strict=False))


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)


def test_outside_of_github_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    write_github_summary(MISSED, Path("agent.yaml"))

    assert capsys.readouterr() == ("", "")


def test_what_was_missed_is_annotated_beside_the_manifest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))

    write_github_summary(MISSED, tmp_path / "agents" / "agent.yaml")

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "::error file=agents/agent.yaml,title=helper%3A wrong::mean 0.100 is below 0.900; refuted",
        "::warning file=agents/agent.yaml,title=helper%3A rude::mean 0.100 is below 0.900; refuted",
    ]


def test_the_step_summary_is_added_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "step.md"
    page.write_text("earlier\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))

    write_github_summary(MISSED, Path("agent.yaml"))

    assert page.read_text("utf-8").startswith("earlier\n### Certification of helper\n")


def test_a_summary_that_cannot_be_written_does_not_lose_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))

    write_github_summary(MISSED, Path("agent.yaml"))

    assert "the step summary cannot be written" in capsys.readouterr().err


def test_a_command_cannot_be_smuggled_in() -> None:
    evil = "x,line=1::\r\n::add-mask::y%0A"
    result = certification(outcome(3, name=evil))

    (line,) = format_criterion_annotations(result, f"a{evil}")

    assert "\n" not in line
    assert "\r" not in line
    properties, _, text = line.removeprefix("::error ").partition("::")
    assert properties.count(",") == 1
    assert text == "mean 0.100 is below 0.900; refuted"
