"""Timestamps as agents write them."""

from datetime import UTC, datetime


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
