"""What judging cost: unknown is counted, never 0."""

from assay.scorers import Spending
from assay.types import ModelCall, Usage


def test_known_calls_are_added_up() -> None:
    spent, more = Spending(), Spending()
    spent.add(ModelCall(usage=Usage(input_tokens=10, output_tokens=2, cost_usd=0.25)))
    more.add(ModelCall(usage=Usage(input_tokens=1, output_tokens=1, cost_usd=0.25)), again=True)

    spent.include(more)

    assert (spent.calls, spent.asked_again, spent.input_tokens) == (2, 1, 11)
    assert spent.cost_usd == 0.5
    assert spent.words() == "$0.5000"
    assert spent.plain()["cost_usd"] == 0.5


def test_one_unknown_call_makes_the_cost_a_lower_bound() -> None:
    spent = Spending()
    spent.add(ModelCall(usage=Usage(input_tokens=10, output_tokens=2, cost_usd=0.25)))
    spent.add(ModelCall())

    assert spent.cost_usd is None
    assert spent.tokens_unknown == 1
    assert spent.words() == "unknown (at least $0.2500; 1 calls unknown)"
