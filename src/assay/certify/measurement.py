"""One sample measured: the agent asked and timed, then every criterion graded."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from assay.agents import Agent, AgentAnswer, AgentFault, RolloutFailed
from assay.errors import AccessDenied, ScorerFault
from assay.providers import ActiveTimer, reported_models
from assay.scorers import ScoreCaller
from assay.store import KeptRollout
from assay.types import EvaluateResult, Metric, Sample, Trajectory, describe_error, redact

from .graders import Grader

MEASUREMENT_KEY = "certification"
"""Under which a recorded sample holds what was measured."""

LATENCY_METRIC = "latency_ms"
_MAX_MEASURED_REASON = 500


class Measurement(BaseModel):
    """What is known of one call of the agent. Kept with the sample, whole or not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: FiniteFloat | None = Field(default=None, ge=0)
    """Of the agent's call; None when it failed."""

    agent_error: str | None = None
    data_sha256: str | None = None
    """Of the data files that the code named when the agent was called."""

    cached: bool = False
    """Whether the answer came from a cache: it has no time then."""

    scores: dict[str, FiniteFloat] = Field(default_factory=dict)
    reasons: dict[str, str] = Field(default_factory=dict)
    problems: dict[str, str] = Field(default_factory=dict)
    """Why a criterion could not be scored."""

    agent_models: tuple[str, ...] = ()
    judge_models: tuple[str, ...] = ()
    judge_calls: int = 0
    judge_cost_usd: FiniteFloat | None = 0.0
    """None when one of the calls does not know."""


def read_measurement(recorded: Sample | KeptRollout) -> Measurement | None:
    """What a recorded sample holds; None when it was not measured."""
    try:
        return Measurement.model_validate(recorded.metadata.get(MEASUREMENT_KEY))
    except ValidationError:
        return None


@dataclass
class JudgeUsage:
    """What the judges of one sample did, while it is being graded."""

    models: set[str] = field(default_factory=set)
    calls: int = 0
    cost_usd: float | None = 0.0

    def add(self, result: EvaluateResult) -> None:
        """Count what a judge's result says that it cost."""
        told = (result.model_extra or {}).get("judgement")
        spent = told.get("spending") if isinstance(told, Mapping) else None
        if not isinstance(spent, Mapping):
            return
        self.calls += int(spent.get("calls", 0))
        cost = spent.get("cost_usd")
        if self.cost_usd is not None:
            self.cost_usd = self.cost_usd + cost if isinstance(cost, int | float) else None


class AgentScorer:
    """The scorer of a certification's run: it asks the agent, then grades what it said.

    A failure of the agent is a result, the worst there is. A criterion that cannot be graded
    fails the sample: resumed, the run grades the answer that was given, and asks for no other.
    """

    def __init__(
        self,
        agent: Agent,
        graders: Sequence[Grader],
        *,
        slots: int,
        timeout_s: float,
        name: str,
        data_sha256: str | None = None,
    ) -> None:
        self.seed_of: Callable[[Sample, int], int | None] = lambda sample, repeat: None
        self.find_kept: Callable[[Sample], KeptRollout | None] = lambda sample: None
        """Finds the answer that an earlier try could not grade."""

        self._name = name
        self._data_sha256 = data_sha256
        self._agent = agent
        self._graders = graders
        self._callers = {grader.criterion.name: ScoreCaller(grader.score) for grader in graders}
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(slots)
        self._answered = False

    def scorer(self) -> Callable[[Sample], Awaitable[EvaluateResult]]:
        """This as an async function, which is awaited at once and in no thread."""

        async def measure(sample: Sample) -> EvaluateResult:
            return await self(sample)

        # Runs are told apart by the name of their scorer.
        measure.__qualname__ = self._name
        return measure

    def close(self) -> None:
        """Let the threads of plain metrics end."""
        for caller in self._callers.values():
            caller.close()

    async def warm_up(self, sample: Sample) -> str | None:
        """Ask the agent without counting it; why that failed, or None."""
        return (await self._ask_agent(sample, 0))[1]

    async def __call__(self, sample: Sample) -> EvaluateResult:
        """Measure one sample, and note it there. Raises `ScorerFault` when it is not whole."""
        kept = self.find_kept(sample)
        known = None if kept is None else read_measurement(kept)
        if kept is not None and known is not None:
            sample.trajectory = kept.trajectory
            measured = await self._grade_missing(sample, known, ask_models=False)
        else:
            async with self._slots:
                # Metrics are code of this process: run beside a call, they would slow it down.
                answered = await self._call_agent(sample)
                measured = await self._grade_missing(sample, answered, ask_models=False)
        # Already here: a judge that refuses the key must not cost the agent's answer.
        _store_measurement(sample, measured)
        measured = await self._grade_missing(sample, measured, ask_models=True)
        _store_measurement(sample, measured)
        if measured.problems:
            raise ScorerFault("; ".join(f"{n}: {why}" for n, why in measured.problems.items()))
        return self._build_result(measured)

    async def _call_agent(self, sample: Sample) -> Measurement:
        answered, problem = await self._ask_agent(sample, parse_repeat(sample))
        if answered is None:
            if sample.trajectory is None:
                sample.trajectory = Trajectory(
                    messages=list(sample.messages), termination_reason="error"
                )
            worst = {
                grader.criterion.name: grader.criterion.worst
                for grader in self._graders
                if grader.criterion.worst is not None
            }
            return Measurement(agent_error=problem, scores=worst, data_sha256=self._data_sha256)
        self._answered = True
        sample.trajectory = answered.trajectory
        calls = answered.trajectory.calls
        return Measurement(
            seconds=answered.seconds,
            data_sha256=self._data_sha256,
            cached=any((call.model_extra or {}).get("cached") is True for call in calls),
            agent_models=tuple(sorted({call.model for call in calls if call.model})),
        )

    async def _ask_agent(
        self, sample: Sample, repeat: int
    ) -> tuple[AgentAnswer | None, str | None]:
        """The agent's answer, or why there is none."""
        # A dataset of finished samples: what happened then is not shown, and does not count.
        sample.trajectory = sample.score = None
        try:
            with ActiveTimer() as own:
                # Known to the turn loop: a model agent keeps its conversation until then.
                async with own.limit_time(self._timeout_s, name="timeout_s") as timer:
                    answer = self._agent.answer(sample, seed=self.seed_of(sample, repeat))
                    return await answer, None
        except (Exception, SystemExit) as error:
            cause = error
            if isinstance(error, RolloutFailed):
                sample.trajectory = error.trajectory
                cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            if isinstance(cause, AccessDenied) and not self._answered:
                # Nothing was ever answered: this says nothing about the agent.
                sample.trajectory = None
                raise cause from None
            if isinstance(cause, TimeoutError) and timer.expired():
                return None, f"no answer within {self._timeout_s:g} s"
            said = redact(cause.message) if isinstance(cause, AgentFault) else describe_error(cause)
            return None, said[:_MAX_MEASURED_REASON]

    async def _grade_missing(
        self, sample: Sample, measured: Measurement, *, ask_models: bool
    ) -> Measurement:
        """With the scores that were still missing. What could not be graded is a problem."""
        todo = [
            grader
            for grader in self._graders
            if grader.asks_model is ask_models and grader.criterion.name not in measured.scores
        ]
        if not todo:
            return measured
        call = JudgeUsage(set(measured.judge_models), measured.judge_calls, measured.judge_cost_usd)
        reported_models.set(call.models)
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
        """A score and its reason, or None and why there is none."""
        try:
            result = await self._callers[grader.criterion.name](sample)
        except AccessDenied:
            raise  # a refused key: nobody else would be judged either
        except (Exception, SystemExit) as error:
            return None, describe_error(error)[:_MAX_MEASURED_REASON]
        call.add(result)
        score = result.reward
        if score is None:
            return None, (result.error or result.reason or "no score was given")[
                :_MAX_MEASURED_REASON
            ]
        low, high = grader.criterion.range or (score, score)
        if not low <= score <= high:
            return None, f"gave {score:g}, which is not within {low:g} to {high:g}"
        return score, (result.reason or "")[:_MAX_MEASURED_REASON]

    def _build_result(self, measured: Measurement) -> EvaluateResult:
        """What is shown of the sample: each criterion, and how good they are on average."""
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


def parse_repeat(sample: Sample) -> int:
    """Which repeat of a sample this is."""
    number = (sample.rollout_id or "").removeprefix(f"{sample.id}#")
    return int(number) if number.isdecimal() else 0
