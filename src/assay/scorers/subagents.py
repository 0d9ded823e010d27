"""The sessions of subagents that are recorded inside a sample."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from assay.errors import AssayError
from assay.types import Sample

SUBAGENTS_KEY = "subagents"
"""The key of `Sample.metadata` that holds them, as plain samples."""


class UnreadableSubagent(Exception):
    """A subagent's session that is recorded and cannot be read."""


def read_subagents(sample: Sample) -> Iterator[Sample]:
    """The samples of the subagents that the agent of `sample` started itself.

    Raises `UnreadableSubagent` at one that is damaged, and at one of which there is no more than
    its id.
    """
    for each in find_subagents(sample):
        if isinstance(each, UnreadableSubagent):
            raise each
        yield each


def find_subagents(sample: Sample) -> Iterator[Sample | UnreadableSubagent]:
    """The same, with the problem of each one that cannot be read in its place.

    Entries that are not samples at all are passed over: other programs use the key for their own
    data.
    """
    found = sample.metadata.get(SUBAGENTS_KEY)
    for place, entry in enumerate(found if isinstance(found, list) else []):
        if not isinstance(entry, Mapping):
            continue
        if "trajectory" in entry:
            yield _parse_subagent(dict(entry), place)
        elif isinstance(name := entry.get("id"), str):
            yield UnreadableSubagent(f"the session of subagent {name[:100]!r} is not recorded")


def _parse_subagent(entry: dict[str, Any], place: int) -> Sample | UnreadableSubagent:
    try:
        return Sample.from_dict(entry)
    except (AssayError, ValidationError, ValueError, TypeError, RecursionError) as error:
        first = " ".join(str(error).split())[:200]
        return UnreadableSubagent(
            f"the subagent's session at metadata.{SUBAGENTS_KEY}[{place}] cannot be read: {first}"
        )


def map_started_subagents(sample: Sample) -> dict[str, str]:
    """Which tool call started which subagent: the subagent's id by the call's id."""
    started: dict[str, str] = {}
    for message in sample.messages:
        child = (message.details or {}).get("subagent")
        if message.tool_call_id is not None and isinstance(child, str):
            started[message.tool_call_id] = child
    return started
