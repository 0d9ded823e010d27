"""Statistics of one pass over recorded sessions: read, skipped and unknown."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ValidationError

from assay.errors import AssayError
from assay.types import Sample

from .session_choice import UnreadableSession

Children = Literal["separate", "inline", "drop"]
"""Sessions of subagents: separate samples, inside the sample of their parent, or dropped."""

CONVERSION_ERRORS = (
    AssayError,
    ValidationError,
    ValueError,
    TypeError,
    ArithmeticError,
    RecursionError,
)
"""Exceptions raised by values of unexpected types and sizes. Others are bugs."""

# Bounded digits: versions come from files, and int() raises for very long numbers.
_RELEASE = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?![\d.])")
# The number of versions that a note lists.
_MAX_LISTED_VERSIONS = 5

_MAX_COUNTED_NAMES = 100
_MAX_COUNTED_NAME_LENGTH = 80
OTHER_NAMES = "others"
"""Counts all kinds or versions after the first hundred."""


@dataclass
class SessionReading:
    """Counts and problems of one pass over the sessions."""

    read: int = 0
    """Sessions that became samples."""

    inlined: int = 0
    """Sessions of subagents inside the samples of their parents."""

    dropped: int = 0
    """Sessions of subagents that were dropped with `children="drop"`."""

    empty: int = 0
    """Sessions without a turn."""

    not_chosen: int = 0
    missing: list[str] = field(default_factory=list)
    """Ids that were selected but do not exist."""

    skipped: list[UnreadableSession] = field(default_factory=list)
    """Sessions that cannot be read."""

    damaged: list[UnreadableSession] = field(default_factory=list)
    """Unreadable lines of sessions that were read without them."""

    notes: list[str] = field(default_factory=list)
    unknown_kinds: Counter[str] = field(default_factory=Counter)
    """Kinds of records that this version of assay does not know, with the number of records."""

    untested_versions: Counter[str] = field(default_factory=Counter)
    """Versions of the agent that no test has read, with the number of sessions."""

    def count_unknown(self, sample: Sample) -> None:
        """Add the records of unknown kinds that a reader counted in `metadata`."""
        counted = sample.metadata.get("unknown_records")
        # A file may contain any value under this name.
        for kind, count in counted.items() if isinstance(counted, dict) else ():
            if isinstance(count, int):
                _add_count(self.unknown_kinds, str(kind), count)

    def check_version(self, version: object, *, newest: str | None) -> None:
        """Count a session of a version that no test has read. An unknown version is not counted."""
        if version is None or newest is None:
            return
        if not is_tested(str(version), newest=newest):
            _add_count(self.untested_versions, str(version), 1)

    def note_versions(self, newest: str | None) -> None:
        """Add a note on the versions that no test has read."""
        if not self.untested_versions:
            return
        listed = self.untested_versions.most_common(_MAX_LISTED_VERSIONS)
        named = [
            f"{count} {'session' if count == 1 else 'sessions'} of version {version}"
            for version, count in listed
        ]
        if rest := self.untested_versions.total() - sum(count for _, count in listed):
            named.append(f"{rest} more")
        self.notes.append(
            f"{', '.join(named)}: assay is tested with versions up to {newest}; these sessions "
            f"were read like those of {newest}"
        )


def _add_count(counts: Counter[str], name: str, count: int) -> None:
    # Names come from files: limit their number and length.
    name = name[:_MAX_COUNTED_NAME_LENGTH]
    counts[name if name in counts or len(counts) < _MAX_COUNTED_NAMES else OTHER_NAMES] += count


def is_tested(version: str, *, newest: str) -> bool:
    """Whether `version` is a release up to `newest`.

    False for development builds, which have the number 0.0.0 or none.
    """
    release = _parse_release(version)
    tested = _parse_release(newest)
    if release is None or tested is None or not any(release):
        return False
    return release <= tested


def _parse_release(version: str) -> tuple[int, ...] | None:
    found = _RELEASE.match(version)
    return None if found is None else tuple(int(part or 0) for part in found.groups())
