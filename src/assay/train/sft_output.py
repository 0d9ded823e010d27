"""The files of a fine-tuning in its output folder: its start, and the metrics of each step."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict

from assay.errors import ConfigError

from .output_folder import OutputFolder


class SFTStep(BaseModel):
    """The metrics of one update. Values that were not measured are None."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    of: int
    """The number of the last step."""

    epoch: float
    """How many passes over the samples are done, with fractions."""

    loss: float
    """Mean negative logprob of the tokens that counted, before the update."""

    held_out_loss: float | None = None
    """The same over the held-out samples, after the update."""

    grad_norm: float
    """Before clipping."""

    weights_changed: float | None = None
    """Share of the weights with a gradient that the update changed."""

    learning_rate: float
    sequences: int
    trained_tokens: int
    tokens: int
    """Context included."""

    seconds: float


class SFTStart(BaseModel):
    """The inputs of a fine-tuning, which must be the same on a resume."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: dict[str, Any]
    """Every setting that affects the result."""

    data: str
    weights: str
    held_out_loss: float | None = None
    """Before the first step."""


_MISMATCH_MESSAGES = {
    "data": "the samples are not those that training began with",
    "weights": "the model is not the one that training began with",
}


def check_same_start(output: OutputFolder, begun: SFTStart) -> SFTStart:
    """Return the recorded start of the training. Raises `ConfigError` if `begun` differs."""
    before = output.begun(SFTStart)
    problems = [
        problem
        for name, problem in _MISMATCH_MESSAGES.items()
        if getattr(before, name) != getattr(begun, name)
    ]
    if changes := list(_describe_config_changes(before.config, begun.config)):
        problem = "the configuration is not the one that training began with: "
        problems.append(problem + ", ".join(changes))
    if problems:
        raise ConfigError(
            "; ".join(problems),
            where=str(output.folder),
            hint="resume with the same model, samples and settings, or use another output folder",
        )
    return before


def _describe_config_changes(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    # A key in only one of them belongs to another schedule or another version of assay.
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            yield f"{name} {before.get(name)!r} -> {now.get(name)!r}"
