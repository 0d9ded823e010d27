"""The result of a certification in words: values, bars, evidence, and what is not certain."""

import math
from pathlib import Path

import pytest

from assay.certify.criterion_decisions import Timings, compute_latency_figures, decide_latency
from assay.cli.certify_format import (
    format_certification,
    format_criterion_annotations,
    write_github_summary,
)
from bars import certification, latency_bar, outcome


def test_each_criterion_is_shown_with_its_interval_and_outcome() -> None:
    lines = format_certification(
        certification(outcome(), outcome(right=3, name="polite", strict=False))
    )

    assert (
        "exact_answer           1.000      >= 0.9       0.884..1.000       passed, proven" in lines
    )
    assert "  polite: mean 0.100 is below 0.900; refuted" in lines
    assert "verdict       WARNED" in lines
    assert "cost          agent unknown, judge none" in lines


def test_what_could_not_be_measured_is_an_error_with_its_reason() -> None:
    lines = format_certification(certification(outcome(unscored=2)))

    assert any(line.startswith("exact_answer") and line.endswith(" error") for line in lines)
    assert "  exact_answer: 2 of 32 samples could not be scored" in lines


def test_times_without_end_are_never() -> None:
    timings = Timings([[0.001]] * 30 + [[math.inf]] * 30)
    late = decide_latency(latency_bar(), timings, agent_errors=30)

    lines = format_certification(
        certification(late, latency=compute_latency_figures(timings, "p95"))
    )

    assert "latency       p50 1.0, p95 never, max never ms at concurrency 1, 30 failed" in lines
    assert any("never      <= 1000" in line for line in lines)


def test_a_run_with_deviations_is_not_certifiable() -> None:
    lines = format_certification(
        certification(
            deviations=["only 3 samples"],
            warnings=[{"code": "self_judge", "text": "it judges itself"}],
            judge={"asked": "mock:fixed", "returned": ["fixed"], "calls": 3},
        )
    )

    assert "not certifiable: only 3 samples" in lines
    assert "note: it judges itself" in lines
    assert "judge         mock:fixed, answered by fixed" in lines


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
