"""What surrounds a training: where it is recorded, who watches, and whether it is a new one."""

from dataclasses import dataclass, field
from pathlib import Path

from assay.runner import Stop
from assay.store import Store

from .events import TrainingWatch


@dataclass(frozen=True)
class TrainingSession:
    """How one call of a training is recorded, watched and stopped. Decides nothing it learns."""

    store: Store | str | Path | None = None
    """Where the rollouts are recorded. None: `.assay/` in the current folder."""

    resume: bool = False
    """Go on from the newest checkpoint of the output folder, under the same configuration."""

    take_over: bool = False
    """Go on although another live process works on the run."""

    watch: TrainingWatch | None = None
    stop: Stop = field(default_factory=Stop)
    """Asked to stop, the training ends with a checkpoint of the last whole step."""
