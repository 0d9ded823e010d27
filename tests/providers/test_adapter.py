"""Losses on the way to a provider, counted."""

from assay.formats.conversion import Dropped
from assay.providers.adapter import count_dropped_fields


def test_losses_are_counted_by_kind() -> None:
    lost = [Dropped(f"messages[{index}].reasoning", "left out") for index in range(3)]

    assert count_dropped_fields([*lost, Dropped("messages[4].name", "renamed")]) == {
        "left out": 3,
        "renamed": 1,
    }
    assert count_dropped_fields([]) is None
