"""Read the sessions of subagents that are recorded inside a sample."""

from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from assay.errors import AssayError
from assay.types import Sample

SUBAGENTS_KEY = "subagents"
"""The key of `Sample.metadata` that contains them, as plain samples."""


class UnreadableSubagent(Exception):
    """A recorded session of a subagent that cannot be read."""


def read_subagents(sample: Sample) -> Iterator[Sample]:
    """Yield the samples of the subagents that the agent of `sample` started itself.

    Raises `UnreadableSubagent` for a damaged session, and for one that is recorded by id only.
    """
    for each in find_subagents(sample):
        if isinstance(each, UnreadableSubagent):
            raise each
        yield each


def find_subagents(sample: Sample) -> Iterator[Sample | UnreadableSubagent]:
    """Yield the samples of the subagents, or an error for each one that cannot be read.

    Entries that are not samples are skipped: other programs use the key for their own data.
    Subagents that a gateway recorded are branches of the trajectory.
    """
    recorded = [] if sample.trajectory is None else sample.trajectory.list_subagents()
    for child, trajectory in recorded:
        yield Sample(id=child, trajectory=trajectory)
    found = sample.metadata.get(SUBAGENTS_KEY)
    for place, entry in enumerate(found if isinstance(found, list) else []):
        if not isinstance(entry, Mapping):
            continue
        if "trajectory" in entry:
            try:
                yield Sample.from_dict(dict(entry))
            except (AssayError, ValidationError, ValueError, TypeError, RecursionError) as error:
                where = f"metadata.{SUBAGENTS_KEY}[{place}]"
                first = " ".join(str(error).split())[:200]
                yield UnreadableSubagent(
                    f"the subagent's session at {where} cannot be read: {first}"
                )
        elif isinstance(name := entry.get("id"), str):
            # A bare id is a session that the source mentions without recording it.
            yield UnreadableSubagent(f"the session of subagent {name[:100]!r} is not recorded")


def map_started_subagents(sample: Sample) -> dict[str, str]:
    """Map the id of each tool call that started a subagent to the id of the subagent."""
    started: dict[str, str] = {}
    for message in sample.messages:
        child = (message.details or {}).get("subagent")
        if message.tool_call_id is not None and isinstance(child, str):
            started[message.tool_call_id] = child
    return started
