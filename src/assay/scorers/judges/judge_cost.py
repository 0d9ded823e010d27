"""The cost of judging: every call to a judge is counted, retries and failures included."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from assay.types import ModelCall


@dataclass
class Spending:
    """Calls to judges and their usage. Unknown usage is counted, never taken for 0."""

    calls: int = 0
    asked_again: int = 0
    """Retries after an answer that could not be used."""

    failed: int = 0
    """Calls without an answer."""

    input_tokens: int = 0
    output_tokens: int = 0
    tokens_unknown: int = 0
    known_cost_usd: float = 0.0
    cost_unknown: int = 0
    """Answered calls of unknown cost, which `known_cost_usd` does not include."""

    models: Counter[str] = field(default_factory=Counter)
    """Answered calls by the name of the model that the API reported."""

    @property
    def cost_usd(self) -> float | None:
        """The cost of all calls; None when the cost of one is unknown."""
        return None if self.cost_unknown else self.known_cost_usd

    def add(self, call: ModelCall, *, again: bool = False) -> None:
        """Count a call that was answered."""
        self.calls += 1
        self.asked_again += again
        if call.model:
            self.models[call.model] += 1
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
        """Add the counts of another instance."""
        for name in vars(other):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def plain(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        return {**vars(self), "cost_usd": self.cost_usd}

    def words(self) -> str:
        """Describe the cost in a few words."""
        if self.cost_usd is not None:
            return f"${self.cost_usd:.4f}"
        return f"unknown (at least ${self.known_cost_usd:.4f}; {self.cost_unknown} calls unknown)"
