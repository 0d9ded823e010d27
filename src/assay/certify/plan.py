"""Plans of certifications. Planning finds every mistake and calls no agent or judge."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from assay.agents import COMMAND_PREFIX
from assay.errors import ConfigError
from assay.providers import to_endpoint
from assay.scorers import is_code_name
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
        skipped=_list_skipped_agents(loaded, agents, agent),
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
    if isinstance(runner, str) and (runner.startswith(COMMAND_PREFIX) or is_code_name(runner)):
        index.runner(runner)
    if settings.tools is not None:
        index.runner(settings.tools)
    return index


def check_provable(plan: CertificationPlan) -> None:
    """Raise `ConfigError` if the dataset is too small to prove a strict criterion."""
    if plan.deviations:
        return  # gets no certificate, and may be small
    for criterion in plan.criteria:
        needed = compute_samples_needed(criterion)
        questions = plan.golden.questions.distinct
        if (
            criterion.gate == "proven"
            and criterion.strict
            and (needed is None or needed > questions)
        ):
            copies = plan.golden.rows - questions
            location = _format_agent_location(plan.manifest, plan.definition)
            raise ConfigError(
                f"proving {criterion.threshold:g} takes at least {needed} samples, but the dataset "
                f"has {questions}{f' without {copies} copies of questions' if copies else ''}",
                where=f"{location}: {criterion.name}",
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
    agents = manifest.agents
    if wanted is not None:
        found = {key: each for key, each in agents.items() if wanted in (key, each.id)}
        if not found:
            raise ConfigError(
                f"the manifest has no agent {wanted!r}",
                where=where,
                hint=f"agents of the manifest: {', '.join(agents) or 'none'}",
            )
    else:
        found = {key: each for key, each in agents.items() if each.evaluation is not None}
    for key, each in found.items():
        if each.evaluation is None:
            raise ConfigError(
                "the agent has no `evaluation` to certify it against", where=f"{where}: {key}"
            )
    if not found:
        raise ConfigError(
            "no agent of the manifest has an `evaluation` to certify it against", where=where
        )
    return found


def _list_skipped_agents(
    manifest: Manifest, chosen: dict[str, AgentDefinition], wanted: str | None
) -> dict[str, str]:
    """Return the reasons for skipped agents."""
    reasons = {}
    for key, each in manifest.agents.items():
        if each.evaluation is None:
            reasons[key] = "it has no `evaluation`"
        elif key not in chosen:
            reasons[key] = f"only {wanted} was selected"
    return reasons


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
    profile, where = definition.evaluation, _format_agent_location(source.file, definition)
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


def _format_agent_location(file: CertifiedManifest, definition: AgentDefinition) -> str:
    return f"{file.path}: {definition.id}"


class _LazyJudge:
    """The judge, created when the first criterion needs it."""

    def __init__(self, profile: EvaluationProfile, settings: CertifySettings, where: str) -> None:
        self.made: JudgeModel | None = None
        self.deviations: tuple[str, ...] = ()
        self._profile = profile
        given = settings.judge
        self._given = None if given is None else to_endpoint(given, where=where, name="judge")
        self._where = f"{where}: evaluator_model"

    def get(self) -> JudgeModel | None:
        named = self._profile.evaluator_model
        if self.made is None and self._given is not None:
            if named is None or strip_provider(named) != self._given.model:
                self.deviations = (f"the judge is {self._given.model}, not {named}",)
            self.made = JudgeModel(self._given)
        elif self.made is None and named is not None:
            endpoint = resolve_manifest_endpoint(named, where=self._where, option="--judge")
            self.made = JudgeModel(endpoint)
        return self.made


def _add_notices(plan: CertificationPlan) -> CertificationPlan:
    found = []
    own = strip_provider(plan.definition.model or "")
    if plan.judge is not None and plan.judge.endpoint.model == own:
        found.append(Notice(code="self_judge", text=f"{own} is judged by itself"))
    if plan.profile.golden_dataset_sha256 is None and plan.settings.dataset is None:
        text = "`golden_dataset_sha256` is missing: the dataset can change without notice"
        found.append(Notice(code="dataset_not_pinned", text=text))
    if not any(criterion.strict for criterion in plan.criteria):
        text = "no criterion is strict: none can block certification"
        found.append(Notice(code="nothing_blocks", text=text))
    if plan.golden.without_truth:
        text = f"{plan.golden.without_truth} of {plan.golden.rows} samples have no ground truth"
        found.append(Notice(code="no_ground_truth", text=text))
    questions = plan.golden.questions
    if copies := len(questions.same_as):
        samples = format_plural(plan.golden.rows, "sample")
        text = f"{copies} of {samples} repeat a question, which counts once"
        found.append(Notice(code="duplicate_questions", text=text))
    if questions.near:
        text = f"near-duplicates of other questions: {questions.near}"
        found.append(Notice(code="near_duplicates", text=text))
    return replace(plan, notices=tuple(found))
