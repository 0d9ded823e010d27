"""The plan of a GRPO training: the order of its prompts, its evaluation, and its recorded run."""

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from assay.agents import (
    Agent,
    AgentRef,
    ModelAgent,
    PreparationFailed,
    check_workspace_row,
    resolve_agent,
)
from assay.datasets import SampleStream, SkippedRows, Source, load_samples
from assay.environments import EnvironmentLike
from assay.errors import ConfigError, WireError
from assay.runner import (
    EvalConfig,
    create_run_id,
    digest_messages,
    prepare_messages,
)
from assay.scorers import ScoreFunction
from assay.store import SCORER_SETTINGS, Run, RunSpec, Store, check_same_config
from assay.types import Endpoint, Sample, Status, compute_file_sha256, stable_id

from .grpo_config import GRPOConfig, build_policy_endpoint
from .output_folder import OutputFolder

if TYPE_CHECKING:
    from .policy import Policy
    from .training_session import TrainingSession

_GRPO_WHERE = "grpo_train()"

UNROLLED_FIELDS: dict[str, Any] = {
    "trajectory": None,
    "score": None,
    "tokens": [],
    "loss_mask": [],
    "rollout_log_probs": None,
    "status": Status.PENDING,
    "failure": None,
}
"""A prompt may be a sample with an earlier rollout: these fields are reset."""


@dataclass(frozen=True)
class PromptDraw:
    """A prompt at its position in the order."""

    sample: Sample
    position: int
    """How many prompts came before, over all epochs."""

    epoch: int
    """How often this prompt came before."""


class PromptOrder:
    """All prompts in a random order, then all in another, endlessly."""

    def __init__(self, prompts: Sequence[Sample], seed: int) -> None:
        self._prompts = prompts
        self._seed = seed
        self._epoch = -1
        self._order: list[int] = []

    def take(self, position: int, count: int) -> list[PromptDraw]:
        """Return `count` prompts, starting at `position`."""
        drawn = []
        for each in range(position, position + count):
            epoch, place = divmod(each, len(self._prompts))
            if epoch != self._epoch:
                self._epoch = epoch
                self._order = list(range(len(self._prompts)))
                # Seeded by epoch: any position can be reached without drawing those before it.
                random.Random(f"{self._seed}:{epoch}").shuffle(self._order)
            drawn.append(PromptDraw(self._prompts[self._order[place]], each, epoch))
        return drawn


def fingerprint_prompts(
    prompts: Iterable[Sample], sent: Callable[[Sample], str | None] = lambda prompt: None
) -> str:
    """Return a digest of the prompts in order: ids, rows, messages, answers and metadata.

    `sent` returns a digest of the messages that the model gets. Raises `ConfigError` for a prompt
    that cannot be recorded.
    """
    digests = []
    for prompt in prompts:
        try:
            # A prompt may bring an earlier rollout, which is not used and may change.
            content = prompt.model_copy(update={**UNROLLED_FIELDS, "index": None}).to_json_bytes()
        except WireError as error:
            raise ConfigError(
                f"the prompt cannot be recorded: {error.message}",
                where=f"sample {prompt.id!r}",
                hint=error.hint,
            ) from error
        digests.append([stable_id(json.loads(content)), sent(prompt)])
    return stable_id(digests)


@dataclass(frozen=True)
class HeldOutSet:
    """The samples that are evaluated during a training, and never trained on."""

    samples: Sequence[Sample]
    dataset: str
    file_digest: str | None
    """As the run of any evaluation has it; None for a dataset that is not a file."""

    fingerprint: str
    """Digest of the samples, which must not change on a resume."""


@dataclass(frozen=True)
class GRPOPlan:
    """The configuration of a training, its prompts and how they are rolled out."""

    config: GRPOConfig
    evaluation: EvalConfig
    order: PromptOrder
    dataset: str
    dataset_fingerprint: str
    skipped: SkippedRows
    """Invalid rows of the prompts that were skipped."""

    dataset_folder: Path | None = None
    """Where folders that rows name are looked for."""

    held_out: HeldOutSet | None = None

    def describe(self) -> dict[str, Any]:
        """Return the settings that must not change on a resume, as plain values without secrets."""
        rollouts = self.evaluation.describe()
        # The key `environment_cls` is that of recorded trainings. They had no agent.
        added = {"agent": rollouts["agent"]} if "agent" in rollouts else {}
        if self.held_out is not None:
            added["eval_dataset"] = self.held_out.fingerprint
        return {
            **added,
            "training": self.config.describe(),
            "score_fn": rollouts["score_fn"],
            "environment_cls": rollouts["environment_factory"],
            "prepare_messages": rollouts["prepare_messages"],
        }


def plan_training(
    config: GRPOConfig,
    prompts: Source | SampleStream,
    score_fn: ScoreFunction | None,
    environment: EnvironmentLike | None,
    *,
    agent: AgentRef | None = None,
    eval_dataset: Source | SampleStream | None = None,
) -> GRPOPlan:
    """Read all prompts and build the plan. Raises `ConfigError` for an invalid combination."""
    stream, samples = _read_prompts(prompts, config, "the dataset of prompts")
    if (eval_dataset is None) != (config.eval_every is None):
        given, missing = ("eval_every", "eval_dataset")[:: 1 if eval_dataset is None else -1]
        raise ConfigError(
            f"`{given}` has no effect without `{missing}`",
            where=_GRPO_WHERE,
            hint=f"set `{missing}`, or omit `{given}`",
        )
    evaluation = EvalConfig(
        agent=None if agent is None else _check_trainable(agent),
        endpoint=build_policy_endpoint(config),
        score_fn=score_fn,
        prepare_messages=config.prepare_messages,
        environment=environment,
        name=config.name,
        limits=config.limits,
        concurrency=config.concurrency,
        timeout_s=config.timeout_s,
        seed=config.seed,
    )

    dataset_folder = None if stream.file is None else Path(stream.file).parent

    # `prepare_messages` may change while the prompts stay the same: its output is compared too.
    def digest_sent(sample: Sample) -> str | None:
        if evaluation.prepare_messages is None:
            return None
        try:
            return digest_messages(prepare_messages(evaluation, sample.model_copy(deep=True)))
        except PreparationFailed:
            return None  # the rollout will fail in the same way and record the error

    held_out = None
    if eval_dataset is not None:
        held_stream, held_samples = _read_prompts(eval_dataset, config, "`eval_dataset`")
        held_out = HeldOutSet(
            samples=held_samples,
            dataset=held_stream.name,
            file_digest=None if held_stream.file is None else compute_file_sha256(held_stream.file),
            fingerprint=fingerprint_prompts(held_samples, digest_sent),
        )
    if evaluation.uses_workspace:
        for sample in (*samples, *(held_out.samples if held_out else ())):
            check_workspace_row(sample, dataset_folder=dataset_folder)

    return GRPOPlan(
        config=config,
        evaluation=evaluation,
        order=PromptOrder(samples, config.seed),
        dataset=stream.name,
        dataset_fingerprint=fingerprint_prompts(samples, digest_sent),
        skipped=stream.skipped,
        dataset_folder=dataset_folder,
        held_out=held_out,
    )


def _read_prompts(
    source: Source | SampleStream, config: GRPOConfig, what: str
) -> tuple[SampleStream, list[Sample]]:
    stream = source if isinstance(source, SampleStream) else load_samples(source)
    stream = stream.with_prompt(config.prepare_messages)
    if not (samples := list(stream)):
        raise ConfigError(f"{what} is empty", where=_GRPO_WHERE)
    return stream, samples


def _check_trainable(agent: AgentRef) -> Agent:
    """Return the agent. Raises `ConfigError` for one that cannot call the policy."""
    found = resolve_agent(agent, where=_GRPO_WHERE)
    if isinstance(found, Endpoint | ModelAgent):
        hint = "name the model in GRPOConfig(model_name=...), and pass no agent"
    elif not getattr(found, "uses_gateway", True):
        # Known before a rollout is made: nothing that such an agent is given leads to the policy.
        hint = (
            "a service needs {base_url} and {api_key} in its request; a function needs a second "
            "parameter, the context, with `client` and `base_url`"
        )
    else:
        return found
    name = found.model if isinstance(found, Endpoint) else found.name
    raise ConfigError(
        f"the agent {name} does not call the model that is trained", where=_GRPO_WHERE, hint=hint
    )


class GRPOStart(BaseModel):
    """The record of a training's start in its output folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    initial_weights: str | None
    """Digest of the weights that training began with, where they still matter."""


def begin_run(
    output: OutputFolder,
    plan: "GRPOPlan",
    policy: "Policy",
    *,
    store: Store,
    session: "TrainingSession",
) -> Run:
    """Start the run of a folder, or claim it again. Called before weights change."""
    initial = policy.digest_initial_weights()
    if not session.resume:
        run = store.start_run(_build_training_spec(create_run_id(plan.config.name), plan))
        output.begin(GRPOStart(run_id=run.id, initial_weights=initial))
        return run
    begun = output.read_start(GRPOStart)
    if begun.initial_weights != initial:
        raise ConfigError(
            "the model is not the one that training began with",
            where=str(output.folder),
            hint="pass the original weights, not the trained ones: checkpoints contain the rest",
        )
    spec, stored = _build_training_spec(begun.run_id, plan), store.run(begun.run_id)
    # A fixed scorer may score the existing rollouts, as long as none has a score.
    ignore = frozenset[str]() if stored.totals.recorded else SCORER_SETTINGS
    check_same_config(stored.spec, spec, ignore=ignore)
    if stored.spec.dataset_fingerprint != spec.dataset_fingerprint:
        raise ConfigError(
            f"the dataset changed since the run started: {spec.dataset!r} has other prompts, "
            f"answers or metadata than {stored.spec.dataset!r} had",
            where=f"run {stored.spec.id!r}",
            hint="restore the prompts, or train in another output folder",
        )
    return store.resume_run(
        begun.run_id, spec, allow_changed_scorer=True, take_over=session.take_over
    )


def _build_training_spec(run_id: str, plan: "GRPOPlan") -> RunSpec:
    description = plan.describe()
    return RunSpec(
        id=run_id,
        name=plan.config.name,
        config=description,
        config_fingerprint=stable_id(description),
        dataset=plan.dataset,
        dataset_fingerprint=plan.dataset_fingerprint,
    )
