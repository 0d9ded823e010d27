"""What a plan says: what can be proven, and what is known of its cost."""

from pathlib import Path

import pytest

from assay.certify import PlanReport, report_plan
from assay.types import Endpoint
from certifying import JUDGED, RIGHT, golden, judge, planned, profile


def test_a_plan_says_how_many_samples_each_threshold_needs(tmp_path: Path) -> None:
    golden(tmp_path, rows=30)
    report = report_plan(
        planned(tmp_path, profile(RIGHT, {**RIGHT, "name": "json_valid", "threshold": 0.99}))
    )

    assert [(each.rows_needed, each.provable) for each in report.criteria] == [
        (29, True),
        (299, False),
    ]
    assert (report.agent_calls, report.judge_calls, report.judge) == (30, 0, None)
    assert PlanReport.model_validate_json(report.model_dump_json()) == report


def test_what_is_not_known_of_the_cost_is_unknown(tmp_path: Path) -> None:
    report = report_plan(
        planned(tmp_path, profile(JUDGED, evaluator_model="mock:script"), judge=judge(1.0))
    )

    assert (report.agent_usd_at_least, report.judge_usd_at_least) == (None, None)
    assert report_plan(planned(tmp_path)).judge_usd_at_least == 0.0


def test_known_prices_give_a_lower_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    endpoint = Endpoint(provider="openai", model="gpt-4o")

    report = report_plan(
        planned(
            tmp_path,
            profile(JUDGED, evaluator_model="gpt-4o"),
            runner=endpoint,
            judge=endpoint,
        )
    )

    assert report.agent_usd_at_least is not None
    assert report.judge_usd_at_least is not None
    assert 0 < report.agent_usd_at_least < report.judge_usd_at_least < 1
