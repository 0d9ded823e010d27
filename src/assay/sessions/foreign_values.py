"""Read values of recorded files, which may have any type. A value of a wrong type is unknown."""

from datetime import UTC, datetime
from sys import float_info
from typing import Any


def text_or_none(value: object) -> str | None:
    """Return a non-empty string, or None for any other value."""
    return value if isinstance(value, str) and value else None


def str_or_none(value: object) -> str | None:
    """Return a string, and None for a value of another type."""
    return value if isinstance(value, str) else None


def dict_or_empty(value: object) -> dict[str, Any]:
    """Return an object, and an empty one for a value of another type."""
    return value if isinstance(value, dict) else {}


def list_or_empty(value: object) -> list[Any]:
    """Return a list, and an empty one for a value of another type."""
    return value if isinstance(value, list) else []


def parse_token_count(value: object) -> int | None:
    """Return a number of tokens, or None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    return int(value)


def parse_cost(value: object) -> float | None:
    """Return an amount of money, or None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # A file may contain any number, also one that a float cannot hold.
    return float(value) if 0 <= value <= float_info.max else None


def parse_epoch_ms(value: object) -> int | None:
    """Return OpenCode's milliseconds since 1970, or None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Up to the year 9999, the last that `datetime` supports.
    return int(value) if 0 <= value < 253_402_300_800_000 else None


def parse_iso_ms(text: object) -> int | None:
    """Parse ISO 8601 to milliseconds since 1970, in UTC without an offset; None if invalid."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def format_iso_time(milliseconds: int) -> str:
    """Format milliseconds since 1970, such as `2026-02-14T09:30:00.125Z`."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
