"""The recorded run that belongs to the output folder of a GRPO training."""

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from assay.errors import ConfigError
from assay.runner import create_run_id
from assay.store import SCORER_SETTINGS, Run, RunSpec, Store, check_same_config
from assay.types import stable_id

from .output_folder import OutputFolder

if TYPE_CHECKING:
    from .grpo_plan import GRPOPlan
    from .policy import Policy
    from .training_session import TrainingSession


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
    begun = output.begun(GRPOStart)
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
