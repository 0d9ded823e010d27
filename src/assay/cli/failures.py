"""The most frequent reasons for failed samples, each in full, with their counts."""

import textwrap
from collections.abc import Sequence
from typing import Any

from assay.store import FailureGroup

from .output import cut, measure_line_width

# A provider may return a whole HTML page as its error.
_MAX_FAILURE_CHARS = 1000


def format_failures(groups: Sequence[FailureGroup], failed: int) -> list[str]:
    """Format one paragraph for each reason; empty if no sample failed."""
    if not groups:
        return []
    lines = ["reasons for failed samples"]
    for group in groups:
        text = cut(f"{group.boundary}: {group.kind}: {group.message}", _MAX_FAILURE_CHARS)
        first = f"  {group.samples} x "
        lines += textwrap.wrap(
            text,
            measure_line_width(),
            initial_indent=first,
            subsequent_indent=" " * len(first),
            # Ids and URLs must stay in one piece to be copied.
            break_on_hyphens=False,
        )
    if (others := failed - sum(group.samples for group in groups)) > 0:
        lines.append(f"  {others} x for other reasons")
    return lines


def failures_to_dicts(groups: Sequence[FailureGroup]) -> list[dict[str, Any]]:
    """Return the groups as plain values."""
    return [
        {
            "samples": group.samples,
            "boundary": group.boundary,
            "kind": group.kind,
            "message": group.message,
        }
        for group in groups
    ]
