"""What judging costs: every call to a judge is counted, the wasted ones too."""

from dataclasses import dataclass
from typing import Any

from assay.types import ModelCall


@dataclass
class Spending:
    """Calls to judges, and what they consumed. Unknown is counted, never taken for 0."""

    calls: int = 0
    asked_again: int = 0
    """Calls made because an answer could not be used."""

    failed: int = 0
    """Calls that brought no answer."""

    input_tokens: int = 0
    output_tokens: int = 0
    tokens_unknown: int = 0
    known_cost_usd: float = 0.0
    cost_unknown: int = 0
    """Answered calls whose cost is not known, and not in `known_cost_usd`."""

    @property
    def cost_usd(self) -> float | None:
        """What all calls cost; None when one of them is unknown."""
        return None if self.cost_unknown else self.known_cost_usd

    def add(self, call: ModelCall, *, again: bool = False) -> None:
        """Count a call that was answered."""
        self.calls += 1
        self.asked_again += again
        usage = call.usage
        if usage is None or usage.input_tokens is None or usage.output_tokens is None:
            self.tokens_unknown += 1
        else:
            self.input_tokens += usage.input_tokens
            self.output_tokens += usage.output_tokens
        if usage is None or usage.cost_usd is None:
            self.cost_unknown += 1
        else:
            self.known_cost_usd += usage.cost_usd

    def include(self, other: "Spending") -> None:
        """Add what somebody else spent."""
        for name in vars(other):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def plain(self) -> dict[str, Any]:
        """The counts as plain values."""
        return {**vars(self), "cost_usd": self.cost_usd}

    def words(self) -> str:
        """The cost in a few words."""
        if self.cost_usd is not None:
            return f"${self.cost_usd:.4f}"
        return f"unknown (at least ${self.known_cost_usd:.4f}; {self.cost_unknown} calls unknown)"
