"""Plans of certifications. Planning finds every mistake and calls no agent or judge."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from assay.agents import COMMAND_PREFIX
from assay.errors import ConfigError
from assay.providers import to_endpoint
from assay.scorers import is_code_ref
from assay.stats import format_plural
from assay.types import (
    AgentDefinition,
    EvaluationProfile,
    Manifest,
    compute_stable_sha256,
)

from .agent_choice import ChosenAgent, choose_agent
from .asked_models import resolve_manifest_endpoint, strip_provider
from .certified import CertifiedManifest, Notice
from .certify_settings import CertifySettings
from .code_digests import digest_definition, digest_named_definitions
from .code_index import CodeIndex
from .criteria import ResolvedCriterion
from .golden_dataset import LoadedGoldenDataset, open_golden
from .graders import (
    CriteriaContext,
    Grader,
    compute_samples_needed,
    resolve_criteria,
    resolve_latency_criterion,
)
from .judge_client import JudgeModel


@dataclass(frozen=True)
class CertificationPlan:
    """The planned certification of one agent."""

    definition: AgentDefinition
    profile: EvaluationProfile
    manifest: CertifiedManifest
    settings: CertifySettings
    chosen: ChosenAgent
    graders: tuple[Grader, ...]
    latency: ResolvedCriterion | None
    judge: JudgeModel | None
    golden: LoadedGoldenDataset
    code: CodeIndex
    """The digests of all code, computed before any of it was imported."""

    definitions: Mapping[str, str]
    """Other definitions that the agent refers to, with their digests."""

    deviations: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()

    @property
    def criteria(self) -> tuple[ResolvedCriterion, ...]:
        """All criteria, in the order of the rubric, the latency last."""
        scores = tuple(grader.criterion for grader in self.graders)
        return scores if self.latency is None else (*scores, self.latency)

    @property
    def definition_sha256(self) -> str:
        return digest_definition(self.definition)

    @property
    def data_sha256(self) -> str | None:
        """The digest of the data files that the code refers to; None without any."""
        return compute_stable_sha256(self.code.data) if self.code.data else None

    @property
    def slots(self) -> int:
        """Concurrent calls of the agent."""
        return count_agent_slots(self.profile, self.settings)

    @property
    def warmup(self) -> int:
        """Calls before the first measured one."""
        if self.chosen.calls_endpoint:
            return 0  # its program starts anew for each sample
        if self.settings.warmup is not None:
            return self.settings.warmup
        return 0 if self.latency is None else 1

    @property
    def agent_calls(self) -> int:
        """Measured calls, without warm-up."""
        return self.golden.rows * self.profile.repeats

    @property
    def judge_calls(self) -> int:
        """Calls of the judge, if none has to be repeated."""
        return self.agent_calls * sum(grader.asks_model for grader in self.graders)

    async def close(self) -> None:
        """Close the connections of agent and judge."""
        close = getattr(self.chosen.agent, "close", None)
        if close is not None:
            await close()
        if self.judge is not None:
            await self.judge.close()


def plan_certifications(
    manifest: str | Path,
    settings: CertifySettings | None = None,
    *,
    agent: str | None = None,
    folder: Path,
) -> tuple[CertificationPlan, ...]:
    """Plan the certification of one agent, or of all agents with an `evaluation`.

    Datasets are fetched into `folder`, which must exist until the plans have been run. Raises
    before any agent or judge is called.
    """
    settings = settings or CertifySettings()
    loaded = Manifest.load(manifest)
    path = Path(manifest)
    agents = _select_agents(loaded, agent, where=str(manifest))
    if settings.runner is not None and len(agents) > 1:
        raise ConfigError(
            f"--runner applies to one agent, but the manifest has {', '.join(agents)}",
            where=str(manifest),
            hint="choose one with --agent",
        )
    root = loaded.root or path.parent
    file = CertifiedManifest(
        path=path.name if path.is_absolute() else path.as_posix(),
        sha256=loaded.files[0].sha256,
        references={
            each.path.resolve().relative_to(root.resolve()).as_posix(): each.sha256
            for each in loaded.files[1:]
        },
        run_from=_find_run_folder(root),
        skipped={
            key: "it has no `evaluation`"
            if each.evaluation is None
            else f"only {agent} was selected"
            for key, each in loaded.agents.items()
            if key not in agents
        },
    )
    source = _PlanSource(loaded, file, root, folder, _index_code(loaded, agents, settings, root))
    return tuple(_build_plan(definition, settings, source) for definition in agents.values())


def _index_code(
    manifest: Manifest, agents: dict[str, AgentDefinition], settings: CertifySettings, root: Path
) -> CodeIndex:
    """Digest the code of all agents."""
    # Before any import: imported code could change the files of the next agent.
    index = CodeIndex(root, manifest)
    for agent in agents.values():
        if agent.evaluation is not None:
            index.add_rubric(agent.evaluation)
    runner = settings.runner
    if isinstance(runner, str) and (runner.startswith(COMMAND_PREFIX) or is_code_ref(runner)):
        index.find("runner", runner)
    if settings.tools is not None:
        index.find("runner", settings.tools)
    return index


def check_provable(plan: CertificationPlan) -> None:
    """Raise `ConfigError` if the dataset is too small to prove a strict criterion."""
    if plan.deviations:
        return  # gets no certificate, and may be small
    questions = plan.golden.questions.distinct
    for criterion in plan.criteria:
        needed = compute_samples_needed(criterion)
        is_small = needed is None or needed > questions
        if criterion.gate == "proven" and criterion.strict and is_small:
            copies = plan.golden.rows - questions
            raise ConfigError(
                f"proving {criterion.threshold:g} takes at least {needed} samples, but the dataset "
                f"has {questions}{f' without {copies} copies of questions' if copies else ''}",
                where=f"{plan.manifest.path}: {plan.definition.id}: {criterion.name}",
                hint="add samples, lower the threshold, or set `gate: point`",
            )


def count_agent_slots(profile: EvaluationProfile, settings: CertifySettings) -> int:
    """Return the number of concurrent calls of an agent."""
    # Response times depend on the load, so that a latency criterion fixes it.
    limited = profile.expected_latency_ms is not None
    return settings.latency_concurrency if limited else settings.concurrency


def _select_agents(
    manifest: Manifest, wanted: str | None, *, where: str
) -> dict[str, AgentDefinition]:
    selected = manifest.select_agents(wanted)
    found = {key: each for key, each in selected.items() if each.evaluation is not None}
    problem, hint = "no agent of the manifest has an `evaluation` to certify it against", None
    if wanted is not None and not selected:
        problem = f"the manifest has no agent {wanted!r}"
        hint = f"agents of the manifest: {', '.join(manifest.agents) or 'none'}"
    elif wanted is not None and len(found) < len(selected):
        problem = "the agent has no `evaluation` to certify it against"
        where = f"{where}: {next(key for key in selected if key not in found)}"
    elif found:
        return found
    raise ConfigError(problem, where=where, hint=hint)


@dataclass(frozen=True)
class _PlanSource:
    """The inputs that all plans of a manifest share."""

    manifest: Manifest
    file: CertifiedManifest
    root: Path
    folder: Path
    code: CodeIndex


def _build_plan(
    definition: AgentDefinition, settings: CertifySettings, source: _PlanSource
) -> CertificationPlan:
    profile, where = definition.evaluation, f"{source.file.path}: {definition.id}"
    root, code = source.root, source.code
    assert profile is not None  # chosen for having one
    if not profile.grading_rubric and profile.expected_latency_ms is None:
        raise ConfigError("`evaluation` has neither criteria nor a latency limit", where=where)
    # Mistakes in the manifest are found before the dataset is fetched, which may be slow.
    judge = _LazyJudge(profile, settings, where)
    graders = resolve_criteria(profile, CriteriaContext(root, where, judge.get, code))
    latency = resolve_latency_criterion(profile, where=where)
    slots = count_agent_slots(profile, settings)
    chosen = choose_agent(definition, settings, root=root, where=where, slots=slots, code=code)
    golden = open_golden(profile, settings, root=root, folder=source.folder, where=where)
    deviations = (*judge.deviations, *chosen.deviations, *golden.deviations)
    plan = CertificationPlan(
        definition=definition,
        profile=profile,
        manifest=source.file,
        settings=settings,
        chosen=chosen,
        graders=graders,
        latency=latency,
        judge=judge.made,
        golden=golden,
        code=code,
        definitions=digest_named_definitions(definition, source.manifest),
        deviations=deviations,
    )
    return _add_notices(plan)


def _find_run_folder(root: Path) -> str | None:
    """Return the working directory relative to the manifest's folder."""
    # Only if one contains the other: any other path would reveal folders of this machine.
    here, root = Path.cwd().resolve(), root.resolve()
    related = here.is_relative_to(root) or root.is_relative_to(here)
    return Path(os.path.relpath(here, root)).as_posix() if related else None


class _LazyJudge:
    """The judge, created when the first criterion needs it."""

    def __init__(self, profile: EvaluationProfile, settings: CertifySettings, where: str) -> None:
        self.made: JudgeModel | None = None
        self.deviations: tuple[str, ...] = ()
        self._named = profile.evaluator_model
        given = settings.judge
        self._given = None if given is None else to_endpoint(given, where=where, name="judge")
        self._where = f"{where}: evaluator_model"

    def get(self) -> JudgeModel | None:
        named, endpoint = self._named, self._given
        if self.made is not None or (named is None and endpoint is None):
            return self.made
        if endpoint is None:
            assert named is not None
            endpoint = resolve_manifest_endpoint(named, where=self._where, option="--judge")
        elif named is None or strip_provider(named) != endpoint.model:
            self.deviations = (f"the judge is {endpoint.model}, not {named}",)
        self.made = JudgeModel(endpoint)
        return self.made


def _add_notices(plan: CertificationPlan) -> CertificationPlan:
    own, golden = strip_provider(plan.definition.model or ""), plan.golden
    samples, copies = format_plural(golden.rows, "sample"), len(golden.questions.same_as)
    found = {
        "self_judge": plan.judge is not None
        and plan.judge.endpoint.model == own
        and f"{own} is judged by itself",
        "dataset_not_pinned": plan.profile.golden_dataset_sha256 is None
        and plan.settings.dataset is None
        and "`golden_dataset_sha256` is missing: the dataset can change without notice",
        "nothing_blocks": not any(criterion.strict for criterion in plan.criteria)
        and "no criterion is strict: none can block certification",
        "no_ground_truth": golden.without_truth > 0
        and f"{golden.without_truth} of {golden.rows} samples have no ground truth",
        "duplicate_questions": copies > 0
        and f"{copies} of {samples} repeat a question, which counts once",
        "near_duplicates": golden.questions.near > 0
        and f"near-duplicates of other questions: {golden.questions.near}",
    }
    notices = tuple(Notice(code=code, text=text) for code, text in found.items() if text)
    return replace(plan, notices=notices)
