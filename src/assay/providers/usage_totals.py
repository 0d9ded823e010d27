"""The tokens and cost of several model calls, held against limits."""

from assay.types import Usage


class UsageTotals:
    """Sums over calls. Once one call has no usage, the sum stays unknown: it would be too low."""

    def __init__(self) -> None:
        self.tokens: int | None = 0
        self.cost_usd: float | None = 0.0

    def add(self, usage: Usage | None) -> None:
        """Count one more call."""
        if usage is None or usage.input_tokens is None or usage.output_tokens is None:
            self.tokens = None
        elif self.tokens is not None:
            self.tokens += usage.input_tokens + usage.output_tokens
        if usage is None or usage.cost_usd is None:
            self.cost_usd = None
        elif self.cost_usd is not None:
            self.cost_usd += usage.cost_usd

    def find_limit(self, *, max_tokens: int | None, max_cost_usd: float | None) -> str | None:
        """Return the name of the limit that is reached, or None.

        A limit on an unknown amount cannot be enforced, so it counts as reached.
        """
        if max_tokens is not None:
            if self.tokens is None:
                return "max_tokens (usage unknown)"
            if self.tokens >= max_tokens:
                return "max_tokens"
        if max_cost_usd is not None:
            if self.cost_usd is None:
                return "max_cost_usd (price unknown)"
            if self.cost_usd >= max_cost_usd:
                return "max_cost_usd"
        return None
