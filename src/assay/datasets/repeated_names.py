"""Names that occur twice where each may occur once: keys of an object, columns of a table."""

from collections.abc import Iterable


def find_duplicate(names: Iterable[str]) -> str | None:
    """The first name that was there before, in one pass over the names; None if all differ."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
