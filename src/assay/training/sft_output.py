"""The output folder of a fine-tuning: what it began with, and one line for each step."""

import json
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from assay.errors import ConfigError, TrainingError


class SFTStep(BaseModel):
    """One update in numbers. What was not measured is None."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    of: int
    """The last step to come."""

    epoch: float
    """How often the samples have been gone through, counting parts."""

    loss: float
    """Mean negative logprob of the tokens that counted, before the update."""

    held_out_loss: float | None = None
    """The same over the held-out samples, after the update."""

    grad_norm: float
    """Before clipping."""

    learning_rate: float
    sequences: int
    trained_tokens: int
    tokens: int
    """Context included."""

    seconds: float


class Begun(BaseModel):
    """What a fine-tuning began with: it goes on only with the same."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: str
    """Fingerprint of the configuration."""

    data: str
    weights: str
    held_out_loss: float | None = None
    """Before the first step."""


_DIFFERENT = {
    "config": "the configuration is not the one that training began with",
    "data": "the samples are not those that training began with",
    "weights": "the model is not the one that training began with",
}


class SFTOutput:
    """A folder that belongs to one fine-tuning."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metrics = folder / "metrics.jsonl"
        self.checkpoints = folder / "checkpoints"
        self.model = folder / "model"
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

    def begin(self, begun: Begun) -> None:
        _replace(self._begun, begun.model_dump_json() + "\n")

    def go_on(self, begun: Begun) -> Begun:
        """What was written when the training began. Raises `ConfigError` where `begun` differs."""
        try:
            before = Begun.model_validate(json.loads(self._begun.read_bytes()))
        except (OSError, ValueError, ValidationError) as error:
            problem = f"cannot be read: {str(error).splitlines()[0]}"
            raise TrainingError(problem, where=str(self._begun)) from None
        for name, problem in _DIFFERENT.items():
            if getattr(before, name) != getattr(begun, name):
                raise ConfigError(
                    problem,
                    where=str(self.folder),
                    hint="resume with the same, or choose another output folder",
                )
        return before

    def append(self, step: SFTStep) -> None:
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(step.model_dump_json() + "\n")

    def steps_until(self, last: int) -> list[SFTStep]:
        """The steps up to `last`; what was written of later ones is removed."""
        kept: list[SFTStep] = []
        text = self.metrics.read_text("utf-8") if self.metrics.exists() else ""
        # What follows the last line break was cut off by the end of a process.
        for number, line in enumerate(text.split("\n")[:-1], start=1):
            try:
                step = SFTStep.model_validate(json.loads(line))
            except (ValueError, ValidationError) as error:
                raise TrainingError(
                    f"is not the metrics of a step: {str(error).splitlines()[0]}",
                    where=f"{self.metrics}:{number}",
                ) from None
            if step.step <= last:
                kept.append(step)
        _replace(self.metrics, "".join(step.model_dump_json() + "\n" for step in kept))
        return kept


def _replace(path: Path, text: str) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_text(text, "utf-8")
    os.replace(beside, path)
