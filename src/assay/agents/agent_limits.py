"""What one rollout may spend before it is cut short."""

from pydantic import BaseModel, ConfigDict, Field

from assay.providers import ActiveTimer
from assay.types import Usage


class Limits(BaseModel):
    """Bounds of one rollout. None: no bound."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_turns: int | None = Field(default=50, gt=0)
    """Answers of the model."""

    max_tokens: int | None = Field(default=None, gt=0)
    """Tokens read and written, over all turns."""

    max_seconds: float | None = Field(default=None, gt=0)
    """Of its own time: without waits for a turn to send a request, and without closing."""

    max_cost_usd: float | None = Field(default=None, gt=0)


class RolloutBudget:
    """What one rollout that goes on has spent so far."""

    _turns = 0
    _tokens: int | None = 0
    _cost_usd: float | None = 0.0

    def __init__(self, limits: Limits, own: ActiveTimer) -> None:
        self._limits = limits
        self._own = own

    def add(self, usage: Usage | None) -> str | None:
        """Count one more turn. The name of the limit that is used up by it, or None."""
        self._turns += 1
        if usage is None or usage.input_tokens is None or usage.output_tokens is None:
            self._tokens = None
        elif self._tokens is not None:
            self._tokens += usage.input_tokens + usage.output_tokens
        if usage is None or usage.cost_usd is None:
            self._cost_usd = None
        elif self._cost_usd is not None:
            self._cost_usd += usage.cost_usd
        return self._find_exceeded_limit()

    def _find_exceeded_limit(self) -> str | None:
        limits = self._limits
        if limits.max_seconds is not None and self._own.spent_s >= limits.max_seconds:
            return "max_seconds"
        if limits.max_turns is not None and self._turns >= limits.max_turns:
            return "max_turns"
        # What is unknown cannot be bounded.
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
