"""Metrics by name: what each measures, and what it leaves unjudged."""

import asyncio
import math
import threading
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.scorers import CombinedScorer
from assay.scorers.metrics import METRICS, find_metric, require_metric
from assay.types import EvaluateResult, Sample
from make import asked, said, sample
from plugin_package import install_package


def reward(name: str, response: str, truth: Any = None) -> float | None:
    scorer: Any = require_metric(name, where="test").scorer
    result: EvaluateResult = scorer(sample(asked("?"), said(response), ground_truth=truth))
    return result.reward


@pytest.mark.parametrize(
    ("name", "response", "truth", "expected"),
    [
        ("exact_answer", "The answer is 4.", "4", 1.0),
        ("contains_answer", "I think it is  Paris, France", "paris", 1.0),
        ("contains_answer", "Lyon", ["Paris", "lyon"], 1.0),
        ("contains_answer", "Rome", "Paris", 0.0),
        ("contains_answer", "It is 42 now", 42, 1.0),
        ("contains_answer", "It is 42.", 42, 1.0),
        ("contains_answer", "42, or 142", "42", 1.0),
        ("contains_answer", "It is 142", 42, 0.0),
        ("contains_answer", "It is 1,424 or 42.5", 42, 0.0),
        ("contains_answer", "It is -42, or \u221242", 42, 0.0),
        ("contains_answer", "Route I-42 (-42)", 42, 1.0),
        ("contains_answer", "It is -42", "-42", 1.0),
        ("contains_answer", "<think>Paris?</think> Lyon", "Paris", 0.0),
        ("contains_answer", "cats", "cat", 1.0),
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
    scorer: Any = METRICS[name].scorer

    assert scorer(sample(asked("?"), ground_truth="4")).reward is None


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


PLUGINS = """
from assay.scorers import RegisteredMetric

def polite(sample):
    return float("please" in sample.response)

words = RegisteredMetric("words", lambda sample: 3.0, "words", direction="min", range=(0.0, 10.0))
number = 4
"""


@pytest.fixture
def _plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {f"scorers.{name}": f"acme_assay:{name}" for name in ("polite", "words", "number")}
    shadow = {"scorers.exact_answer": "acme_assay:number"}
    install_package(tmp_path, monkeypatch, {**entries, **shadow}, code=PLUGINS)


@pytest.mark.usefixtures("_plugins")
def test_a_plugin_is_a_function_or_a_metric_with_a_range() -> None:
    polite, words = find_metric("polite"), find_metric("words")

    assert polite is not None
    assert words is not None
    assert polite.scorer(sample(asked("?"), said("please"))) == 1.0
    assert (polite.about, polite.range) == ("a metric of acme-assay 1.0", (0.0, 1.0))
    assert (words.direction, words.range) == ("min", (0.0, 10.0))
    assert find_metric("exact_answer") is METRICS["exact_answer"]


@pytest.mark.usefixtures("_plugins")
def test_a_plugin_that_is_not_a_scorer_is_refused() -> None:
    with pytest.raises(ConfigError, match="the scorer is of type `int`, not a function"):
        find_metric("number")


@pytest.mark.usefixtures("_plugins")
def test_the_names_of_plugins_are_listed_where_one_is_unknown() -> None:
    with pytest.raises(ConfigError, match="no metric is named 'polit'") as refused:
        require_metric("polit", where="test")

    assert "empty_rate, polite, words, number; write" in str(refused.value.hint)


def test_a_list_of_scorers_takes_names_as_well() -> None:
    combined = CombinedScorer(["json_valid", (lambda sample: 0.0, 3.0), ("exact_answer", 1.0)])

    result = asyncio.run(combined(sample(asked("?"), said("4"), ground_truth="4")))

    assert result.metrics["json_valid"].score == 1.0
    assert result.metrics["exact_answer"].score == 1.0
    assert result.reward == 0.25
    with pytest.raises(ConfigError, match="no metric is named 'json'"):
        CombinedScorer(["json"])


def test_scorers_of_a_list_do_not_see_what_another_one_changes() -> None:
    together = threading.Barrier(2, timeout=180)

    def append(given: Sample) -> float:
        given.messages.append(said("42"))
        together.wait()
        given.ground_truth = "changed"
        return 1.0

    def read(given: Sample) -> float:
        together.wait()
        given.metadata["note"] = 1
        return float(given.response == "4")

    judged = sample(asked("?"), said("4"), ground_truth="4")
    combined = CombinedScorer([append, read, "exact_answer"])
    try:
        result = asyncio.run(combined(judged))
    finally:
        combined.close()

    assert {name: metric.score for name, metric in result.metrics.items()} == {
        "append": 1.0,
        "read": 1.0,
        "exact_answer": 1.0,
    }
    assert [message.text for message in judged.messages] == ["?", "4"]
    assert judged.metadata == {"note": 1}


@pytest.mark.parametrize("weight", [math.nan, math.inf, "2", [1]])
def test_a_weight_that_is_no_number_is_refused(weight: Any) -> None:
    with pytest.raises(ConfigError, match=r"the weight of 'exact_answer' is .*, not a finite"):
        CombinedScorer([("exact_answer", weight)])
    with pytest.raises(ConfigError, match=r"the weight of 'exact_answer' is .*, not a finite"):
        CombinedScorer([(METRICS["exact_answer"], weight)])


def test_a_list_in_which_nothing_counts_is_refused() -> None:
    with pytest.raises(ConfigError, match="all weights in the list of scorers are 0"):
        CombinedScorer([("exact_answer", 0), "json_valid"])
    assert CombinedScorer([("exact_answer", 0), ("json_valid", 1)]).direction == "max"


def test_a_list_has_one_direction() -> None:
    assert CombinedScorer(["exact_answer", "json_valid"]).direction == "max"
    assert CombinedScorer(["empty_rate"]).direction == "min"
    assert CombinedScorer([("exact_answer", 1.0), ("empty_rate", -0.5)]).direction == "max"
    with pytest.raises(ConfigError, match="low values of 'empty_rate' are good, but high values"):
        CombinedScorer(["exact_answer", "empty_rate"])


def test_a_metric_is_a_scorer() -> None:
    result = METRICS["empty_rate"](sample(asked("?"), said("")))

    assert isinstance(result, EvaluateResult)
    assert result.score == 1.0
