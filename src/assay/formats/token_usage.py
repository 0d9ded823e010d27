"""Token counts in the formats of providers and agent libraries."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from assay.types import Usage

# Larger integers are not exact in JSON, and no call has as many tokens.
_MAX_COUNT = 2**53
_INPUT_KEYS = (
    *("input_tokens", "prompt_tokens", "prompt_token_count", "promptTokenCount"),
    "request_tokens",
)
_OUTPUT_KEYS = (
    *("output_tokens", "completion_tokens", "candidates_token_count", "candidatesTokenCount"),
    "response_tokens",
)
_CACHED_KEYS = (
    *("cached_tokens", "cache_read_input_tokens", "cache_read_tokens", "cache_read"),
    *("cached_content_token_count", "cachedContentTokenCount"),
)
_REASONING_KEYS = (
    *("reasoning_tokens", "output_reasoning_tokens", "thinking_tokens", "reasoning"),
    *("thoughts_token_count", "thoughtsTokenCount"),
)
# Where the parts of both counts are found beside them: OpenAI's names, LangChain's, pydantic-ai's.
_INPUT_DETAILS = ("input_tokens_details", "prompt_tokens_details", "input_token_details")
_OUTPUT_DETAILS = (
    *("output_tokens_details", "completion_tokens_details", "output_token_details"),
    "details",
)


def read_token_usage(value: object) -> Usage | None:
    """Return the counts of a usage object of any known format; None if it has none.

    Input counts include cached tokens and output counts include reasoning, whatever the format.
    """
    if not isinstance(value, Mapping) or _find_count(value, ("unmeasured_requests",)):
        return None
    given, made = _find_count(value, _INPUT_KEYS), _find_count(value, _OUTPUT_KEYS)
    # An answer has both; two zeros are the defaults of a library to which nothing was reported.
    if not given and not made:
        return None
    if given is not None and "input_tokens" in value:
        # Anthropic counts cached input separately.
        for key in ("cache_read_input_tokens", "cache_creation_input_tokens"):
            given += _find_count(value, (key,)) or 0
    # Gemini counts the prompts of tools and its thoughts separately.
    beside = _find_count(value, ("tool_use_prompt_token_count", "toolUsePromptTokenCount"))
    thoughts = _find_count(value, ("thoughts_token_count", "thoughtsTokenCount"))
    return Usage(
        input_tokens=None if given is None else given + (beside or 0),
        output_tokens=None if made is None else made + (thoughts or 0),
        cached_tokens=_find_part(value, _CACHED_KEYS, _INPUT_DETAILS),
        reasoning_tokens=_find_part(value, _REASONING_KEYS, _OUTPUT_DETAILS),
        cost_usd=_find_cost(value),
    )


def add_usage(first: Usage | None, second: Usage | None) -> Usage | None:
    """Add the counts that are known."""
    if first is None or second is None:
        return second if first is None else first
    sums = {}
    for name in Usage.model_fields:
        known = [
            count for each in (first, second) if (count := getattr(each, name, None)) is not None
        ]
        sums[name] = sum(known) if known else None
    return Usage(**sums)


def _find_count(value: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        count = value.get(key)
        if type(count) is int and 0 <= count <= _MAX_COUNT:
            return count
    return None


def _find_part(
    value: Mapping[str, Any], keys: tuple[str, ...], details: tuple[str, ...]
) -> int | None:
    found = _find_count(value, keys)
    for key in details:
        nested = value.get(key)
        if found is None and isinstance(nested, Mapping):
            found = _find_count(nested, keys)
    return found


def _find_cost(value: Mapping[str, Any]) -> float | None:
    cost = value.get("cost_usd", value.get("cost"))
    if isinstance(cost, bool) or not isinstance(cost, int | float | str):
        return None
    try:
        known = float(cost)
    except (ValueError, OverflowError):
        return None
    return known if isfinite(known) and known >= 0 else None
