"""Criteria settled: who grades them, which way is good, and what is refused before a call."""

import sys
from pathlib import Path
from typing import Any

import pytest

from assay.certify.graders import (
    CriteriaContext,
    Grader,
    compute_samples_needed,
    resolve_criteria,
    resolve_latency_criterion,
)
from assay.certify.judge_client import JudgeModel
from assay.errors import ConfigError
from assay.types.manifest import EvaluationProfile
from certifying import JUDGED, RIGHT, judge, profile
from make import asked, said, sample


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())


def criterion(**fields: Any) -> dict[str, Any]:
    return {"name": "mine", "description": "It is mine.", "threshold": 0.9, **fields}


def settled(
    root: Path, *rubric: dict[str, Any], judged: bool = True, **fields: Any
) -> tuple[Grader, ...]:
    made = JudgeModel(judge(1.0)) if judged else None
    given = EvaluationProfile.model_validate(profile(*rubric, **fields))
    return resolve_criteria(given, CriteriaContext(root, "agent.yaml: helper", lambda: made))


def test_a_registered_metric_comes_before_the_judge(tmp_path: Path) -> None:
    by_name, by_metric, by_judge, forced = settled(
        tmp_path,
        RIGHT,
        criterion(metric="conciseness"),
        JUDGED,
        criterion(name="json_valid", metric="judge"),
    )

    assert [each.criterion.graded_by.by for each in (by_name, by_metric)] == ["metric", "metric"]
    assert by_metric.criterion.graded_by.name == "conciseness"
    assert by_name.criterion.graded_by.sha256 is not None
    assert by_judge.criterion.graded_by.name == forced.criterion.graded_by.name == "mock:script"
    assert [each.asks_model for each in (by_name, by_judge, forced)] == [False, True, True]


def test_a_function_beside_the_manifest_is_a_metric(tmp_path: Path) -> None:
    (tmp_path / "graded_here.py").write_text("def score(sample): return len(sample.response)\n")

    (grader,) = settled(
        tmp_path, criterion(metric="graded_here:score", range=[0, 10], threshold=5, direction="min")
    )

    assert grader.score(sample(asked("?"), said("four"))) == 4
    assert (grader.criterion.range, grader.criterion.direction, grader.criterion.worst) == (
        (0, 10),
        "min",
        10,
    )


def test_a_check_file_or_one_of_its_checks_is_a_metric(tmp_path: Path) -> None:
    (tmp_path / "checks.yaml").write_text(
        "checks:\n  - {name: short, contains: 'four'}\n  - {name: loud, contains: '!'}\n"
    )
    every, one = settled(
        tmp_path,
        criterion(name="all", metric="check:checks.yaml"),
        criterion(name="one", metric="check:checks.yaml#loud"),
    )
    said_it = sample(asked("?"), said("four"))

    results: list[Any] = [grader.score(said_it) for grader in (every, one)]

    assert [result.reward for result in results] == [0.5, 0.0]
    assert every.criterion.graded_by.by == "check"


MISTAKES = {
    "unknown metric": (criterion(metric="exact_anwser"), "no metric is named 'exact_anwser'"),
    "no code": (criterion(metric="no_such_module:f"), "cannot be imported"),
    "bad code name": (
        criterion(metric="a b:c"),
        "neither the name of a metric nor module:function",
    ),
    "no check file": (
        criterion(metric="check:none.yaml"),
        "the check file 'none.yaml' does not exist",
    ),
    "check outside": (criterion(metric="check:../x.yaml"), "outside of the manifest's folder"),
    "90 of 100": (
        criterion(threshold=90),
        "the threshold 90 is outside of .*\n.*did you mean 0.9?",
    ),
    "below": (criterion(threshold=-1.5), "the threshold -1.5 is outside of"),
    "beyond its range": (
        criterion(metric="exact_answer", range=[1, 5], threshold=6),
        "the threshold 6 is outside of .*1 to 5",
    ),
    "judge's range": (
        criterion(range=[1, 5], threshold=4),
        "`range` must be \\[0, 1\\] for a judge",
    ),
    "vacuous": (criterion(threshold=0), "every agent reaches the threshold 0"),
    "vacuous, low": (
        criterion(threshold=1, direction="min"),
        "every agent reaches the threshold 1",
    ),
}


@pytest.mark.parametrize(("wrong", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_criterion_that_cannot_be_graded_is_refused(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        settled(tmp_path, wrong)

    assert str(caught.value).startswith("agent.yaml: helper: mine")


@pytest.mark.parametrize(
    "name",
    [
        "hallucination_rate",
        "error_rate",
        "hallucination-rate",
        "Error count",
        "refusals",
        "toxicity",
        "mean_latency",
        "cost_per_task",
        "edit_distance",
        "perplexity",
    ],
)
def test_a_name_that_sounds_bad_needs_a_direction(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="whether high or low values are good"):
        settled(tmp_path, criterion(name=name))

    (grader,) = settled(tmp_path, criterion(name=name, direction="min", threshold=0.02))
    assert grader.criterion.direction == "min"


def test_a_metric_whose_function_sounds_bad_needs_a_direction_too(tmp_path: Path) -> None:
    (tmp_path / "sounds_bad.py").write_text("def toxicity_rate(sample): return 0.0\n")
    given = criterion(name="kindness", metric="sounds_bad:toxicity_rate")

    with pytest.raises(ConfigError, match="whether high or low values are good"):
        settled(tmp_path, given)


@pytest.mark.parametrize(
    "name", ["factuality", "answer_relevance", "error_handling", "success_rate"]
)
def test_other_names_are_better_when_higher(tmp_path: Path, name: str) -> None:
    assert settled(tmp_path, criterion(name=name))[0].criterion.direction == "max"


def test_a_metric_knows_its_own_direction(tmp_path: Path) -> None:
    rate = criterion(name="empty_rate", threshold=0.1)
    (own,) = settled(tmp_path, rate)
    (given,) = settled(tmp_path, {**rate, "direction": "max"})

    assert (own.criterion.direction, given.criterion.direction) == ("min", "max")


def test_without_a_judge_all_criteria_that_need_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="no metric is named polite, kind, and `evaluator_model` is missing"
    ):
        settled(tmp_path, JUDGED, RIGHT, {**JUDGED, "name": "kind"}, judged=False)


def test_every_mistake_of_a_rubric_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        settled(tmp_path, criterion(threshold=90), criterion(name="other", metric="nope"))

    assert "mine: threshold" in str(caught.value)
    assert "'nope'" in str(caught.value)


def test_a_name_that_a_ci_runner_would_obey_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'::error::x' begins with two colons"):
        settled(tmp_path, {**RIGHT, "name": "::error::x", "metric": "exact_answer"})


def test_two_criteria_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two criteria are named 'exact_answer'"):
        settled(tmp_path, RIGHT, RIGHT)
    with pytest.raises(ConfigError, match="two criteria are named 'latency_p95_ms'"):
        settled(tmp_path, criterion(name="latency_p95_ms"), expected_latency_ms=5)


def test_what_no_sample_can_prove_is_refused_where_proof_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no number of samples can prove 1"):
        settled(tmp_path, criterion(threshold=1), gate="proven")
    assert settled(tmp_path, criterion(threshold=1))
    made = EvaluationProfile.model_validate(
        profile(expected_latency_ms=5, latency_statistic="max", gate="proven")
    )
    with pytest.raises(ConfigError, match="can prove a limit on the max"):
        resolve_latency_criterion(made, where="x")


def test_confidence_is_more_than_a_coin_toss(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a confidence of 0\.5 is not above 0\.5"):
        settled(tmp_path, RIGHT, confidence=0.5)


def test_a_limit_on_times_is_a_criterion_like_the_others(tmp_path: Path) -> None:
    made = EvaluationProfile.model_validate(profile(expected_latency_ms=2000))

    limit = resolve_latency_criterion(made, where="x")

    assert limit is not None
    assert (limit.name, limit.strict, limit.direction) == ("latency_p95_ms", True, "min")
    assert compute_samples_needed(limit) == 59
    unlimited = EvaluationProfile.model_validate(profile())
    assert resolve_latency_criterion(unlimited, where="x") is None


def test_a_mean_of_times_needs_no_number_of_rows(tmp_path: Path) -> None:
    made = EvaluationProfile.model_validate(
        profile(expected_latency_ms=5, latency_statistic="mean")
    )
    limit = resolve_latency_criterion(made, where="x")

    assert limit is not None
    assert compute_samples_needed(limit) is None
