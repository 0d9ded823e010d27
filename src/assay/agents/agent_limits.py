"""The limits of one rollout, and its spending against them."""

from pydantic import BaseModel, ConfigDict, Field

from assay.providers import ActiveTimer
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
    _tokens: int | None = 0
    _cost_usd: float | None = 0.0

    def __init__(self, limits: Limits, timer: ActiveTimer) -> None:
        self._limits = limits
        self._timer = timer

    def add(self, usage: Usage | None) -> str | None:
        """Count one more turn. Return the name of the limit it exhausts, or None."""
        self._turns += 1
        # Once one call has no usage, the total stays unknown: a partial sum would understate it.
        if usage is None or usage.input_tokens is None or usage.output_tokens is None:
            self._tokens = None
        elif self._tokens is not None:
            self._tokens += usage.input_tokens + usage.output_tokens
        if usage is None or usage.cost_usd is None:
            self._cost_usd = None
        elif self._cost_usd is not None:
            self._cost_usd += usage.cost_usd
        limits = self._limits
        if limits.max_seconds is not None and self._timer.spent_s >= limits.max_seconds:
            return "max_seconds"
        if limits.max_turns is not None and self._turns >= limits.max_turns:
            return "max_turns"
        # A limit on an unknown amount cannot be enforced, so the rollout ends instead.
        if limits.max_tokens is not None:
            if self._tokens is None:
                return "max_tokens (usage unknown)"
            if self._tokens >= limits.max_tokens:
                return "max_tokens"
        if limits.max_cost_usd is not None:
            if self._cost_usd is None:
                return "max_cost_usd (price unknown)"
            if self._cost_usd >= limits.max_cost_usd:
                return "max_cost_usd"
        return None
