"""The session of a training: its store, its watcher, and whether it resumes."""

from dataclasses import dataclass, field
from pathlib import Path

from assay.runner import Stop
from assay.store import Store

from .events import TrainingWatch


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
