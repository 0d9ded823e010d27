"""What an export read, wrote, left out and had no place for."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from assay.formats import Dropped

_MAX_EXAMPLES = 20
_MAX_REASONS = 50
OTHER_REASONS = "other reasons"


@dataclass(frozen=True)
class LeftOut:
    """One sample that is not in the file, and why."""

    sample: str
    reason: str
    detail: str = ""


@dataclass
class ExportReport:
    """The account of one export. Every sample that was read is either used or left out."""

    format: str
    read: int = 0
    used: int = 0
    """Samples of which something was written."""

    rows: int = 0
    files: dict[str, int] = field(default_factory=dict)
    """How many rows each file has."""

    left_out: Counter[str] = field(default_factory=Counter)
    """How many samples are not there, by reason."""

    examples: list[LeftOut] = field(default_factory=list)
    """The first of them."""

    lost: Counter[str] = field(default_factory=Counter)
    """What the format has no place for, by kind."""

    notes: list[str] = field(default_factory=list)

    def leave_out(self, sample: str, reason: str, detail: str = "") -> None:
        """Count a sample that is not written."""
        # Reasons may quote what a file says; a hostile one must not fill the memory.
        if reason not in self.left_out and len(self.left_out) >= _MAX_REASONS:
            reason, detail = OTHER_REASONS, detail or reason
        self.left_out[reason] += 1
        if len(self.examples) < _MAX_EXAMPLES:
            self.examples.append(LeftOut(sample, reason, detail))

    def count_dropped(self, lost: tuple[Dropped, ...]) -> None:
        """Count what a row has no place for."""
        for loss in lost:
            kind = f"{_strip_indexes(loss.where)}: {loss.what}"
            known = kind in self.lost or len(self.lost) < _MAX_REASONS
            self.lost[kind if known else "other things"] += 1

    def json(self) -> dict[str, Any]:
        """The account as plain values."""
        return {
            "format": self.format,
            "read": self.read,
            "used": self.used,
            "rows": self.rows,
            "files": self.files,
            "left_out": dict(self.left_out),
            "examples": [vars(each) for each in self.examples],
            "lost": dict(self.lost),
            "notes": self.notes,
        }


def _strip_indexes(where: str) -> str:
    """`messages[3].tool_calls[0].raw_arguments` without the numbers."""
    return re.sub(r"\[\d+\]", "[]", where)
