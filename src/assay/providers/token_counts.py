"""Token ids, logprobs and token counts in the answers of servers."""

from collections.abc import Mapping
from typing import Any

from assay.types import Usage, validate

from .prices import Price, add_cost

_ID_PREFIX = "token_id:"
# Larger integers are not exact in JSON, and no call has as many tokens.
_MAX_TOKEN_COUNT = 2**53
_MAX_LOGPROB = 1e300
_COUNT_FIELDS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")


def read_openai_usage(
    usage: Any, price: Price | None, *, names: tuple[str, str] = ("prompt", "completion")
) -> Usage | None:
    """Read the usage of OpenAI's APIs, which name input and output differently."""
    if not isinstance(usage, dict):
        return None
    given, made = (usage.get(f"{name}_tokens_details") for name in names)
    fields = {
        "input_tokens": usage.get(f"{names[0]}_tokens"),
        "output_tokens": usage.get(f"{names[1]}_tokens"),
        "cached_tokens": given.get("cached_tokens") if isinstance(given, dict) else None,
        "reasoning_tokens": made.get("reasoning_tokens") if isinstance(made, dict) else None,
    }
    return add_cost(drop_absurd_counts(validate(Usage, fields)), price)


def count_separate_cache(given: Any, made: Any, *, read: Any, written: Any) -> tuple[Usage, int]:
    """Return the usage of APIs that count cached input separately, and the tokens cached anew.

    `Usage.input_tokens` includes both.
    """
    anew = written if isinstance(written, int) else 0
    parts = (0 if given is None else given, read or 0, anew)
    fields = {
        "input_tokens": None if given is None or min(parts) < 0 else sum(parts),
        "output_tokens": made,
        "cached_tokens": read,
        **({"cache_write_tokens": anew} if anew > 0 else {}),
    }
    return drop_absurd_counts(Usage.model_validate(fields)), anew


def drop_absurd_counts(usage: Usage) -> Usage:
    """Set counts that are negative or absurdly large to unknown."""
    # Unrolled: this runs for every call, and almost always returns here.
    if (
        0 <= (usage.input_tokens or 0) <= _MAX_TOKEN_COUNT
        and 0 <= (usage.output_tokens or 0) <= _MAX_TOKEN_COUNT
        and 0 <= (usage.cached_tokens or 0) <= _MAX_TOKEN_COUNT
        and 0 <= (usage.reasoning_tokens or 0) <= _MAX_TOKEN_COUNT
    ):
        return usage
    known = {name: getattr(usage, name) or 0 for name in _COUNT_FIELDS}
    absurd = [name for name, count in known.items() if not 0 <= count <= _MAX_TOKEN_COUNT]
    return usage.model_copy(update=dict.fromkeys(absurd))


def prompt_ids(answer: Mapping[str, Any], choice: Mapping[str, Any]) -> list[int] | None:
    """Return the prompt ids. vLLM sends them beside the choices with `return_token_ids`."""
    return _read_ids(answer.get("prompt_token_ids")) or _read_ids(choice.get("prompt_token_ids"))


def completion_ids(choice: Mapping[str, Any]) -> list[int] | None:
    """Return the sampled ids, sent as such or as `token_id:N` in the logprobs."""
    given = _read_ids(choice.get("token_ids"))
    if given is not None:
        return given
    entries = _read_logprob_entries(choice)
    if not entries:
        return None
    ids = []
    for entry in entries:
        token = entry.get("token")
        if not isinstance(token, str) or not token.startswith(_ID_PREFIX):
            return None
        digits = token.removeprefix(_ID_PREFIX)
        # `isdigit` alone accepts other scripts, and a long number is not a token id.
        if not digits.isascii() or not digits.isdigit() or len(digits) >= 12:
            return None
        ids.append(int(digits))
    return ids


def read_logprobs(choice: Mapping[str, Any], ids: int | None) -> dict[str, Any]:
    """Return the field `logprobs`, or the reason why it is omitted.

    They must be finite, and as many as `ids` where those are known.
    """
    entries = _read_logprob_entries(choice)
    if entries is None:
        return {}
    values = [entry.get("logprob") for entry in entries]
    # Compared, not `isfinite`: a server may send an integer that is larger than any float.
    if any(not isinstance(value, int | float) or not abs(value) < _MAX_LOGPROB for value in values):
        return {"logprobs_left_out": "not all are finite numbers"}
    if ids is not None and len(values) != ids:
        return {"logprobs_left_out": f"{len(values)} for {ids} token ids"}
    return {"logprobs": values}


def _read_logprob_entries(choice: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        return None
    return content


def _read_ids(value: Any) -> list[int] | None:
    if not isinstance(value, list) or any(type(number) is not int for number in value):
        return None
    return value
