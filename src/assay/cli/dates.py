"""Points in time as option values: a date, a time, or an age."""

import re
from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta

_AGE_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def parse_moment(text: str) -> datetime:
    """Parse a date, an ISO 8601 time (UTC without an offset), or an age such as `30d`."""
    if ago := re.fullmatch(r"(\d{1,6})([hdw])", text):
        return datetime.now(UTC) - int(ago[1]) * _AGE_UNITS[ago[2]]
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is neither a date such as 2026-02-14 nor an age such as 30d"
        ) from None
    # Local time would make the same command mean different runs on different machines.
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
