"""`VertexJudge`: from what the service says to a result. Unscored is never 0."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from assay.errors import EndpointError
from assay.scorers.judges.vertex_metrics import parse_vertex_metrics
from assay.scorers.judges.vertex_scorer import VertexJudge
from assay.scorers.judges.vertex_service import RubricVerdict, VertexAnswer, VertexService
from assay.types import EvaluateResult, Sample
from make import asked, said, sample


class Answering:
    """A service that says the same to everything, or raises."""

    name = "vertex:nowhere"

    def __init__(self, *answers: VertexAnswer, error: Exception | None = None) -> None:
        self._answers = answers
        self._error = error
        self.asked: list[Sequence[str]] = []

    def evaluate(self, row: Mapping[str, Any], specs: Sequence[str]) -> dict[str, VertexAnswer]:
        self.asked.append(specs)
        if self._error is not None:
            raise self._error
        return dict(zip(specs, self._answers, strict=False))


def judged(
    names: str, service: Answering, given: Sample | None = None
) -> tuple[EvaluateResult, VertexJudge]:
    scorer = VertexJudge(parse_vertex_metrics(names), cast(VertexService, service))

    async def score() -> EvaluateResult:
        async with scorer:
            return await scorer(given or sample(asked("2+2?"), said("4")))

    return asyncio.run(score()), scorer


def test_each_metric_is_one_of_the_result_and_weighs_the_same() -> None:
    met, missed = (
        RubricVerdict("adds up", True, "it does"),
        RubricVerdict("is polite", False, "curt"),
    )
    service = Answering(VertexAnswer(1.0, "fine"), VertexAnswer(0.5, verdicts=(met, missed)))

    result, scorer = judged("task_success,general_quality", service)

    assert (result.score, result.reason) == (0.75, "task_success 1.00; general_quality 0.50")
    assert result.metrics["task_success"].reason == "fine"
    quality = result.metrics["general_quality"]
    assert quality.reason == "1 of 2 rubrics met; not met: is polite: curt"
    assert (quality.model_extra or {})["vertex_metric"] == "general_quality_v1"
    assert (quality.model_extra or {})["verdicts"][0] == vars(met)
    assert (scorer.spending.calls, scorer.spending.cost_usd) == (2, None)
    assert scorer.judges == ("vertex:nowhere",)


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ((VertexAnswer(None),), "safety: no score was given"),
        ((VertexAnswer(None, problem="Error in metric result: code 3"),), "safety: Error in"),
        ((VertexAnswer(0.9, problem="Error in metric result: code 3"),), "safety: Error in"),
        ((VertexAnswer(float("nan")),), "safety: no score was given"),
        ((), "safety: the service gave no answer"),
    ],
)
def test_a_metric_without_a_score_leaves_the_sample_not_judged(
    answers: tuple[VertexAnswer, ...], problem: str
) -> None:
    result, _ = judged("safety", Answering(*answers))

    assert result.reward is None
    assert result.metrics["safety"].score is None
    assert str(result.error).startswith(problem)


def test_what_a_metric_says_nothing_about_is_left_out_of_the_score() -> None:
    service = Answering(VertexAnswer(1.0))

    result, scorer = judged("tool_use_quality,safety", service)

    assert (result.reward, result.error) == (1.0, None)
    assert result.metrics["tool_use_quality"].reason == "no tool was called"
    assert service.asked == [["safety_v1"]]
    assert scorer.spending.calls == 1


def test_a_session_that_no_metric_fits_is_neither_judged_nor_a_problem() -> None:
    service = Answering()

    result, _ = judged("tool_use_quality", service)

    assert (result.reward, result.error, service.asked) == (None, None, [])


def test_a_session_without_an_answer_is_not_sent() -> None:
    service = Answering(VertexAnswer(1.0))

    result, _ = judged("safety", service, sample(asked("2+2?")))

    assert (result.reward, service.asked) == (None, [])
    assert "no answer to the last user message" in str(result.error)


def test_a_service_out_of_reach_is_an_error_to_try_again_after() -> None:
    with pytest.raises(EndpointError, match="down"):
        judged("safety", Answering(error=EndpointError("down")))


def test_runs_tell_judges_apart_by_metric_and_place() -> None:
    _, one = judged("safety", Answering(VertexAnswer(1.0)))
    _, other = judged("safety_v3", Answering(VertexAnswer(1.0)))

    assert repr(one) == "vertex_judge(safety_v1, vertex:nowhere)"
    assert one.__qualname__ != other.__qualname__
