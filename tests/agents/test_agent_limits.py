"""What is counted against limits, and which limit is named."""

import pytest

from assay.agents import Limits
from assay.agents.agent_limits import RolloutBudget
from assay.providers.active_time import ActiveTimer
from assay.types import Usage

FIVE = Usage(input_tokens=3, output_tokens=2, cost_usd=0.05)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_turns=2), "max_turns"),
        (Limits(max_tokens=10), "max_tokens"),
        (Limits(max_cost_usd=0.1), "max_cost_usd"),
    ],
)
def test_a_limit_is_used_up_when_it_is_reached(limits: Limits, reason: str) -> None:
    spent = RolloutBudget(limits, ActiveTimer())

    assert [spent.add(FIVE), spent.add(FIVE)] == [None, reason]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_tokens=10), "max_tokens (usage unknown)"),
        (Limits(max_cost_usd=0.1), "max_cost_usd (price unknown)"),
    ],
)
def test_what_was_once_unknown_stays_so(limits: Limits, reason: str) -> None:
    spent = RolloutBudget(limits, ActiveTimer())

    assert [spent.add(None), spent.add(FIVE)] == [reason, reason]


def test_seconds_are_named_before_turns_that_ran_out_with_them() -> None:
    spent = RolloutBudget(Limits(max_turns=1, max_seconds=1e-9), ActiveTimer())

    assert spent.add(FIVE) == "max_seconds"
