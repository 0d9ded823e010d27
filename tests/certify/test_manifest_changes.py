"""Two manifests compared: every way to lower a bar is called weakened."""

from typing import Any

import pytest

from assay.certify.manifest_changes import ManifestChange, compare_manifests
from assay.errors import ConfigError
from assay.types.manifest import Manifest
from certifying import JUDGED, RIGHT, agent, profile

RATE = {"name": "empty_rate", "description": "Silence.", "threshold": 0.1}
PIN = "ab" * 32


def made(evaluation: dict[str, Any] | None, **fields: Any) -> Manifest:
    return Manifest.load({"definitions": {"helper": agent(evaluation, **fields)}})


def compared(old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[ManifestChange]:
    return list(compare_manifests(made(old), made(new)))


def classes(old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, str]:
    return {
        each.path.removeprefix("evaluation.").removeprefix("grading_rubric."): each.change
        for each in compared(old, new)
    }


def rubric(**fields: Any) -> dict[str, Any]:
    return profile({**RIGHT, **fields})


BOTH_WAYS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a lower threshold": (rubric(), rubric(threshold=0.8), "exact_answer.threshold"),
    "a higher threshold of what is to be low": (
        profile(RATE),
        profile({**RATE, "threshold": 0.2}),
        "empty_rate.threshold",
    ),
    "a declared direction": (
        rubric(name="x", direction="min", threshold=0.1),
        rubric(name="x", direction="min", threshold=0.2),
        "x.threshold",
    ),
    "no longer strict": (rubric(), rubric(strict=False), "exact_answer.strict"),
    "a criterion less": (profile(RIGHT, RATE), profile(RIGHT), "empty_rate"),
    "a longer time": (
        profile(expected_latency_ms=1000),
        profile(expected_latency_ms=2000),
        "expected_latency_ms",
    ),
    "no limit on times": (profile(expected_latency_ms=1000), profile(), "expected_latency_ms"),
    "a milder statistic": (
        profile(expected_latency_ms=1, latency_statistic="p99"),
        profile(expected_latency_ms=1, latency_statistic="p50"),
        "latency_statistic",
    ),
    "the mean of times": (
        profile(expected_latency_ms=1),
        profile(expected_latency_ms=1, latency_statistic="mean"),
        "latency_statistic",
    ),
    "no proof": (profile(gate="proven"), profile(), "gate"),
    "less confidence": (profile(), profile(confidence=0.9), "confidence"),
    "fewer repeats": (profile(repeats=3), profile(repeats=2), "repeats"),
    "no pin": (profile(golden_dataset_sha256=PIN), profile(), "golden_dataset_sha256"),
    "no dataset": (profile(), profile(golden_dataset_uri=None), "golden_dataset_uri"),
}


@pytest.mark.parametrize(("old", "new", "path"), BOTH_WAYS.values(), ids=BOTH_WAYS)
def test_what_asks_for_less_is_weakened_and_the_way_back_strengthened(
    old: dict[str, Any], new: dict[str, Any], path: str
) -> None:
    assert classes(old, new) == {path: "weakened"}
    assert classes(new, old) == {path: "strengthened"}


MOVED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another dataset": (profile(), profile(golden_dataset_uri="x.jsonl"), "golden_dataset_uri"),
    "another pin": (
        profile(golden_dataset_sha256=PIN),
        profile(golden_dataset_sha256="0" * 64),
        "golden_dataset_sha256",
    ),
    "another judge": (
        profile(evaluator_model="a"),
        profile(evaluator_model="b"),
        "evaluator_model",
    ),
    "another metric": (rubric(), rubric(metric="my:metric"), "exact_answer.metric"),
    "another scale": (rubric(), rubric(range=[0, 2]), "exact_answer.range"),
    "another question to the judge": (
        profile(JUDGED),
        profile({**JUDGED, "description": "It is nice."}),
        "polite.description",
    ),
}


@pytest.mark.parametrize(("old", "new", "path"), MOVED.values(), ids=MOVED)
def test_what_cannot_be_compared_has_moved(
    old: dict[str, Any], new: dict[str, Any], path: str
) -> None:
    assert classes(old, new) == {path: "moved"}
    assert classes(new, old) == {path: "moved"}


def test_nothing_changed_is_no_change() -> None:
    assert compared(rubric(), rubric()) == []
    assert compared(rubric(), rubric(strict=True)) == []


def test_old_and_new_values_are_told() -> None:
    (found,) = compared(rubric(), rubric(threshold=0.8))

    assert (found.agent, found.old, found.new) == ("helper", 0.9, 0.8)
    assert found.path == "evaluation.grading_rubric.exact_answer.threshold"


def test_a_criterion_with_another_name_is_one_gone_and_one_new() -> None:
    assert classes(rubric(), rubric(name="contains_answer")) == {
        "exact_answer": "weakened",
        "contains_answer": "strengthened",
    }


def test_another_direction_is_weakened() -> None:
    assert classes(rubric(), rubric(direction="min"))["exact_answer.direction"] == "weakened"


def test_a_direction_that_is_written_down_as_it_was_changes_nothing() -> None:
    assert classes(rubric(), rubric(direction="max")) == {"exact_answer.direction": "other"}


def test_a_lower_threshold_is_not_hidden_by_another_scale() -> None:
    found = classes(rubric(), rubric(range=[0, 1.5], threshold=0.1))

    assert found == {"exact_answer.threshold": "weakened", "exact_answer.range": "moved"}
    assert classes(rubric(), rubric(range=[0, 2], threshold=1.2)) == {
        "exact_answer.threshold": "moved",
        "exact_answer.range": "moved",
    }


@pytest.mark.parametrize(("old", "new"), [("p50", "mean"), ("mean", "p50")])
def test_statistics_that_have_no_order_count_as_weakened(old: str, new: str) -> None:
    before, after = (profile(expected_latency_ms=1, latency_statistic=each) for each in (old, new))

    assert classes(before, after) == {"latency_statistic": "weakened"}


def test_a_statistic_without_a_limit_decides_nothing() -> None:
    assert classes(profile(), profile(latency_statistic="p50")) == {"latency_statistic": "other"}


def test_the_description_of_a_metric_and_the_order_decide_nothing() -> None:
    assert classes(rubric(), rubric(description="Right.")) == {"exact_answer.description": "other"}
    (found,) = compared(profile(RIGHT, RATE), profile(RATE, RIGHT))
    assert (found.change, found.note) == ("other", "the order of the criteria")


def test_an_evaluation_that_is_gone_is_weakened() -> None:
    assert classes(profile(), None) == {"evaluation": "weakened"}
    assert classes(None, profile()) == {"evaluation": "strengthened"}


def test_an_agent_that_is_gone_is_weakened_if_anything_was_asked_of_it() -> None:
    both = Manifest.load({"definitions": {"a": agent(profile(), id="a"), "b": agent(None, id="b")}})
    only_a = Manifest.load({"definitions": {"a": agent(profile(), id="a")}})
    only_b = Manifest.load({"definitions": {"b": agent(None, id="b")}})

    assert [each.change for each in compare_manifests(both, only_b)] == ["weakened"]
    assert [each.change for each in compare_manifests(both, only_a)] == ["other"]
    assert [each.change for each in compare_manifests(only_b, both)] == ["other"]


def test_other_fields_are_told_too() -> None:
    old = made(profile())
    new = Manifest.load(
        {
            "kind": "Agent",
            "definitions": {
                "helper": agent(profile(), goal="Lie.", model="mock:fixed"),
                "hammer": {"type": "tool", "id": "hammer"},
            },
        }
    )

    found = {(each.agent, each.path): each.change for each in compare_manifests(old, new)}

    assert found == {
        ("helper", "goal"): "other",
        ("helper", "model"): "other",
        (None, "kind"): "other",
        (None, "definitions.hammer"): "other",
    }


def test_the_worst_is_told_first() -> None:
    found = compared(
        rubric(), profile({**RIGHT, "threshold": 0.8, "description": "New."}, RATE, repeats=2)
    )

    assert [each.change for each in found] == ["weakened", "strengthened", "strengthened", "other"]


def test_one_agent_can_be_asked_for() -> None:
    old = Manifest.load({"definitions": {name: agent(profile(), id=name) for name in ("a", "b")}})
    new = Manifest.load(
        {"definitions": {name: agent(profile(repeats=2), id=name) for name in ("a", "b")}}
    )

    assert [each.agent for each in compare_manifests(old, new, agent="b")] == ["b"]
    with pytest.raises(ConfigError, match="neither manifest has an agent 'c'"):
        compare_manifests(old, new, agent="c")


def test_two_criteria_of_one_name_cannot_be_compared() -> None:
    with pytest.raises(ConfigError, match="two criteria have the same name"):
        compared(profile(RIGHT), profile(RIGHT, {**RIGHT, "threshold": 0.1}))
