"""Token counts of every known format, in one meaning."""

from typing import Any

import pytest

from assay.formats.token_usage import add_usage, read_token_usage
from assay.types import Usage


@pytest.mark.parametrize(
    ("given", "usage"),
    [
        # OpenAI chat and Responses: inputs include cached tokens, outputs include reasoning.
        (
            {
                "prompt_tokens": 20,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(input_tokens=20, output_tokens=5, cached_tokens=4, reasoning_tokens=2),
        ),
        (
            {
                "input_tokens": 20,
                "output_tokens": 5,
                "input_tokens_details": {"cached_tokens": 4},
                "output_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(input_tokens=20, output_tokens=5, cached_tokens=4, reasoning_tokens=2),
        ),
        # Anthropic counts cached tokens beside the others.
        (
            {
                "input_tokens": 12,
                "cache_read_input_tokens": 5,
                "cache_creation_input_tokens": 2,
                "output_tokens": 7,
                "output_tokens_details": {"thinking_tokens": 3},
            },
            Usage(input_tokens=19, output_tokens=7, cached_tokens=5, reasoning_tokens=3),
        ),
        # A proxy that adds Anthropic's counts to OpenAI's has already included them.
        (
            {"prompt_tokens": 19, "completion_tokens": 7, "cache_read_input_tokens": 5},
            Usage(input_tokens=19, output_tokens=7, cached_tokens=5),
        ),
        # Gemini counts thoughts and the prompts of tools beside the others.
        (
            {
                "promptTokenCount": 10,
                "candidatesTokenCount": 2,
                "thoughtsTokenCount": 4,
                "toolUsePromptTokenCount": 3,
                "cachedContentTokenCount": 1,
                "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}],
            },
            Usage(input_tokens=13, output_tokens=6, cached_tokens=1, reasoning_tokens=4),
        ),
        # LangChain.
        (
            {
                "input_tokens": 5,
                "output_tokens": 2,
                "input_token_details": {"cache_read": 1},
                "output_token_details": {"reasoning": 1},
            },
            Usage(input_tokens=5, output_tokens=2, cached_tokens=1, reasoning_tokens=1),
        ),
        # pydantic-ai, whose cost is a decimal.
        (
            {"input_tokens": 5, "output_tokens": 2, "cache_read_tokens": 1, "cost": "0.25"},
            Usage(input_tokens=5, output_tokens=2, cached_tokens=1, cost_usd=0.25),
        ),
        ({"output_tokens": 2}, Usage(output_tokens=2)),
    ],
)
def test_counts_are_read(given: dict[str, Any], usage: Usage) -> None:
    assert read_token_usage(given) == usage


@pytest.mark.parametrize(
    "given",
    [
        None,
        "12 tokens",
        {},
        {"input_tokens": "12", "output_tokens": True},
        {"input_tokens": -1, "output_tokens": 2**60},
        # Libraries write zeros where a model reported nothing.
        {"input_tokens": 0, "output_tokens": 0},
        {"input_tokens": 5, "output_tokens": 1, "unmeasured_requests": 1},
    ],
)
def test_unknown_counts_are_none(given: object) -> None:
    assert read_token_usage(given) is None


@pytest.mark.parametrize("cost", ["much", -1, float("inf"), True, None, [1]])
def test_an_odd_cost_is_unknown(cost: object) -> None:
    usage = read_token_usage({"input_tokens": 1, "output_tokens": 1, "cost": cost})

    assert usage == Usage(input_tokens=1, output_tokens=1)


def test_known_counts_are_added() -> None:
    one = Usage(input_tokens=1, output_tokens=2, cost_usd=0.5)
    two = Usage(input_tokens=10, cached_tokens=3)

    assert add_usage(one, two) == Usage(
        input_tokens=11, output_tokens=2, cached_tokens=3, cost_usd=0.5
    )
    assert add_usage(None, two) == two
    assert add_usage(one, None) == one
    assert add_usage(None, None) is None
