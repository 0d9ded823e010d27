"""`assay certify plan`: a table of what would run and what it could prove."""

from pathlib import Path

import pytest

from assay.certify import report_plan
from assay.cli import main
from assay.cli.certify_plan import format_plan, format_threshold
from bars import latency_bar, score_bar
from certifying import JUDGED, RIGHT, judge, manifest, planned, profile


def test_a_plan_shows_each_criterion_with_the_samples_it_needs(tmp_path: Path) -> None:
    plan = planned(
        tmp_path,
        profile(
            RIGHT,
            {**JUDGED, "strict": False, "threshold": 1.0},
            evaluator_model="mock:script",
            expected_latency_ms=2000,
        ),
        judge=judge(1.0),
        max_samples=5,
    )

    lines = format_plan(report_plan(plan))

    assert "calls         5 of the agent, 1 more to warm up; 5 of the judge" in lines
    assert "cost          agent unknown, judge unknown" in lines
    assert [line for line in lines if "samples: too few" in line] == [
        "exact_answer       metric exact_answer      >= 0.9      29 samples: too few",
        "latency_p95_ms     clock p95                <= 2000     59 samples: too few",
    ]
    assert "polite             judge mock:script        >= 1 ?      not provable" in lines
    assert "not certifiable: only 5 samples of the dataset were run" in lines
    assert max(map(len, lines)) <= 100


def test_nothing_is_called_and_nothing_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = manifest(tmp_path, profile(), model="vllm:nobody-is-there")

    assert main(["certify", "plan", path.name]) == 0

    assert "own model vllm:nobody-is-there" in capsys.readouterr().out
    assert not (tmp_path / ".assay").exists()


def test_a_bar_says_which_way_is_good_and_whether_it_only_warns() -> None:
    assert format_threshold(score_bar(threshold=0.9)) == ">= 0.9"
    assert format_threshold(latency_bar(2000, strict=False)) == "<= 2000 ?"
