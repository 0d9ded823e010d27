"""Limits on turns, tokens and cost. A check on unknown usage is unscored, never passed."""

from collections.abc import Callable

from assay.types import Usage

from .conversation import AgentScope, ConversationView
from .findings import CheckFinding, Rule, mark_unscored
from .targets import read_agents
from .yaml_node import Node


def read_max_turns(check: Node) -> Rule:
    """Pass when the conversation has at most so many turns, of both sides together."""
    most = check.at("max_turns").whole_number(lowest=1)

    def rule(reading: ConversationView) -> CheckFinding:
        if why := reading.unscored_reason:
            return mark_unscored(why)
        count = len(reading.turns)
        turns = "1 turn" if count == 1 else f"{count} turns"
        return CheckFinding(count <= most, f"{turns}, at most {most} allowed")

    return rule


def read_max_tokens(check: Node) -> Rule:
    """Pass when all model calls together used at most so many tokens, input and output."""
    most = check.at("max_tokens").whole_number(lowest=0)
    return _limit_spending(most, _sum_tokens, "{:g} tokens", read_agents(check))


def read_max_cost(check: Node) -> Rule:
    """Pass when all model calls together cost at most so many US dollars."""
    most = check.at("max_cost").number(lowest=0)
    agents = read_agents(check)
    by_calls = _limit_spending(most, lambda usage: usage.cost_usd, "${:.6g}", agents)

    def rule(reading: ConversationView) -> CheckFinding:
        trajectory = reading.sample.trajectory
        total = None if trajectory is None else trajectory.cost_usd
        # The total of a session includes its subagents.
        if total is None or agents != "all" or reading.explain_unscored(agents):
            return by_calls(reading)
        return CheckFinding(total <= most, f"${total:.6g} in total, at most ${most:.6g} allowed")

    return rule


def _sum_tokens(usage: Usage) -> float | None:
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return usage.input_tokens + usage.output_tokens


def _limit_spending(
    most: float, spent_by: Callable[[Usage], float | None], shown: str, agents: AgentScope
) -> Rule:
    def rule(reading: ConversationView) -> CheckFinding:
        if why := reading.explain_unscored(agents):
            return mark_unscored(why)
        calls = [
            call
            for each in reading.list_conversations(agents)
            if each.sample.trajectory is not None
            for call in each.sample.trajectory.calls
        ]
        if not calls:
            return mark_unscored("no model call is recorded, so the usage is unknown")
        found = [None if call.usage is None else spent_by(call.usage) for call in calls]
        known = [amount for amount in found if amount is not None]
        total, allowed = sum(known), f"at most {shown.format(most)} allowed"
        if total > most:
            # Unknown calls can only add to the total: the check fails either way.
            return CheckFinding(
                False, f"{shown.format(total)} in {_format_model_calls(len(known))}, {allowed}"
            )
        if len(known) < len(calls):
            unknown = f"{len(calls) - len(known)} of {_format_model_calls(len(calls))}"
            return mark_unscored(f"the usage is unknown for {unknown}; {allowed}")
        return CheckFinding(
            True, f"{shown.format(total)} in {_format_model_calls(len(calls))}, {allowed}"
        )

    return rule


def _format_model_calls(count: int) -> str:
    return "1 model call" if count == 1 else f"{count} model calls"
