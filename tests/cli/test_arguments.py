"""Dates and times as options of commands."""

from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta

import pytest

from assay.cli.arguments import parse_moment


@pytest.mark.parametrize(("given", "hours"), [("2h", 2), ("3d", 72), ("1w", 168)])
def test_a_time_ago_is_understood(given: str, hours: int) -> None:
    before = datetime.now(UTC)

    assert before <= parse_moment(given) + timedelta(hours=hours) <= datetime.now(UTC)


def test_a_date_without_a_zone_is_in_utc() -> None:
    assert parse_moment("2026-02-14") == datetime(2026, 2, 14, tzinfo=UTC)
    assert parse_moment("2026-02-14T01:00+01:00") == datetime(2026, 2, 14, tzinfo=UTC)


@pytest.mark.parametrize("given", ["", "soon", "3", "-3d", "2026-13-01"])
def test_anything_else_is_refused_with_examples(given: str) -> None:
    with pytest.raises(ArgumentTypeError, match="neither a date such as 2026-02-14 nor an age"):
        parse_moment(given)
