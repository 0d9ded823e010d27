"""The events of a training."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class StepFinished:
    """A step is done."""

    metrics: StepMetrics


@dataclass(frozen=True)
class CheckpointSaved:
    """A checkpoint was written."""

    step: int
    path: Path


TrainingEvent = TrainingStarted | RolloutFinished | StepFinished | CheckpointSaved
TrainingWatch = Callable[[TrainingEvent], None]
"""Called from the event loop: it must be quick."""
