"""Token counts of the versions, brought to one meaning."""

from typing import Any

import pytest

from assay.sessions.opencode.usage import read_usage

CACHE = {"read": 20, "write": 0}
COUNTED = {
    "1.18, measured": (
        {"total": 132, "input": 100, "output": 9, "reasoning": 3, "cache": CACHE},
        "1.18.33",
    ),
    "1.1, where the output includes reasoning": (
        {"total": 132, "input": 100, "output": 12, "reasoning": 3, "cache": CACHE},
        "1.1.65",
    ),
    "1.0, without a total": ({"input": 100, "output": 12, "reasoning": 3, "cache": CACHE}, "1.0"),
    "0.5, where the input is the whole prompt": (
        {"input": 120, "output": 12, "reasoning": 3, "cache": CACHE},
        "0.5.29",
    ),
}


@pytest.mark.parametrize(("tokens", "version"), COUNTED.values(), ids=COUNTED)
def test_the_same_call_is_counted_the_same(tokens: dict[str, Any], version: str) -> None:
    usage = read_usage(tokens, 0.000126, version=version)

    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (120, 12)
    assert (usage.cached_tokens, usage.reasoning_tokens) == (20, 3)
    assert usage.cost_usd == 0.000126


@pytest.mark.parametrize(
    "tokens", [None, 3, {}, {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0}}]
)
def test_nothing_counted_is_unknown_and_not_zero(tokens: Any) -> None:
    assert read_usage(tokens, 0, version="1.18.33") is None


def test_a_count_that_cannot_be_one_is_unknown() -> None:
    usage = read_usage({"input": -1, "output": 4, "cache": "x"}, "free", version="1.0")

    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (None, 4, None)
