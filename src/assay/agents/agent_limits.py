"""The limits of one rollout, and its spending against them."""

from pydantic import BaseModel, ConfigDict, Field

from assay.providers import ActiveTimer, UsageTotals
from assay.types import Usage


class Limits(BaseModel):
    """Limits of one rollout. None: no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_turns: int | None = Field(default=50, gt=0)
    """Answers of the model."""

    max_tokens: int | None = Field(default=None, gt=0)
    """Tokens read and written, over all turns."""

    max_seconds: float | None = Field(default=None, gt=0)
    """Active time: excludes queueing for a request slot, and closing the environment."""

    max_cost_usd: float | None = Field(default=None, gt=0)


class RolloutBudget:
    """The turns, tokens and dollars that a running rollout has spent."""

    _turns = 0

    def __init__(self, limits: Limits, timer: ActiveTimer) -> None:
        self._limits = limits
        self._timer = timer
        self._totals = UsageTotals()

    def add(self, usage: Usage | None) -> str | None:
        """Count one more turn. Return the name of the limit it exhausts, or None."""
        self._turns += 1
        self._totals.add(usage)
        limits = self._limits
        if limits.max_seconds is not None and self._timer.spent_s >= limits.max_seconds:
            return "max_seconds"
        if limits.max_turns is not None and self._turns >= limits.max_turns:
            return "max_turns"
        return self._totals.find_limit(
            max_tokens=limits.max_tokens, max_cost_usd=limits.max_cost_usd
        )
