"""Format OpenCode's timestamps as ISO 8601."""

from datetime import UTC, datetime


def format_iso_time(milliseconds: int) -> str:
    """Format milliseconds since 1970, such as `2026-02-14T09:30:00.125Z`."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
