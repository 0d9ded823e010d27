"""Sessions that say the same, told by what they say."""

from collections.abc import Sequence

from assay.types import Message, stable_id


def compute_content_id(messages: Sequence[Message]) -> str:
    """The same for sessions that say the same, such as a fork, which is a copy under new ids."""
    return stable_id(
        [
            [each.role, each.text, [[call.name, call.arguments] for call in each.tool_calls]]
            for each in messages
        ]
    )
