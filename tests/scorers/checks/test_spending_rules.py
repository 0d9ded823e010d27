"""Limits on turns, tokens and cost. What is unknown is not judged, never 0."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.types import ModelCall, Sample, Usage
from check_files import judged, session, verdict

KNOWN = Usage(input_tokens=90, output_tokens=10, cost_usd=0.5)


def spending(*usages: Usage | None) -> Sample:
    given = session()
    assert given.trajectory is not None
    given.trajectory.calls = [ModelCall(usage=usage) for usage in usages]
    return given


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ({"max_turns": 4}, True),
        ({"max_turns": 3}, False),
        ({"max_tokens": 200}, True),
        ({"max_tokens": 199}, False),
        ({"max_cost": 1}, True),
        ({"max_cost": 0.99}, False),
    ],
)
def test_a_limit_says_yes_and_no(check: dict[str, Any], expected: bool) -> None:
    assert verdict(check, spending(KNOWN, KNOWN)) is expected


@pytest.mark.parametrize("unknown", [None, Usage(), Usage(input_tokens=1)])
@pytest.mark.parametrize("check", [{"max_tokens": 1000}, {"max_cost": 1000}])
def test_unknown_spending_is_not_judged(check: dict[str, Any], unknown: Usage | None) -> None:
    metric = judged(check, spending(KNOWN, unknown))

    assert (metric.score, metric.is_score_valid) == (None, False)
    assert "the usage is unknown for 1 of 2 model calls" in str(metric.reason)


@pytest.mark.parametrize(("most", "expected"), [(0.3, True), (0.29, False)])
def test_a_known_total_is_judged_though_no_call_knows_its_cost(most: float, expected: bool) -> None:
    given = spending(Usage(input_tokens=1))
    assert given.trajectory is not None
    given.trajectory.cost_usd = 0.3

    assert verdict({"max_cost": most}, given) is expected
    assert verdict({"max_cost": most, "scope": "main"}, given) is None


def test_rounded_sums_of_costs_stay_within_a_limit_that_they_reach() -> None:
    calls = [Usage(input_tokens=1_000_000, output_tokens=1, cost_usd=0.1)] * 3
    assert sum(each.cost_usd or 0.0 for each in calls) > 0.3

    assert verdict({"max_cost": 0.3}, spending(*calls)) is True
    assert verdict({"max_cost": 0.2999}, spending(*calls)) is False
    assert judged({"max_tokens": 3_000_002}, spending(*calls)).reason == (
        "3000003 tokens in 3 model calls, at most 3000002 tokens allowed"
    )


@pytest.mark.parametrize("check", [{"max_tokens": 0}, {"max_cost": 0}])
def test_without_a_recorded_call_nothing_is_known(check: dict[str, Any]) -> None:
    assert verdict(check, session()) is None
    assert verdict(check, Sample(prompt="q")) is None


def test_what_is_known_can_be_too_much_already() -> None:
    metric = judged({"max_tokens": 99}, spending(KNOWN, None))

    assert metric.score == 0.0
    assert metric.reason == "100 tokens in 1 model call, at most 99 tokens allowed"


@pytest.mark.parametrize(
    "check", [{"max_turns": 0}, {"max_tokens": 1.5}, {"max_cost": -1}, {"max_cost": "1"}]
)
def test_a_wrong_limit_is_refused(check: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        judged(check)
