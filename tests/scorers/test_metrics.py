"""Metrics by name: what each measures, and what it leaves unjudged."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.scorers.metrics import METRICS, find_metric, require_metric
from make import asked, said, sample


def reward(name: str, response: str, truth: Any = None) -> float | None:
    return (
        require_metric(name, where="test")
        .scorer(sample(asked("?"), said(response), ground_truth=truth))
        .reward
    )


@pytest.mark.parametrize(
    ("name", "response", "truth", "expected"),
    [
        ("exact_answer", "The answer is 4.", "4", 1.0),
        ("contains_answer", "I think it is  Paris, France", "paris", 1.0),
        ("contains_answer", "Lyon", ["Paris", "lyon"], 1.0),
        ("contains_answer", "Rome", "Paris", 0.0),
        ("contains_answer", "It is 42 now", 42, 1.0),
        ("json_valid", '{"a": 1}', None, 1.0),
        ("json_valid", 'Sure: {"a": 1}', None, 0.0),
        ("json_valid", "NaN", None, 0.0),
        ("conciseness", "four", "four", 1.0),
        ("conciseness", "it is four", "four", 1 / 3),
        ("conciseness", "", "four", 0.0),
        ("empty_rate", "something", None, 0.0),
        ("empty_rate", " \n", None, 1.0),
    ],
)
def test_a_metric_measures_what_it_says(
    name: str, response: str, truth: Any, expected: float
) -> None:
    assert reward(name, response, truth) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "truth"),
    [
        ("contains_answer", None),
        ("contains_answer", ""),
        ("contains_answer", True),
        ("contains_answer", {"a": 1}),
        ("conciseness", ["four", None]),
        ("exact_answer", None),
    ],
)
def test_without_a_ground_truth_to_compare_with_nothing_is_judged(name: str, truth: Any) -> None:
    assert reward(name, "four", truth) is None


@pytest.mark.parametrize("name", METRICS)
def test_without_an_answer_nothing_is_judged(name: str) -> None:
    silent = sample(asked("?"), ground_truth="4")

    assert METRICS[name].scorer(silent).reward is None


def test_deep_json_is_no_crash() -> None:
    assert reward("json_valid", "[" * 100_000) == 0.0


def test_directions_and_ranges_are_declared() -> None:
    assert METRICS["empty_rate"].direction == "min"
    assert {metric.range for metric in METRICS.values()} == {(0.0, 1.0)}
    assert all(name == metric.name for name, metric in METRICS.items())


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    assert find_metric("exact_anwser") is None
    with pytest.raises(ConfigError, match=r"no metric is named 'exact_anwser'[\s\S]*exact_answer"):
        require_metric("exact_anwser", where="agent.yaml")
