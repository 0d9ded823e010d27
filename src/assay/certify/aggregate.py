"""Aggregation of a recorded run into the outcomes of its criteria."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from assay.runner import compute_sample_cost
from assay.stats import average
from assay.store import Run
from assay.types import Sample

from .certified import Cost
from .criteria import CriterionOutcome, ResolvedCriterion
from .criterion_decisions import Counts, Timings, decide_latency, decide_score
from .measurement import Measurement, read_measurement


@dataclass(frozen=True)
class RecordedAgentCall:
    """One recorded call of the agent."""

    sample_id: str
    measured: Measurement | None
    """None when the call was not measured."""

    cost_usd: float | None
    failure: str | None
    retried_requests: int | None = None
    """None when the agent does not report its requests."""


@dataclass
class RunAggregate:
    """The figures of a run that a result is made of."""

    repeats: int
    samples: int = 0
    agent_errors: int = 0
    why_failed: str | None = None
    """The error of the first failed call of the agent."""

    cached: int = 0
    same_as: Mapping[str, str] = field(default_factory=dict)
    """Ids of samples that repeat a question, and the first id with it: they count once."""

    seconds: list[list[float]] = field(default_factory=list)
    """Seconds of the calls, grouped by question."""

    scores: dict[str, list[float]] = field(default_factory=dict)
    """One score per question: repeats are averaged first, then the samples that repeat it."""

    unscored: dict[str, int] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    agent_models: set[str] = field(default_factory=set)
    judge_models: set[str] = field(default_factory=set)
    judge_calls: int = 0
    retried_requests: int | None = None
    """Of all calls that report their requests; None when none does."""

    data_seen: set[str | None] = field(default_factory=set)
    """Digests of the data files of the code; several if they changed before a resume."""

    cost: Cost = field(default_factory=lambda: Cost(agent_usd=0.0, judge_usd=0.0))

    def __post_init__(self) -> None:
        self._asked_again = frozenset(self.same_as.values())
        self._times: dict[str, list[float]] = {}
        self._positions: dict[tuple[str, str | None], tuple[int, int]] = {}

    def add(self, calls: list[RecordedAgentCall], criteria: Iterable[ResolvedCriterion]) -> None:
        """Count the repeats of one sample."""
        self.samples += 1
        known = [call.measured for call in calls if call.measured is not None]
        errors = [each.agent_error for each in known if each.agent_error is not None]
        self.agent_errors += len(errors)
        self.why_failed = self.why_failed or next(iter(errors), None)
        self.cached += sum(each.cached for each in known)
        times = [
            math.inf if each.seconds is None else each.seconds for each in known if not each.cached
        ]
        question = self._find_shared_question(calls)
        if times and question is not None and question in self._times:
            self._times[question].extend(times)
        elif times:
            self.seconds.append(times)
            if question is not None:
                self._times[question] = times
        for criterion in criteria:
            self._add_score(criterion, calls, question)
        self._add_models(known, calls)

    def _find_shared_question(self, calls: list[RecordedAgentCall]) -> str | None:
        """Return the id of the first sample with the same question; None for a unique question."""
        sample = calls[0].sample_id if calls else ""
        if sample in self.same_as:
            return self.same_as[sample]
        return sample if sample in self._asked_again else None

    def _add_score(
        self, criterion: ResolvedCriterion, calls: list[RecordedAgentCall], question: str | None
    ) -> None:
        if criterion.kind != "score":
            return
        repeats = [
            call.measured.scores[criterion.name]
            for call in calls
            if call.measured is not None and criterion.name in call.measured.scores
        ]
        mean = average(repeats)
        if mean is not None and len(repeats) == self.repeats:
            scores = self.scores.setdefault(criterion.name, [])
            key = (criterion.name, question)
            position, before = self._positions.get(key, (len(scores), 0))
            if before:
                # A running mean: copies of a question are one observation.
                scores[position] += (mean - scores[position]) / (before + 1)
            else:
                scores.append(mean)
            if question is not None:
                self._positions[key] = (position, before + 1)
            return
        self.unscored[criterion.name] = self.unscored.get(criterion.name, 0) + 1
        self.why.setdefault(criterion.name, _find_unscored_reason(criterion.name, calls))

    def _add_models(self, known: list[Measurement], calls: list[RecordedAgentCall]) -> None:
        agent, judge = self.cost.agent_usd, self.cost.judge_usd
        for call in calls:
            if call.retried_requests is not None:
                self.retried_requests = (self.retried_requests or 0) + call.retried_requests
            agent = None if agent is None or call.cost_usd is None else agent + call.cost_usd
        for each in known:
            self.agent_models.update(each.agent_models)
            self.judge_models.update(each.judge_models)
            self.judge_calls += each.judge_calls
            self.data_seen.add(each.data_sha256)
            spent = each.judge_cost_usd
            judge = None if judge is None or spent is None else judge + spent
        self.cost = Cost(agent_usd=agent, judge_usd=judge)

    def outcome(self, criterion: ResolvedCriterion, timings: Timings) -> CriterionOutcome:
        """Decide one criterion."""
        if criterion.kind == "latency":
            return decide_latency(criterion, timings, agent_errors=self.agent_errors)
        counts = Counts(
            unscored=self.unscored.get(criterion.name, 0),
            agent_errors=self.agent_errors,
            why_unscored=self.why.get(criterion.name),
        )
        return decide_score(criterion, self.scores.get(criterion.name, []), counts)


def aggregate_run(
    run: Run,
    criteria: tuple[ResolvedCriterion, ...],
    *,
    repeats: int,
    rows: int,
    same_as: Mapping[str, str] | None = None,
) -> RunAggregate:
    """Aggregate a run. Samples of the plan that it lacks are unscored."""
    counted = RunAggregate(repeats, same_as=same_as or {})
    for _, group in groupby(_read_recorded_calls(run), key=lambda call: call.sample_id):
        counted.add(list(group), criteria)
    while counted.samples < rows:
        counted.add([], criteria)
    return counted


def _read_recorded_calls(run: Run) -> Iterator[RecordedAgentCall]:
    for row, sample in run.results_with_samples():
        retried = _count_retried_requests(sample)
        # An agent that reports no model calls may have made some: their cost is unknown.
        cost = None if retried is None else compute_sample_cost(sample)
        failure = None if sample.failure is None else sample.failure.message
        yield RecordedAgentCall(row.sample_id, read_measurement(sample), cost, failure, retried)


def _count_retried_requests(sample: Sample) -> int | None:
    if sample.trajectory is None or not sample.trajectory.calls:
        return None
    return sum(max(call.attempts - 1, 0) for call in sample.trajectory.calls)


def _find_unscored_reason(name: str, calls: list[RecordedAgentCall]) -> str:
    problems = [call.measured.problems.get(name) for call in calls if call.measured is not None]
    found = filter(None, [*problems, *(call.failure for call in calls)])
    return next(found, "the sample was not run")
