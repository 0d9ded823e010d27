"""Read the usage of a model call, as stored by any version."""

from typing import Any

from assay.types import Usage

from ..transcripts import parse_token_count


def read_usage(tokens: Any, cost: Any, *, version: str) -> Usage | None:
    """Return the usage of one call, or None if nothing was counted.

    `input_tokens` is the whole prompt and `output_tokens` the whole answer, reasoning included,
    as providers bill them. The counts as they were stored are kept beside them.
    """
    if not isinstance(tokens, dict):
        return None
    cache = tokens.get("cache")
    cache = cache if isinstance(cache, dict) else {}
    given, answer = (
        parse_token_count(tokens.get("input")),
        parse_token_count(tokens.get("output")),
    )
    read, written = parse_token_count(cache.get("read")), parse_token_count(cache.get("write"))
    thought, total = (
        parse_token_count(tokens.get("reasoning")),
        parse_token_count(tokens.get("total")),
    )
    if not any((given, answer, read, written, thought, total)):
        # Failed calls are stored with zeros, which are not a measurement.
        return None
    prompt = given
    if given is not None and not version.startswith("0."):
        # Since 1.0 cached tokens are counted separately.
        prompt = given + (read or 0) + (written or 0)
    if total is not None and prompt is not None and total >= prompt:
        # Versions differ in whether `output` includes reasoning; derive it from the total.
        answer = total - prompt
    return Usage(
        input_tokens=prompt,
        output_tokens=answer,
        cached_tokens=read,
        reasoning_tokens=thought,
        cost_usd=_parse_cost(cost),
        stored=tokens,
    )


def _parse_cost(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    try:
        return float(value)
    except OverflowError:
        return None
