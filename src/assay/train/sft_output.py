"""What a fine-tuning writes into its output folder: how it began, and the numbers of each step."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict

from assay.errors import ConfigError

from .output_folder import OutputFolder


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

    weights_changed: float | None = None
    """Share of the weights with a gradient that the update changed."""

    learning_rate: float
    sequences: int
    trained_tokens: int
    tokens: int
    """Context included."""

    seconds: float


class SFTStart(BaseModel):
    """What a fine-tuning began with: it goes on only with the same."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: dict[str, Any]
    """Every setting that decides what is learned."""

    data: str
    weights: str
    held_out_loss: float | None = None
    """Before the first step."""


_MISMATCH_MESSAGES = {
    "data": "the samples are not those that training began with",
    "weights": "the model is not the one that training began with",
}


def check_same_start(output: OutputFolder, begun: SFTStart) -> SFTStart:
    """What was written when the training began. Raises `ConfigError` where `begun` differs."""
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
    # What is in one of them only belongs to another schedule, or to another assay.
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            yield f"{name} {before.get(name)!r} -> {now.get(name)!r}"
