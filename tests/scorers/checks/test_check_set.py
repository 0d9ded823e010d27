"""Checks as a scorer: a metric each, one score, and a name of their own."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.runner import EvalConfig, evaluate
from assay.scorers import checks_from
from check_files import session, written

GOOD, BAD = {"tool_called": "read"}, {"tool_called": "bash"}
UNKNOWN = {"max_cost": 1}


def scored(*entries: dict[str, Any]) -> Any:
    return checks_from({"checks": list(entries)})(session())


def test_every_check_is_a_metric_with_a_reason() -> None:
    result = scored(GOOD, BAD)

    assert result.score == 0.5
    assert {name: metric.score for name, metric in result.metrics.items()} == {
        "tool_called read": 1.0,
        "tool_called bash": 0.0,
    }
    assert all(metric.reason for metric in result.metrics.values())
    assert result.reason == "1 of 2 checks passed; failed: tool_called bash"


def test_weights_are_shares_of_the_score() -> None:
    assert scored({**GOOD, "weight": 3}, BAD).score == 0.75
    assert scored(GOOD, {**BAD, "weight": 0}).score == 1.0


def test_what_was_not_judged_is_never_a_score() -> None:
    result = scored(GOOD, UNKNOWN)

    assert (result.score, result.is_score_valid, result.reward) == (None, False, None)
    assert result.reason == "1 of 2 checks passed; not judged: max_cost"
    assert scored(GOOD, {**UNKNOWN, "weight": 0}).score == 1.0


def test_a_file_and_a_mapping_say_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, "checks:\n  - tool_called: read\n  - tool_called: bash\n")

    assert checks_from(path)(session()) == checks_from(str(path))(session()) == scored(GOOD, BAD)


def test_checks_work_as_the_scorer_of_an_evaluation(tmp_path: Path) -> None:
    config = EvalConfig(score_fn=checks_from({"checks": [GOOD, BAD]}))

    report = asyncio.run(evaluate([session()], config, store=tmp_path / "a.db"))

    assert report.summary.results == 1
    assert report.summary.score.mean == 0.5


def test_other_checks_are_another_evaluation() -> None:
    def fingerprint(*entries: dict[str, Any]) -> str:
        return EvalConfig(score_fn=checks_from({"checks": list(entries)})).fingerprint()

    assert fingerprint(GOOD) == fingerprint(GOOD)
    assert fingerprint(GOOD) != fingerprint(BAD)


@pytest.mark.parametrize(
    "source",
    [
        5,
        ["max_tools"],
        {"checks": [{1: 2}]},
        {"checks": [{"equals": object()}]},
        {"checks": [{"equals": float("nan")}]},
        {"checks": [{"equals": [float("inf")]}]},
        {"checks": [{"equals": 10**5000}]},
    ],
)
def test_what_holds_no_checks_is_refused(source: Any) -> None:
    with pytest.raises(ConfigError, match=r"checks_from\(\)"):
        checks_from(source)
