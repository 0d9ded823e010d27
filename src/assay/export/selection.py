"""Select samples, with a reason for each one that is excluded."""

import math
from dataclasses import dataclass
from typing import Literal

from assay.errors import ConfigError
from assay.types import Sample, Status, reaches_threshold

RowContent = Literal["answers", "prompts", "pairs", "labels", "tokens", "samples"]
"""The part of a sample that becomes a row: the answer, the prompt, or all of it."""

FAILED = "failed"
NOT_JUDGED = "not judged"
TOO_LOW = "score too low"


@dataclass(frozen=True)
class Selection:
    """The conditions for a sample to be written."""

    min_score: float | None = None
    valid_only: bool = True
    """False: also samples without a valid score, where the format allows them."""

    best_of_group: bool = False
    """Only the best answer to each input."""

    margin: float = 0.0
    """How much better the chosen answer of a pair must be; with 0 any difference is enough."""

    dedupe: bool = False
    """Only the first of identical conversations."""

    limit: int | None = None
    """The maximum number of rows."""

    def __post_init__(self) -> None:
        for name in ("min_score", "margin"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ConfigError(f"{name}={value} is not a finite number", where="Selection")
        if self.margin < 0:
            raise ConfigError(f"margin={self.margin} is less than 0", where="Selection")
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"limit={self.limit} is less than 1", where="Selection")

    def accepts_score(self, score: float) -> bool:
        """Whether a score is not below `min_score`."""
        return self.min_score is None or reaches_threshold(score, self.min_score)


def find_exclusion(sample: Sample, selection: Selection, takes: RowContent) -> str | None:
    """Return the reason why a sample is excluded, or None."""
    failed = sample.failure is not None or sample.status == Status.FAILED
    any_score = not selection.valid_only and takes in ("samples", "prompts")
    if takes == "prompts" and sample.trajectory is None and sample.score is None and not failed:
        # A dataset row that was never run has no score that could be valid; its prompt is usable.
        any_score = any_score or sample.status == Status.PENDING
    if not any_score:
        # The messages of a failed rollout are never training data.
        if failed:
            return FAILED
        # A pair is ranked by its scores and a label decided by one, so both need a valid score.
        needs_score = selection.valid_only or takes in ("pairs", "labels")
        if sample.reward is None and needs_score:
            return NOT_JUDGED
    # With labels, samples below the minimum are the undesirable examples; in pairs, the rejected.
    if selection.min_score is None or takes in ("labels", "pairs"):
        return None
    if sample.reward is None:
        return None if takes == "samples" and not selection.valid_only else NOT_JUDGED
    return None if selection.accepts_score(sample.reward) else TOO_LOW
