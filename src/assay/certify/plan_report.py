"""The report of a plan: calls, provable criteria and estimated costs."""

from pydantic import Field, FiniteFloat

from assay.agents import build_system_prompt
from assay.providers import find_price
from assay.stats import ReportSection
from assay.types import Endpoint

from .certified import CertifiedDataset, CertifiedManifest, Notice
from .criteria import ResolvedCriterion
from .graders import compute_samples_needed
from .judge_client import count_prompt_characters
from .plan import CertificationPlan

# A common rule of thumb for English text: the costs are estimates.
_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_PRICE = 1_000_000


class PlannedCriterion(ResolvedCriterion):
    """One criterion, and the number of samples that can prove it."""

    rows_needed: int | None
    """Number of perfect samples that prove it; None when no number can."""

    provable: bool
    """Whether the dataset has that many."""


class PlanReport(ReportSection):
    """The calls, criteria and estimated costs of one certification."""

    agent: str
    definition_sha256: str
    runner: str
    manifest: CertifiedManifest
    dataset: CertifiedDataset
    judge: str | None
    criteria: tuple[PlannedCriterion, ...] = Field(min_length=1)
    repeats: int
    agent_calls: int
    """Measured calls, without warm-up."""

    warmup: int
    latency_concurrency: int
    judge_calls: int
    agent_usd_at_least: FiniteFloat | None
    judge_usd_at_least: FiniteFloat | None
    """For the input only, at list prices and 4 characters per token. None: unknown."""

    deviations: tuple[str, ...]
    warnings: tuple[Notice, ...]


def report_plan(plan: CertificationPlan) -> PlanReport:
    """Build the report of a plan. Calls no agent or judge."""
    golden, repeats, judge = plan.golden, plan.profile.repeats, plan.judge
    # The model calls of a function or a command are unknown.
    agent_usd, judge_usd = None, 0.0 if judge is None else None
    if plan.chosen.endpoint is not None:
        system = len(build_system_prompt(plan.definition)) * golden.rows
        agent_usd = _estimate_input_cost(
            plan.chosen.endpoint, (golden.characters + system) * repeats
        )
    if judge is not None:
        shown = (golden.characters + golden.truth_characters) * repeats
        asked = sum(grader.asks_model for grader in plan.graders)
        around = count_prompt_characters() * plan.judge_calls
        judge_usd = _estimate_input_cost(judge.endpoint, shown * asked + around)
    return PlanReport(
        agent=plan.definition.id,
        definition_sha256=plan.definition_sha256,
        runner=plan.chosen.name,
        manifest=plan.manifest,
        dataset=golden.describe(),
        judge=None if judge is None else judge.name,
        criteria=tuple(
            _build_planned_criterion(criterion, golden.questions.distinct)
            for criterion in plan.criteria
        ),
        repeats=repeats,
        agent_calls=plan.agent_calls,
        warmup=plan.warmup,
        latency_concurrency=plan.slots,
        judge_calls=plan.judge_calls,
        agent_usd_at_least=agent_usd,
        judge_usd_at_least=judge_usd,
        deviations=plan.deviations,
        warnings=plan.notices,
    )


def _build_planned_criterion(criterion: ResolvedCriterion, rows: int) -> PlannedCriterion:
    needed = compute_samples_needed(criterion)
    return PlannedCriterion(
        **dict(criterion), rows_needed=needed, provable=needed is not None and needed <= rows
    )


def _estimate_input_cost(endpoint: Endpoint, characters: int) -> float | None:
    price = find_price(endpoint)
    if price is None:
        return None
    return characters / _CHARACTERS_PER_TOKEN * price.input / _TOKENS_PER_PRICE
