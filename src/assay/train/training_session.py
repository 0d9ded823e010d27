"""The session of a training: its store, its events, and whether it resumes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from assay.runner import Stop
from assay.store import Store

from .held_out import EvalStep
from .step_statistics import StepMetrics


@dataclass(frozen=True)
class TrainingStarted:
    """The model is loaded and the run recorded; the first step comes next."""

    run_id: str
    step: int
    """Steps that were done before a resume."""

    steps: int


@dataclass(frozen=True)
class RolloutFinished:
    """One more rollout of a step is recorded."""

    step: int
    done: int
    of: int
    is_evaluation: bool = False
    """Whether it is one of the evaluation after `step`."""


@dataclass(frozen=True)
class StepFinished:
    """A step is done."""

    metrics: StepMetrics


@dataclass(frozen=True)
class CheckpointSaved:
    """A checkpoint was written."""

    step: int
    path: Path


@dataclass(frozen=True)
class EvaluationFinished:
    """The weights after a step were evaluated on the held-out dataset."""

    evaluation: EvalStep
    is_best: bool
    """Whether its score is the highest so far."""


@dataclass(frozen=True)
class ServerUnreachable:
    """The server that samples cannot be updated, and the training waits for it."""

    where: str
    reason: str
    retry_s: float
    """Seconds until the next try."""


TrainingEvent = (
    TrainingStarted
    | RolloutFinished
    | StepFinished
    | CheckpointSaved
    | EvaluationFinished
    | ServerUnreachable
)
TrainingWatch = Callable[[TrainingEvent], None]
"""Called from the event loop: it must be quick."""


@dataclass(frozen=True)
class TrainingSession:
    """How one training is recorded, watched and stopped. Does not affect its result."""

    store: Store | str | Path | None = None
    """Where the rollouts are recorded. None: `.assay/` in the current folder."""

    resume: bool = False
    """Resume from the newest checkpoint of the output folder, with the same configuration."""

    take_over: bool = False
    """Resume even if another live process holds the run."""

    watch: TrainingWatch | None = None
    stop: Stop = field(default_factory=Stop)
    """A stop request ends the training with a checkpoint of the last complete step."""
