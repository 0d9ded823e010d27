"""Which samples are asked for, and why each other one is not."""

import math
from dataclasses import dataclass
from typing import Literal

from assay.errors import ConfigError
from assay.types import Sample, Status

RowContent = Literal["answers", "prompts", "pairs", "labels", "tokens", "samples"]
"""What a format takes of a sample: what the agent answered, what it was asked, or all of it."""

FAILED = "failed"
NOT_JUDGED = "not judged"
TOO_LOW = "score too low"


@dataclass(frozen=True)
class Selection:
    """What is asked of a sample before it is written."""

    min_score: float | None = None
    valid_only: bool = True
    """False: also samples without a valid score, where the format can hold them."""

    best_of_group: bool = False
    """Only the best answer to each input."""

    margin: float = 0.0
    """How much better the chosen answer of a pair must be; with 0 any difference will do."""

    dedupe: bool = False
    """Only the first of conversations in the same words."""

    limit: int | None = None
    """How many rows are written at most."""

    def __post_init__(self) -> None:
        for name in ("min_score", "margin"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ConfigError(f"{name}={value} is not a finite number", where="Selection")
        if self.margin < 0:
            raise ConfigError(f"margin={self.margin} is less than 0", where="Selection")
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"limit={self.limit} is less than 1", where="Selection")


def find_exclusion(sample: Sample, selection: Selection, takes: RowContent) -> str | None:
    """Why a sample is not asked for; None when it is."""
    if problem := _find_invalid_reason(sample, selection, takes):
        return problem
    # Of labels, those below are the bad examples.
    if selection.min_score is None or takes in ("labels", "pairs"):
        return None
    if sample.reward is None:
        return None if takes == "samples" and not selection.valid_only else NOT_JUDGED
    return TOO_LOW if sample.reward < selection.min_score else None


def _find_invalid_reason(sample: Sample, selection: Selection, takes: RowContent) -> str | None:
    broken = sample.failure is not None or sample.status == Status.FAILED
    if takes == "samples" and not selection.valid_only:
        return None
    if takes == "prompts" and (not selection.valid_only or _is_unrun(sample)):
        return None
    # What a broken rollout said is never learned from.
    if broken:
        return FAILED
    if sample.reward is not None:
        return None
    needs_score = selection.valid_only or takes in ("pairs", "labels")
    return NOT_JUDGED if needs_score else None


def _is_unrun(sample: Sample) -> bool:
    """Whether this is a row of a dataset that was never run: there is nothing to be valid."""
    return (
        sample.trajectory is None
        and sample.score is None
        and sample.failure is None
        and sample.status == Status.PENDING
    )
