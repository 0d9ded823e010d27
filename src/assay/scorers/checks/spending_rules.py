"""Limits on turns, tokens and cost. A check on unknown usage is unscored, never passed."""

from typing import Annotated, ClassVar

from pydantic import Field

from assay.types import Usage

from .check_entry import CheckEntry, Number, WholeNumber
from .conversation import AgentScope, ConversationView
from .findings import CheckFinding, mark_unscored


class MaxTurns(CheckEntry):
    """Pass when the conversation has at most so many turns, of both sides together."""

    max_turns: Annotated[WholeNumber, Field(ge=1)]

    def judge(self, reading: ConversationView) -> CheckFinding:
        if why := reading.unscored_reason:
            return mark_unscored(why)
        count = len(reading.turns)
        turns = "1 turn" if count == 1 else f"{count} turns"
        return CheckFinding(count <= self.max_turns, f"{turns}, at most {self.max_turns} allowed")


class SpendingRule(CheckEntry):
    """Limits the sum of all model calls."""

    scope: AgentScope = "all"
    amount_format: ClassVar[str]

    def get_spending(self, usage: Usage) -> float | None:
        """Return the amount that one call used; None is unknown."""
        raise NotImplementedError

    def limit_spending(self, reading: ConversationView, most: float) -> CheckFinding:
        """Pass when all calls together used at most `most`."""
        if why := reading.explain_unscored(self.scope):
            return mark_unscored(why)
        calls = [
            call
            for each in reading.list_conversations(self.scope)
            if each.sample.trajectory is not None
            for call in each.sample.trajectory.calls
        ]
        if not calls:
            return mark_unscored("no model call is recorded, so the usage is unknown")
        found = [None if call.usage is None else self.get_spending(call.usage) for call in calls]
        known = [amount for amount in found if amount is not None]
        # The calls whose amount is known; the others are counted below.
        total, allowed = sum(known), f"at most {self.amount_format.format(most)} allowed"
        # Unknown calls can only add to the total: above the limit the check fails either way.
        within = _is_within_limit(total, most)
        if within and len(known) < len(calls):
            unknown = f"{len(calls) - len(known)} of {_format_model_calls(len(calls))}"
            return mark_unscored(f"the usage is unknown for {unknown}; {allowed}")
        counted = f"{self.amount_format.format(total)} in {_format_model_calls(len(known))}"
        return CheckFinding(within, f"{counted}, {allowed}")


class MaxTokens(SpendingRule):
    """Pass when all model calls together used at most so many tokens, input and output."""

    max_tokens: Annotated[WholeNumber, Field(ge=0)]
    amount_format = "{:.0f} tokens"

    def get_spending(self, usage: Usage) -> float | None:
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        return usage.input_tokens + usage.output_tokens

    def judge(self, reading: ConversationView) -> CheckFinding:
        return self.limit_spending(reading, self.max_tokens)


class MaxCost(SpendingRule):
    """Pass when all model calls together cost at most so many US dollars."""

    max_cost: Annotated[Number, Field(ge=0)]
    amount_format = "${:.6g}"

    def get_spending(self, usage: Usage) -> float | None:
        return usage.cost_usd

    def judge(self, reading: ConversationView) -> CheckFinding:
        trajectory = reading.sample.trajectory
        total = None if trajectory is None else trajectory.cost_usd
        # The total of a session includes its subagents.
        if total is None or self.scope != "all" or reading.explain_unscored(self.scope):
            return self.limit_spending(reading, self.max_cost)
        reason = f"${total:.6g} in total, at most ${self.max_cost:.6g} allowed"
        return CheckFinding(_is_within_limit(total, self.max_cost), reason)


def _is_within_limit(total: float, most: float) -> bool:
    # Three calls of $0.1 cost 0.30000000000000004 as a sum of floats.
    return total <= most * (1 + 1e-12)


def _format_model_calls(count: int) -> str:
    return "1 model call" if count == 1 else f"{count} model calls"
