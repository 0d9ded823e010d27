"""The output folder of a training, and the recorded run that belongs to it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from assay.errors import ConfigError, TrainingError
from assay.evaluation.running import new_run_id
from assay.models import stable_id
from assay.record import Run, RunSpec, Store

if TYPE_CHECKING:
    from .grpo_plan import Plan
    from .policy import Policy
    from .session import TrainingSession


class _Begun(BaseModel):
    """What an output folder says of its training."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    initial_weights: str | None
    """Digest of the weights that training began with, where they still matter."""


class Output:
    """A folder that belongs to one training."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metrics = folder / "metrics.jsonl"
        self.checkpoints = folder / "checkpoints"
        self.model = folder / "model"
        self.curve = folder / "reward.svg"
        self._begun = folder / "training.json"

    def check(self, *, resume: bool) -> None:
        """Raise `ConfigError` unless a training can begin, or go on, in this folder."""
        where = str(self.folder)
        if resume and not self._begun.exists():
            raise ConfigError(
                "there is no training here to go on with", where=where, hint="leave out resume"
            )
        if not resume and self._begun.exists():
            raise ConfigError(
                "there is a training here already",
                where=where,
                hint="resume it, or choose another output folder",
            )
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", where=where) from None

    def begin(
        self, plan: "Plan", policy: "Policy", store: Store, session: "TrainingSession"
    ) -> Run:
        """Start the run of this folder, or claim it again. Called before weights change."""
        initial = policy.initial_digest()
        if not session.resume:
            run = store.start_run(_spec(new_run_id(plan.config.name), plan))
            begun = _Begun(run_id=run.id, initial_weights=initial)
            self._begun.write_text(begun.model_dump_json() + "\n", "utf-8")
            return run
        begun = self._read()
        if begun.initial_weights != initial:
            raise ConfigError(
                "the model is not the one that training began with",
                where=str(self.folder),
                hint="give the original weights, not the trained ones: checkpoints hold the rest",
            )
        return store.resume_run(
            begun.run_id, _spec(begun.run_id, plan), take_over=session.take_over
        )

    def _read(self) -> _Begun:
        try:
            return _Begun.model_validate(json.loads(self._begun.read_bytes()))
        except (OSError, ValueError, ValidationError) as error:
            raise TrainingError(
                f"cannot be read: {str(error).splitlines()[0]}", where=str(self._begun)
            ) from None


def _spec(run_id: str, plan: "Plan") -> RunSpec:
    description = plan.describe()
    return RunSpec(
        id=run_id,
        name=plan.config.name,
        config=description,
        config_fingerprint=stable_id(description),
        dataset=plan.dataset,
        dataset_fingerprint=plan.dataset_fingerprint,
    )
