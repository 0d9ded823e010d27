"""`vertex_judge`: Vertex's evaluation service as a judge. Samples are sent to Google Cloud."""

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from assay.errors import WireError
from assay.formats import to_vertex
from assay.types import EvaluateResult, Metric, Sample

from .async_closeable import AsyncCloseable
from .judge_cost import Spending
from .judge_scorer import JUDGEMENT
from .rubric import Criterion, Rubric
from .vertex_metrics import VertexMetric, parse_vertex_metrics
from .vertex_service import VertexAnswer, VertexService

# Threads that wait for the service are idle, so there may be more of them than cores.
_MAX_VERTEX_CALLS = 64


class VertexJudge(AsyncCloseable):
    """Scores samples with Vertex: an async scorer, and a context manager.

    Each requested metric is a metric of the result, and all have the same weight. A metric without
    a score leaves the sample unscored, never 0.
    """

    votes = 1

    def __init__(self, metrics: Sequence[VertexMetric], service: VertexService) -> None:
        # Reports and calibration expect a rubric of every judge; Vertex keeps its own text.
        self.rubric = Rubric(
            name=", ".join(each.name for each in metrics)[:100],
            description="Graded by Vertex's evaluation service by its own rubrics.",
            criteria=tuple(
                Criterion(name=each.name, description=f"Vertex's metric {each.spec}.")
                for each in metrics
            ),
        )
        self.spending = Spending()
        """Calls to the service, which does not report their cost."""

        self.judges = (service.name,)
        self._metrics = tuple(metrics)
        self._service = service
        self._threads = ThreadPoolExecutor(_MAX_VERTEX_CALLS, thread_name_prefix="vertex")
        asked = ", ".join(each.spec for each in metrics)
        self.__qualname__ = f"vertex_judge({asked}, {service.name})"

    def __repr__(self) -> str:
        return self.__qualname__

    async def __call__(self, sample: Sample) -> EvaluateResult:
        """Judge one sample.

        A sample that the service cannot judge is unscored, with the reason in `error`. Raises
        `EndpointError` when the call failed.
        """
        try:
            row = to_vertex(sample)
        except WireError as error:
            return EvaluateResult(error=error.message)
        fitting = [each for each in self._metrics if each.find_unfit_reason(row.value) is None]
        specs = [each.spec for each in fitting]
        self.spending.include(
            Spending(calls=len(specs), tokens_unknown=len(specs), cost_unknown=len(specs))
        )
        answers: dict[str, VertexAnswer] = {}
        if specs:
            # The SDK's client blocks. The pool is our own, since the default executor of the loop
            # has too few threads and serves other code too.
            answers = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._service.evaluate, row.value, specs
            )
        result = _build_vertex_result(self._metrics, row.value, answers)
        judgement = {
            "rubric": self.rubric.name,
            "digest": self.rubric.digest,
            "judges": list(self.judges),
            "votes": len(specs),
            "usable": len(specs),
            "problems": [],
            "no_place_in_row": len(row.dropped),
        }
        return result.model_copy(update={JUDGEMENT: judgement})

    async def close(self) -> None:
        """Stop the threads without waiting for calls in flight."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def vertex_judge(
    rubrics: str | Sequence[str],
    *,
    project: str,
    location: str = "us-central1",
    address: str | None = None,
) -> VertexJudge:
    """Return an async scorer that calls Vertex's evaluation service with the client of its SDK.

    `rubrics` names built-in rubrics or Vertex's own metrics. `address` replaces Google's public
    address. Raises `MissingExtra` without the SDK and `ConfigError` for invalid arguments. Uses
    the credentials that the SDK finds on this machine.
    """
    metrics = parse_vertex_metrics(rubrics)
    return VertexJudge(metrics, VertexService(project, location, address=address))


def _build_vertex_result(
    metrics: Sequence[VertexMetric], row: dict[str, Any], answers: dict[str, VertexAnswer]
) -> EvaluateResult:
    missing = VertexAnswer(problem="the service gave no answer")
    given: list[Metric] = []
    problems: list[str] = []
    for each in metrics:
        unfit = each.find_unfit_reason(row)
        if unfit is not None:
            given.append(Metric(name=each.name, weight=0.0, reason=unfit, vertex_metric=each.spec))
            continue
        answer = answers.get(each.spec, missing)
        given.append(_build_vertex_metric(each, answer))
        if given[-1].score is None:
            problems.append(f"{each.name}: {answer.problem or 'no score was given'}")
    reason = "; ".join(
        f"{each.name} {'not judged' if each.score is None else f'{each.score:.2f}'}"
        for each in given
    )
    fields: dict[str, Any] = {"metrics": given, "reason": reason}
    if problems:
        fields |= {"is_score_valid": False, "error": "; ".join(problems)}
    return EvaluateResult(**fields)


def _build_vertex_metric(asked: VertexMetric, answer: VertexAnswer) -> Metric:
    reason = answer.problem or answer.explanation or "the service gave no reason"
    if answer.verdicts and not (answer.problem or answer.explanation):
        missed = [each for each in answer.verdicts if not each.met]
        reason = f"{len(answer.verdicts) - len(missed)} of {len(answer.verdicts)} rubrics met"
        reason += f"; not met: {missed[0].rubric}: {missed[0].reason}" if missed else ""
    fields: dict[str, Any] = {
        "name": asked.name,
        "weight": 1.0,
        "reason": reason,
        "vertex_metric": asked.spec,
        "verdicts": [vars(verdict) for verdict in answer.verdicts],
    }
    if answer.problem is None and answer.score is not None and math.isfinite(answer.score):
        fields["score"] = answer.score
    return Metric(**fields)
