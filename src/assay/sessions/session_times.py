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


def format_iso_time(milliseconds: int) -> str:
    """Format milliseconds since 1970, such as `2026-02-14T09:30:00.125Z`."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
