"""Duplicate names: keys of an object, columns of a table."""

from collections.abc import Iterable


def find_duplicate(names: Iterable[str]) -> str | None:
    """Return the first name that repeats an earlier one, or None."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
