"""`certify`: run a plan as a recorded evaluation and decide its criteria."""

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay import __version__
from assay.agents import AgentFault, RolloutFailed, RunContext, hide_expected_answer
from assay.errors import AccessDenied, AssayError, ConfigError, EndpointError
from assay.providers import check_endpoint
from assay.runner import EvalConfig, ProgressCallback, Resume, Stop, evaluate, refuse_file_store
from assay.stats import format_plural
from assay.store import Store
from assay.types import Sample, describe_error, redact, stable_id

from .aggregate import RunAggregate, aggregate_run
from .certified import (
    CertificationResult,
    CertifiedAgent,
    CertifiedJudge,
    Notice,
    Tries,
)
from .code_digests import build_certified_endpoint
from .criteria import ResolvedCriterion, verdict_of
from .criterion_decisions import Timings, compute_latency_figures
from .measurement import CallSlots, CriteriaScorer, SlottedAgent, prepare_golden
from .plan import CertificationPlan, check_provable

# Ids listed in a certificate. The number of earlier runs is always complete.
_MAX_EARLIER_RUNS = 20


class CertificationInterrupted(Exception):
    """A certification was interrupted. Its measurements are kept in the run."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id


class CertificationAborted(AssayError):
    """A certification was aborted by `__cause__`. Its measurements are kept in the run."""

    run_id: str

    def __init__(self, message: str, run_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id


async def certify(
    plan: CertificationPlan,
    *,
    store: Store | str | Path | None = None,
    resume: Resume | str | None = None,
    watch: ProgressCallback | None = None,
    stop: Stop | None = None,
) -> CertificationResult:
    """Run the agent on its golden dataset, grade the answers, and decide the criteria.

    The run is recorded. A resumed run executes the missing samples, and grades recorded answers
    without calling the agent again. Raises `CertificationInterrupted` after a `stop` request, and
    `CertificationAborted` when a started run fails.
    """
    check_provable(plan)
    if plan.settings.engine is not None:
        refuse_file_store(store)
    await _check_endpoints_reachable(plan)
    opened = store if isinstance(store, Store) else Store.open(store)
    slots = CallSlots(plan.slots)
    agent = SlottedAgent(plan.chosen.agent, slots, plan.settings.timeout_s)
    scorer = _build_criteria_scorer(plan, slots)
    try:
        config = EvalConfig(
            agent=agent,
            endpoint=plan.chosen.endpoint if plan.chosen.calls_endpoint else None,
            score_fn=scorer.scorer(),
            score_failures=True,
            prepare_messages=prepare_golden,
            name=f"certify {plan.definition.id}",
            repeats=plan.profile.repeats,
            concurrency=max(plan.settings.concurrency, plan.slots),
            seed=plan.settings.seed,
            engine=plan.settings.engine,
        )
        # The warm-up comes before the run, so that no measured call pays for a cold start.
        problem = None
        for sample in plan.golden.first(plan.warmup):
            problem = await _warm_up(agent, sample) or problem
        try:
            report = await evaluate(
                plan.golden.samples, config, store=opened, resume=resume, watch=watch, stop=stop
            )
        except AssayError as error:
            if error.run_id is None or isinstance(error, ConfigError):
                raise
            raise CertificationAborted(str(error), error.run_id) from error
        if report.interrupted:
            raise CertificationInterrupted(report.run_id)
        return _build_certification_result(plan, opened, report.run_id, warmup_problem=problem)
    finally:
        scorer.close()
        await plan.close()
        if opened is not store:
            opened.close()


async def _warm_up(agent: SlottedAgent, sample: Sample) -> str | None:
    """Call the agent without recording it. Returns the error, if any."""
    messages = prepare_golden(sample)
    try:
        await agent.run(hide_expected_answer(sample), RunContext(messages=messages))
    except (Exception, SystemExit) as error:
        cause = error.__cause__ or error if isinstance(error, RolloutFailed) else error
        if isinstance(cause, AccessDenied):
            raise cause from None
        return redact(cause.message) if isinstance(cause, AgentFault) else describe_error(cause)
    return None


async def _check_endpoints_reachable(plan: CertificationPlan) -> None:
    """Raise `EndpointError` when the server of the agent or the judge is not reachable."""
    # Listing the models costs nothing, and an outage must not count as failures of the agent.
    judge = None if plan.judge is None else plan.judge.endpoint
    for endpoint, role in ((judge, "the judge"), (plan.chosen.endpoint, "the agent's model")):
        if endpoint is None:
            continue
        found = await check_endpoint(endpoint)
        if found.verdict in ("unreachable", "unauthorised"):
            raise EndpointError(
                f"{role} cannot be called: {found.detail}",
                where=f"{endpoint.provider}:{endpoint.model}",
                hint=found.hint,
            )


def _build_criteria_scorer(plan: CertificationPlan, slots: CallSlots) -> CriteriaScorer:
    """Build the scorer of the run."""
    # Its name is a part of the run's fingerprint: it covers everything that affects a result.
    about = [
        plan.definition_sha256,
        [plan.chosen.agent.identity, plan.code.code_sha256(), dict(plan.definitions)],
        [_dump_criterion(criterion) for criterion in plan.criteria],
        None if plan.judge is None else plan.judge.endpoint.to_dict(),
        plan.settings.timeout_s,
        plan.slots,
    ]
    name = f"certify({plan.definition.id}, {plan.chosen.name}, {stable_id(about)})"
    return CriteriaScorer(plan.graders, slots=slots, name=name, data_sha256=plan.data_sha256)


def _dump_criterion(criterion: ResolvedCriterion) -> dict[str, Any]:
    # Without the digests of its files, which the digest of all code covers.
    code = {"sha256": True, "files": True} if criterion.graded_by.files else {"files": True}
    return criterion.model_dump(mode="json", exclude={"graded_by": code})


def _build_certification_result(
    plan: CertificationPlan, store: Store, run_id: str, *, warmup_problem: str | None
) -> CertificationResult:
    run = store.run(run_id)
    counted = aggregate_run(
        run,
        plan.criteria,
        repeats=plan.profile.repeats,
        rows=plan.golden.rows,
        same_as=plan.golden.questions.same_as,
    )
    timings = Timings(
        counted.seconds, cached=counted.cached, concurrency=plan.slots, warmup=plan.warmup
    )
    code, data = plan.code.find_changed_files()
    if counted.data_seen - {plan.data_sha256}:
        data.update(plan.code.data)  # the data files changed before the run was resumed
    warnings = list(plan.notices)
    if warmup_problem is not None:
        text = f"a warm-up call failed: {warmup_problem}"
        warnings.append(Notice(code="warmup_failed", text=text))
    if counted.agent_errors:
        calls = format_plural(plan.agent_calls, "call")
        text = f"{counted.agent_errors} of {calls} of the agent failed, the first: "
        warnings.append(Notice(code="agent_failed", text=f"{text}{counted.why_failed}"))
    earlier, judge = store.earlier_runs(run_id), plan.judge
    outcomes = tuple(counted.outcome(criterion, timings) for criterion in plan.criteria)
    return CertificationResult.model_validate(
        {
            "agent": _build_certified_agent(plan, counted),
            "manifest": plan.manifest,
            "dataset": plan.golden.describe(),
            "judge": judge
            and CertifiedJudge(
                asked=judge.name,
                returned=tuple(sorted(counted.judge_models)),
                calls=counted.judge_calls,
            ),
            "repeats": plan.profile.repeats,
            "tries": Tries(
                earlier_runs=len(earlier),
                earlier=tuple(earlier[:_MAX_EARLIER_RUNS]),
                retried_requests=counted.retried_requests,
                warmup_calls=plan.warmup,
            ),
            "seed": plan.settings.seed,
            "outcomes": outcomes,
            "verdict": verdict_of(outcomes),
            "latency": compute_latency_figures(timings, plan.profile.latency_statistic),
            "deviations": (*plan.deviations, *(f"{file} changed during the run" for file in code)),
            "warnings": tuple(warnings),
            "unpinned": tuple(sorted(data)),
            "run": run_id,
            "started": run.spec.created_at,
            "finished": run.row().finished_at or datetime.now(UTC),
            "cost": counted.cost,
            "versions": {"assay": __version__, "python": platform.python_version()},
        }
    )


def _build_certified_agent(plan: CertificationPlan, counted: RunAggregate) -> CertifiedAgent:
    definition, chosen = plan.definition, plan.chosen
    return CertifiedAgent(
        id=definition.id,
        name=definition.name,
        definition_sha256=plan.definition_sha256,
        model=definition.model,
        runner=chosen.name,
        runner_sha256=chosen.code_sha256,
        files={} if chosen.code is None else dict(chosen.code.files),
        tools=plan.settings.tools,
        definitions=dict(plan.definitions),
        endpoint=build_certified_endpoint(chosen.endpoint),
        models_returned=tuple(sorted(counted.agent_models)),
    )
