"""Rules about how long a conversation was and what it consumed. What is unknown is not judged."""

from collections.abc import Callable

from assay.types import Usage

from .conversation import Agents, Reading
from .findings import Finding, Rule, not_judged
from .targets import read_agents
from .yaml_node import Located


def read_max_turns(check: Located) -> Rule:
    """Passes when the conversation has at most so many turns, of both sides together."""
    most = check.at("max_turns").whole_number(lowest=1)

    def rule(reading: Reading) -> Finding:
        if why := reading.unjudgeable:
            return not_judged(why)
        count = len(reading.turns)
        turns = "1 turn" if count == 1 else f"{count} turns"
        return Finding(count <= most, f"{turns}, at most {most} allowed")

    return rule


def read_max_tokens(check: Located) -> Rule:
    """Passes when all model calls together took at most so many tokens, input and output."""
    most = check.at("max_tokens").whole_number(lowest=0)
    return _spent_at_most(most, _tokens, "{:g} tokens", read_agents(check))


def read_max_cost(check: Located) -> Rule:
    """Passes when all model calls together cost at most so many US dollars."""
    most = check.at("max_cost").number(lowest=0)
    agents = read_agents(check)
    by_calls = _spent_at_most(most, lambda usage: usage.cost_usd, "${:.6g}", agents)

    def rule(reading: Reading) -> Finding:
        trajectory = reading.sample.trajectory
        total = None if trajectory is None else trajectory.cost_usd
        # The total of a session includes its subagents.
        if total is None or agents != "all" or reading.why_unjudgeable(agents):
            return by_calls(reading)
        return Finding(total <= most, f"${total:.6g} in total, at most ${most:.6g} allowed")

    return rule


def _tokens(usage: Usage) -> float | None:
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return usage.input_tokens + usage.output_tokens


def _spent_at_most(
    most: float, spent_by: Callable[[Usage], float | None], shown: str, agents: Agents
) -> Rule:
    def rule(reading: Reading) -> Finding:
        if why := reading.why_unjudgeable(agents):
            return not_judged(why)
        calls = [
            call
            for each in reading.conversations(agents)
            if each.sample.trajectory is not None
            for call in each.sample.trajectory.calls
        ]
        if not calls:
            return not_judged("no model call is recorded, so what was spent is not known")
        found = [None if call.usage is None else spent_by(call.usage) for call in calls]
        known = [amount for amount in found if amount is not None]
        total, allowed = sum(known), f"at most {shown.format(most)} allowed"
        if total > most:
            # Whatever the others took, it can only be more.
            return Finding(False, f"{shown.format(total)} in {_calls(len(known))}, {allowed}")
        if len(known) < len(calls):
            unknown = f"not known for {len(calls) - len(known)} of {_calls(len(calls))}"
            return not_judged(f"what was spent is {unknown}; {allowed}")
        return Finding(True, f"{shown.format(total)} in {_calls(len(calls))}, {allowed}")

    return rule


def _calls(count: int) -> str:
    return "1 model call" if count == 1 else f"{count} model calls"
