"""Points in time as options of commands: a date, a time, or how long ago."""

import re
from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta

_AGE_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def parse_moment(text: str) -> datetime:
    """A date, a time in ISO 8601 (in UTC unless it says otherwise), or so many h, d or w ago."""
    if ago := re.fullmatch(r"(\d{1,6})([hdw])", text):
        return datetime.now(UTC) - int(ago[1]) * _AGE_UNITS[ago[2]]
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is neither a date, such as 2026-02-14, nor a time ago, such as 30d"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
