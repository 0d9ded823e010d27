"""The parts of reports, as words and as JSON."""

import math

import pytest
from pydantic import ValidationError

from assay.stats import Interval, Latency, RunningStats, Total
from assay.stats.report_sections import (
    build_distribution,
    format_distribution,
    format_interval,
    format_total,
)


def distribution_words(*scores: float) -> list[str]:
    stats = RunningStats()
    stats.extend(scores)
    return format_distribution(build_distribution(stats))


def test_an_interval_names_its_confidence() -> None:
    found = Interval(0.5, 0.25, 0.75, 10, 0.9, "beta")

    assert format_interval(found) == "0.500 [0.250, 0.750] 90 % confidence"
    assert format_interval(found, brief=True) == "0.500 [0.250, 0.750]"
    assert format_interval(found, brief=True, signed=True) == "+0.500 [+0.250, +0.750]"


def test_a_missing_interval_says_why() -> None:
    assert format_interval(Interval(5.0, None, None, 3, reason="few")) == "5.000, no interval: few"
    assert format_interval(Interval(None, None, None, 0, reason="empty")) == "none: empty"


def test_scores_on_the_unit_scale_are_shown_by_tenths() -> None:
    assert distribution_words(0.0, 1.0, 0.95) == ["distribution  0.0-0.1: 1, 0.9-1.0: 2"]


def test_scores_on_another_scale_are_shown_by_quartiles() -> None:
    assert distribution_words(1, 2, 3, 4) == [
        "distribution  1.000 to 4.000, quartiles 1.000, 2.000, 3.000"
    ]


def test_no_scores_have_no_distribution() -> None:
    assert distribution_words() == []


def test_a_total_is_unknown_when_a_part_is() -> None:
    assert format_total(Total(value=1.5, at_least=1.5, unknown=0), "$") == "$1.5000"
    assert format_total(Total(value=None, at_least=2, unknown=1)) == (
        "unknown (at least 2; 1 result unknown)"
    )
    assert format_total(Total(value=None, at_least=0, unknown=7)) == "unknown"


def test_infinite_latency_survives_json() -> None:
    slow = Latency(
        measured=1, cached=0, unknown=0, p50=1.0, p90=1.0, p95=1.0, p99=math.inf, exact=True
    )

    assert Latency.model_validate_json(slow.model_dump_json()) == slow


def test_figures_cannot_be_changed_or_extended() -> None:
    total = Total(value=1, at_least=1, unknown=0)

    with pytest.raises(ValidationError):
        total.value = 2  # type: ignore[misc]  # what is tested
    with pytest.raises(ValidationError):
        Total.model_validate({"value": 1, "at_least": 1, "unknown": 0, "extra": 1})
