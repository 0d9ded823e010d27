"""Losses on the way to a provider, counted."""

from assay.formats.conversion import Lost
from assay.providers.adapter import counted


def test_losses_are_counted_by_kind() -> None:
    lost = [Lost(f"messages[{index}].reasoning", "left out") for index in range(3)]

    assert counted([*lost, Lost("messages[4].name", "renamed")]) == {"left out": 3, "renamed": 1}
    assert counted([]) is None
