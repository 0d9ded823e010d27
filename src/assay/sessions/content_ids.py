"""Ids that identify sessions by their content."""

from collections.abc import Sequence

from assay.types import Message, stable_id


def compute_content_id(messages: Sequence[Message]) -> str:
    """Return an id that is equal for equal messages, such as a copy with other ids."""
    return stable_id(
        [
            [each.role, each.text, [[call.name, call.arguments] for call in each.tool_calls]]
            for each in messages
        ]
    )
