"""Which parts of a recorded session become part of its sample."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SampleOptions:
    """Optional parts of a session to include in the sample."""

    keep_reverted: bool = False
    """Keep messages that the user has reverted."""

    synthetic: bool = False
    """Keep texts that OpenCode put into user messages, such as the content of attached files."""

    raw_records: bool = False
    """Keep records that are not messages in `metadata`, unchanged. For transcripts only."""
