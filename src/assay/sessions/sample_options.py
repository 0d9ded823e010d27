"""Which parts of a recorded session become part of its sample."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SampleOptions:
    """What of a session becomes part of the conversation."""

    keep_reverted: bool = False
    """Keep messages that the user has undone."""

    synthetic: bool = False
    """Keep texts that OpenCode put into user messages, such as the content of attached files."""

    raw_records: bool = False
    """Keep records that are no messages in `metadata`, as they are; only transcripts have them."""
