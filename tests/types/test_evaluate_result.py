"""Results: which number is the score, and when there is none."""

import math

import pytest
from pydantic import ValidationError

from assay.types import EvaluateResult, Metric, MetricResult, Score, StepOutput


def test_score_and_evaluate_result_are_one_class_and_so_are_metric_and_metric_result() -> None:
    assert Score is EvaluateResult
    assert MetricResult is Metric


def test_a_metric_is_built_by_position_or_by_either_spelling() -> None:
    by_position = Metric("correct", 1.0, weight=1.0)

    assert by_position == Metric(name="correct", score=1.0, weight=1.0)
    assert by_position == Metric(name="correct", value=1.0, weight=1.0)
    assert by_position.value == by_position.score == 1.0


def test_metrics_are_given_as_a_sequence_or_by_name() -> None:
    listed = Score(metrics=(Metric("accuracy", 0.5, reason="half"),))
    named = EvaluateResult(metrics={"accuracy": MetricResult(score=0.5, reason="half")})

    assert listed == named
    assert named.metrics["accuracy"].name == "accuracy"


@pytest.mark.parametrize(
    ("metrics", "score"),
    [
        ((Metric("a", 1.0, weight=1.0),), 1.0),
        ((Metric("a", 1.0, weight=3.0), Metric("b", 0.0, weight=1.0)), 0.75),
        ((Metric("a", 1.0, weight=2.0), Metric("length", 0.5, weight=-0.4)), 0.8),
        ((Metric("length", 0.5, weight=-0.4),), -0.2),
        ((Metric("a", 1.0), Metric("b", 0.0)), 0.5),
        ((Metric("a", 1.0, weight=1.0), Metric("tracked", 9.0)), 1.0),
        ((Metric("a", 1.0, weight=1.0), Metric("off", 9.0, weight=0.0)), 1.0),
        ((Metric("a", -7.5, weight=1.0),), -7.5),
    ],
)
def test_the_score_follows_from_the_metrics(metrics: tuple[Metric, ...], score: float) -> None:
    result = Score(metrics=metrics)

    assert result.score == pytest.approx(score)
    assert result.reward == result.score


def test_a_given_score_is_not_overruled_by_the_metrics() -> None:
    assert EvaluateResult(score=0.25, metrics={"a": Metric(score=1.0, weight=1.0)}).score == 0.25


def test_a_result_without_score_and_metrics_is_not_judged() -> None:
    result = EvaluateResult(error="the scorer crashed")

    assert not result.is_score_valid
    assert result.score is None
    assert result.reward is None


def test_an_invalid_score_gives_no_reward() -> None:
    assert EvaluateResult(score=0.0, is_score_valid=False).reward is None


def test_one_counting_metric_that_is_not_valid_leaves_the_whole_unjudged() -> None:
    result = Score(metrics=(Metric("format", 1.0, weight=0.1), Metric("correct", weight=0.9)))

    assert result.reward is None
    assert result.reason == "metric 'correct' is not valid"


def test_a_tracked_metric_that_is_not_valid_does_no_harm() -> None:
    assert Score(metrics=(Metric("correct", 1.0, weight=1.0), Metric("tone"))).reward == 1.0


def test_metrics_that_all_weigh_nothing_give_no_score() -> None:
    result = Score(metrics=(Metric("a", 1.0, weight=0.0),))

    assert result.reward is None
    assert result.reason == "no metric counts towards the score"


@pytest.mark.parametrize("weight", [None, 1e308])
def test_metrics_that_add_up_to_no_finite_number_give_no_score(weight: float | None) -> None:
    given = [Metric("a", 1e308, weight=weight), Metric("b", 1e308, weight=weight)]

    result = EvaluateResult(metrics=given)

    assert (result.score, result.is_score_valid, result.reward) == (None, False, None)
    assert result.reason == "the metrics add up to no finite number"
    assert EvaluateResult.from_json(result.to_json()) == result


def test_claiming_validity_without_a_score_is_refused() -> None:
    with pytest.raises(ValidationError, match="a result without a score cannot be valid"):
        EvaluateResult(is_score_valid=True)
    with pytest.raises(ValidationError, match="a metric without a score cannot be valid"):
        Metric("a", is_score_valid=True)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        EvaluateResult(score=value)
    with pytest.raises(ValidationError, match="finite"):
        Metric("a", value)
    with pytest.raises(ValidationError, match="finite"):
        StepOutput(step_index=0, base_reward=value)


def test_two_metrics_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match="two metrics are named 'a'"):
        Score(metrics=(Metric("a", 1.0), Metric("a", 0.0)))


def test_a_metric_under_a_foreign_name_is_refused() -> None:
    with pytest.raises(ValidationError, match="the metric under 'a' is named 'b'"):
        Score(metrics={"a": Metric("b", 1.0)})


def test_a_listed_metric_needs_a_name() -> None:
    with pytest.raises(ValidationError, match="a metric in a sequence needs a name"):
        Score(metrics=(Metric(score=1.0),))


def test_the_given_metrics_are_not_changed_by_taking_them_in() -> None:
    nameless = Metric(score=1.0)
    given = {"a": nameless}

    EvaluateResult(metrics=given)

    assert nameless.name is None
    assert given == {"a": nameless}


def test_a_result_is_written_compactly_and_read_back_equal() -> None:
    result = Score(metrics=(Metric("correct", 1.0, weight=1.0),), step_outputs=[])

    assert result.to_json() == (
        '{"score":1.0,"metrics":{"correct":{"name":"correct","score":1.0,"weight":1.0}},'
        '"step_outputs":[]}'
    )
    assert Score.from_json(result.to_json()) == result


def test_fields_of_other_tools_survive() -> None:
    written = (
        '{"score":1.0,"metrics":{"a":{"name":"a","score":1.0,"data":{"x":1}}},"agg_score":0.5}'
    )

    assert EvaluateResult.from_json(written).to_json() == written


def test_null_metrics_are_none_at_all() -> None:
    assert EvaluateResult.from_json('{"score":1.0,"metrics":null}').metrics == {}


@pytest.mark.parametrize("given", [{}, {"terminated": False}, {"terminated": True}])
def test_a_step_is_always_written_with_whether_it_terminated(given: dict[str, bool]) -> None:
    step = StepOutput(step_index=0, base_reward=0.5, **given)
    result = EvaluateResult(score=0.5, step_outputs=[step])

    terminated = given.get("terminated", False)
    assert step.terminated is terminated
    assert result.to_dict()["step_outputs"] == [
        {"step_index": 0, "base_reward": 0.5, "terminated": terminated}
    ]
    assert EvaluateResult.from_json(result.to_json()) == result
    assert StepOutput.model_validate({"step_index": 0, "base_reward": 0.5}).terminated is False
