"""Points in time as agents write them."""

import pytest

from assay.sessions.foreign_values import format_iso_time, parse_iso_ms


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1970-01-01T00:00:01.250Z", 1250),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:02", 2000),
        ("yesterday", None),
        (None, None),
        (7, None),
    ],
)
def test_a_time_is_read_or_unknown(text: object, found: int | None) -> None:
    assert parse_iso_ms(text) == found


def test_a_time_is_in_utc_with_milliseconds() -> None:
    assert format_iso_time(1_771_061_400_125) == "2026-02-14T09:30:00.125Z"
