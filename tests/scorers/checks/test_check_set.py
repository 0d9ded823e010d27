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


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("checks:\n  - a: 1\n    a: 3\n", "checks.yaml:3:5: checks[0]: the key 'a' is given twice"),
        (
            "checks:\n  - equals: no\n",
            "checks.yaml:2:13: checks[0].equals: 'no' is YAML's spelling",
        ),
        ("checks: [1\nb: 2\n", "checks.yaml:2:2: the file is not YAML"),
        ("", "checks.yaml: the file is empty"),
    ],
)
def test_a_check_file_is_read_by_the_guarded_reader(
    text: str, refused: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        checks_from(written(tmp_path, text))

    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(refused)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        checks_from(tmp_path / "none.yaml")


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, "checks:\n  - matches: (\n  - max_turns: 0\n  - max_tool: 1\n")

    with pytest.raises(ConfigError) as caught:
        checks_from(path)

    assert [line.split(": ")[1] for line in str(caught.value).splitlines() if ".yaml:" in line] == [
        "the file has 3 problems",
        "checks[0].matches",
        "checks[1].max_turns",
        "checks[2].max_tool",
    ]
