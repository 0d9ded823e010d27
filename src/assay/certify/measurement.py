"""Measurement of one sample: the time of the agent, and a grade for every criterion."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from assay.agents import Agent, AgentFault, RolloutFailed, RunContext
from assay.errors import AccessDenied, ScorerFault
from assay.providers import LIMIT_SHARE, ActiveTimer
from assay.scorers import ScoreCaller
from assay.store import KeptRollout
from assay.types import EvaluateResult, Message, Metric, Sample, Trajectory, describe_error

from .graders import Grader

MEASUREMENT_KEY = "certification"
"""The metadata key of a recorded measurement."""

LATENCY_METRIC = "latency_ms"
_MAX_MEASURED_REASON = 500
_TIMEOUT = "timeout_s"


class Measurement(BaseModel):
    """The measurement of one call of the agent, stored with the sample even if incomplete."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: FiniteFloat | None = Field(default=None, ge=0)
    """Duration of the call; None when it failed."""

    agent_error: str | None = None
    data_sha256: str | None = None
    """Digest of the code's data files when the agent was called."""

    cached: bool = False
    """Whether the answer came from a cache, which has no response time."""

    scores: dict[str, FiniteFloat] = Field(default_factory=dict)
    reasons: dict[str, str] = Field(default_factory=dict)
    problems: dict[str, str] = Field(default_factory=dict)
    """Why a criterion could not be scored."""

    agent_models: tuple[str, ...] = ()
    judge_models: tuple[str, ...] = ()
    judge_calls: int = 0
    judge_cost_usd: FiniteFloat | None = 0.0
    """None when the cost of a call is unknown."""


def read_measurement(recorded: Sample | KeptRollout) -> Measurement | None:
    """Read the measurement of a recorded sample; None without one."""
    try:
        return Measurement.model_validate(recorded.metadata.get(MEASUREMENT_KEY))
    except ValidationError:
        return None


@dataclass
class JudgeUsage:
    """The judge calls of one sample."""

    models: set[str] = field(default_factory=set)
    calls: int = 0
    cost_usd: float | None = 0.0

    def add(self, result: EvaluateResult, *, by_judge: bool) -> None:
        """Add the calls and cost that a result reports, and the models of the judge's own."""
        judgement = (result.model_extra or {}).get("judgement")
        spent = judgement.get("spending") if isinstance(judgement, Mapping) else None
        if not isinstance(spent, Mapping):
            return
        if by_judge:  # a metric could report any name
            self.models.update(spent["models"])
        self.calls += int(spent.get("calls", 0))
        cost = spent.get("cost_usd")
        if self.cost_usd is not None:
            self.cost_usd = self.cost_usd + cost if isinstance(cost, int | float) else None


class CallSlots(asyncio.Semaphore):
    """Limits the concurrent calls of the agent. Another process of the run has its share."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self.total = total

    def __reduce__(self) -> tuple[Any, ...]:
        return (_take_slots, (self.total,))


def _take_slots(total: int) -> CallSlots:
    return CallSlots(LIMIT_SHARE.take(total))


class SlottedAgent:
    """Limits the concurrent calls of an agent, and the time of each."""

    def __init__(self, agent: Agent, slots: CallSlots, timeout_s: float) -> None:
        self.name, self.identity = agent.name, agent.identity
        # A run has at most so many workers.
        self.max_workers = slots.total
        self._agent = agent
        self._slots = slots
        self._timeout_s = timeout_s

    async def run(self, sample: Sample, context: RunContext) -> Trajectory:
        """Call the agent once there is a free slot. Raises `AgentFault` after the timeout."""
        late = AgentFault(f"no answer within {self._timeout_s:g} s")
        async with self._slots:
            try:
                with ActiveTimer() as own:
                    # The turn loop knows this timer, and keeps the conversation up to the timeout.
                    async with own.limit_time(self._timeout_s, name=_TIMEOUT) as timer:
                        return await self._agent.run(sample, context)
            except TimeoutError as error:
                if not timer.expired():
                    raise
                raise late from error
            except RolloutFailed as failed:
                if failed.trajectory.termination_reason != _TIMEOUT:
                    raise
                raise failed from late


class CriteriaScorer:
    """The scorer of a certification's run: grades the answer of the agent by every criterion.

    A failure of the agent gives the worst scores. A criterion that cannot be graded fails the
    sample: a resumed run grades the recorded answer and does not call the agent again.
    """

    def __init__(
        self,
        graders: Sequence[Grader],
        *,
        slots: CallSlots,
        name: str,
        data_sha256: str | None = None,
    ) -> None:
        self._name = name
        self._data_sha256 = data_sha256
        self._graders = graders
        self._callers = {grader.criterion.name: ScoreCaller(grader.score) for grader in graders}
        self._slots = slots

    def scorer(self) -> Callable[[Sample], Awaitable[EvaluateResult]]:
        """Return this scorer as an async function, which needs no thread."""

        async def measure(sample: Sample) -> EvaluateResult:
            return await self(sample)

        # The fingerprint of a run contains the name of its scorer.
        measure.__qualname__ = self._name
        return measure

    def close(self) -> None:
        """End the threads of synchronous metrics."""
        for caller in self._callers.values():
            caller.close()

    async def __call__(self, sample: Sample) -> EvaluateResult:
        """Measure one sample and store it there. Raises `ScorerFault` if a criterion is missing."""
        # A measurement exists already if an earlier process could not grade every criterion.
        measured = read_measurement(sample) or self._measure(sample)
        async with self._slots:
            # Metrics run in this process: beside a call of the agent, they would slow it down.
            measured = await self._grade_missing(sample, measured, ask_models=False)
        # Stored before judging: a judge that refuses the key must not lose the other scores.
        _store_measurement(sample, measured)
        measured = await self._grade_missing(sample, measured, ask_models=True)
        _store_measurement(sample, measured)
        if measured.problems:
            raise ScorerFault("; ".join(f"{n}: {why}" for n, why in measured.problems.items()))
        return self._build_result(measured)

    def _measure(self, sample: Sample) -> Measurement:
        trajectory, failure = sample.trajectory, sample.failure
        if failure is not None:
            worst = {
                grader.criterion.name: grader.criterion.worst
                for grader in self._graders
                if grader.criterion.worst is not None
            }
            text = failure.message
            if failure.kind != AgentFault.__name__:
                text = f"{failure.kind}: {text}"
            return Measurement(
                agent_error=text[:_MAX_MEASURED_REASON],
                scores=worst,
                data_sha256=self._data_sha256,
            )
        assert trajectory is not None  # the runner gives every sample one, or a failure
        calls = trajectory.calls
        waited_s = sum(call.retry_wait_s or 0.0 for call in calls)
        return Measurement(
            seconds=max((trajectory.duration or 0.0) - waited_s, 0.0),
            data_sha256=self._data_sha256,
            cached=any((call.model_extra or {}).get("cached") is True for call in calls),
            agent_models=tuple(sorted({call.model for call in calls if call.model})),
        )

    async def _grade_missing(
        self, sample: Sample, measured: Measurement, *, ask_models: bool
    ) -> Measurement:
        """Add the missing scores. A criterion that cannot be graded is added to `problems`."""
        todo = [
            grader
            for grader in self._graders
            if grader.asks_model is ask_models and grader.criterion.name not in measured.scores
        ]
        if not todo:
            return measured
        call = JudgeUsage(set(measured.judge_models), measured.judge_calls, measured.judge_cost_usd)
        grades = await asyncio.gather(
            *(self._grade_criterion(grader, sample, call) for grader in todo)
        )
        scores, reasons = dict(measured.scores), dict(measured.reasons)
        problems = dict(measured.problems)
        for grader, (score, reason) in zip(todo, grades, strict=True):
            problems.pop(grader.criterion.name, None)
            if score is None:
                problems[grader.criterion.name] = reason
            else:
                scores[grader.criterion.name] = score
                reasons[grader.criterion.name] = reason
        return measured.model_copy(
            update={
                "scores": scores,
                "reasons": reasons,
                "problems": problems,
                "judge_models": tuple(sorted(call.models)),
                "judge_calls": call.calls,
                "judge_cost_usd": call.cost_usd,
            }
        )

    async def _grade_criterion(
        self, grader: Grader, sample: Sample, call: JudgeUsage
    ) -> tuple[float | None, str]:
        """Return a score and its reason, or None and the problem."""
        try:
            result = await self._callers[grader.criterion.name](sample)
        except AccessDenied:
            raise  # the runner stops paying for the agent: every other call would fail as well
        except (Exception, SystemExit) as error:
            return None, describe_error(error)[:_MAX_MEASURED_REASON]
        call.add(result, by_judge=grader.asks_model)
        score = result.reward
        if score is None:
            return None, (result.error or result.reason or "the scorer returned no score")[
                :_MAX_MEASURED_REASON
            ]
        low, high = grader.criterion.range or (score, score)
        if not low <= score <= high:
            return None, f"the score {score:g} is not within {low:g} to {high:g}"
        return score, (result.reason or "")[:_MAX_MEASURED_REASON]

    def _build_result(self, measured: Measurement) -> EvaluateResult:
        """Build the result of the sample: each criterion, and their normalised mean."""
        good = [
            share
            for grader in self._graders
            if (share := grader.criterion.normalize_score(measured.scores[grader.criterion.name]))
            is not None
        ]
        metrics = [
            Metric(name, score, reason=measured.reasons.get(name))
            for name, score in measured.scores.items()
        ]
        if measured.seconds is not None and LATENCY_METRIC not in measured.scores:
            metrics.append(Metric(LATENCY_METRIC, 1000 * measured.seconds))
        answered = float(measured.agent_error is None)
        return EvaluateResult(
            score=sum(good) / len(good) if good else answered,
            metrics=metrics,
            reason="the agent answered"
            if answered
            else f"the agent failed: {measured.agent_error}",
            error=measured.agent_error,
        )


def _store_measurement(sample: Sample, measured: Measurement) -> None:
    sample.metadata[MEASUREMENT_KEY] = measured.model_dump(mode="json", exclude_defaults=True)


def prepare_golden(sample: Sample) -> list[Message]:
    """Return the prompt of a golden sample, which may be a finished one."""
    # A measurement in a dataset was not made by this run, and must not be taken for one.
    sample.metadata.pop(MEASUREMENT_KEY, None)
    sample.trajectory = sample.score = None
    return sample.messages
