"""Milliseconds as ISO 8601."""

from assay.sessions.opencode.timestamps import format_iso_time


def test_a_time_is_in_utc_with_milliseconds() -> None:
    assert format_iso_time(1_771_061_400_125) == "2026-02-14T09:30:00.125Z"
