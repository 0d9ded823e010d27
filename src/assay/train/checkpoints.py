"""Checkpoints, written atomically: a killed process leaves the older ones intact."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from assay.errors import TrainingError

if TYPE_CHECKING:
    from torch import Tensor

_STATE, _TENSORS = "state.json", "tensors.pt"
_UNFINISHED = ".unfinished-"
_CHECKPOINT_NAME = re.compile(r"step-([0-9]{6,})")


class TrainingProgress(BaseModel):
    """The progress of a training, apart from its tensors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int = 0
    """The last step that is in the weights."""

    position: int = 0
    """The position of the next step in the order of prompts."""


class Checkpoints:
    """The checkpoints of one training, newest last."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self.folder = folder
        self._keep = keep

    def steps(self) -> list[int]:
        """Return the steps that have a complete checkpoint."""
        found = (path.parent.name for path in self.folder.glob(f"step-*/{_STATE}"))
        # Not every such folder: a copy that someone keeps may be called `step-000010-best`.
        numbers = (_CHECKPOINT_NAME.fullmatch(name) for name in found)
        return sorted(int(match[1]) for match in numbers if match)

    def save(self, progressed: TrainingProgress, tensors: dict[str, Any]) -> Path:
        """Write a checkpoint durably, then remove the oldest beyond `keep`."""
        import torch

        return self.write(progressed, lambda folder: torch.save(tensors, folder / _TENSORS))

    def write(self, progressed: TrainingProgress, fill: Callable[[Path], None]) -> Path:
        """Write a checkpoint whose files `fill` writes into the folder."""
        path = self.path(progressed.step)

        def fill_all(folder: Path) -> None:
            fill(folder)
            # Last: `steps` takes the state file as the sign of a complete checkpoint.
            (folder / _STATE).write_text(progressed.model_dump_json(), "utf-8")

        write_folder(path, fill_all)
        for step in self.steps()[: -self._keep]:
            remove_folder(self.path(step))
        return path

    def load(self, step: int, *, device: Any = "cpu") -> tuple[TrainingProgress, dict[str, Any]]:
        """Read a checkpoint. Raises `TrainingError` for a damaged one."""
        import torch

        path = self.path(step)
        try:
            progressed = TrainingProgress.model_validate(json.loads((path / _STATE).read_bytes()))
            # Weights only: a checkpoint may come from elsewhere, and a pickle can run code.
            tensors: dict[str, Any] = torch.load(
                path / _TENSORS, map_location=device, weights_only=True
            )
        except (OSError, ValueError, LookupError, RuntimeError, EOFError, UnpicklingError) as error:
            raise make_checkpoint_error(path, error) from error
        if progressed.step != step:
            raise TrainingError(f"the checkpoint is of step {progressed.step}", where=str(path))
        return progressed, tensors

    def path(self, step: int) -> Path:
        """Return the folder of a step's checkpoint, whether or not it exists."""
        return self.folder / f"step-{step:06}"


def make_checkpoint_error(path: Path, error: Exception) -> TrainingError:
    """Return the error for a damaged checkpoint."""
    return TrainingError(
        f"the checkpoint cannot be read ({type(error).__name__})",
        where=str(path),
        hint="remove this folder to resume from the checkpoint before it",
    )


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Create a folder whose content appears all at once, replacing an older one."""
    beside = path.with_name(f"{_UNFINISHED}{path.name}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    fill(beside)
    # Synced before the rename: after a power cut a folder with its final name must be complete.
    for each in (*(each for each in beside.rglob("*") if each.is_file()), beside):
        _sync(each)
    if path.exists():
        remove_folder(path)
    beside.rename(path)
    _sync(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder so that no partial one is ever visible."""
    away = path.with_name(f"{_UNFINISHED}old-{path.name}")
    shutil.rmtree(away, ignore_errors=True)
    path.rename(away)
    shutil.rmtree(away)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def digest_weights(weights: "dict[str, Tensor]") -> str:
    """Return a digest of the weights, exact to the bit."""
    import hashlib

    import torch

    digest = hashlib.blake2b(digest_size=16)
    for name, weight in sorted(weights.items()):
        digest.update(f"{name}:{weight.dtype}:{tuple(weight.shape)};".encode())
        # numpy has no bfloat16: hash the raw bytes.
        plain = weight.detach().cpu().contiguous().flatten()
        digest.update(plain.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
