"""Redacts the strings in plain values. In encoded JSON, an escape before a key would hide it."""

from collections.abc import Iterator
from typing import Any

from assay.types import redact

# Between strings that are redacted together, which is many times faster than one by one.
_SEPARATOR = "\n\x1e\n"


def redact_values(value: Any) -> Any:
    """Return plain values without a secret in any of their strings and names."""
    strings = list(_list_strings(value))
    joined = _SEPARATOR.join(strings)
    cleaned = redact(joined)
    if cleaned == joined:
        return value
    parts = cleaned.split(_SEPARATOR)
    if len(parts) != len(strings):
        # A pattern matched across the end of a string.
        parts = list(map(redact, strings))
    return _replace_strings(value, iter(parts))


def _list_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _list_strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _list_strings(inner)


def _replace_strings(value: Any, parts: Iterator[str]) -> Any:
    if isinstance(value, str):
        return next(parts)
    if isinstance(value, dict):
        return {next(parts): _replace_strings(inner, parts) for inner in value.values()}
    if isinstance(value, list):
        return [_replace_strings(inner, parts) for inner in value]
    return value
