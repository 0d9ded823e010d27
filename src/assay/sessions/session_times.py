"""Points in time as agents write them."""

from datetime import UTC, datetime


def parse_iso_ms(text: object) -> int | None:
    """ISO 8601 as milliseconds since 1970, in UTC unless it says otherwise; None for no time."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
