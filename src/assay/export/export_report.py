"""The report of an export: samples read, written and excluded, and fields dropped."""

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
    """A sample that was excluded, and the reason."""

    sample: str
    reason: str
    detail: str = ""


@dataclass
class ExportReport:
    """The counts of one export. Every sample that was read is either used or left out."""

    format: str
    read: int = 0
    used: int = 0
    """Samples with at least one row."""

    corrected: int = 0
    """Samples whose answer a person corrected."""

    rows: int = 0
    files: dict[str, int] = field(default_factory=dict)
    """The number of rows of each file."""

    left_out: Counter[str] = field(default_factory=Counter)
    """The number of excluded samples, by reason."""

    examples: list[LeftOut] = field(default_factory=list)
    """The first excluded samples."""

    lost: Counter[str] = field(default_factory=Counter)
    """Fields that the format cannot represent, by kind."""

    notes: list[str] = field(default_factory=list)

    def leave_out(self, sample: str, reason: str, detail: str = "") -> None:
        """Count an excluded sample."""
        # Reasons may quote the sample: a hostile file must not fill the memory with them.
        if reason not in self.left_out and len(self.left_out) >= _MAX_REASONS:
            reason, detail = OTHER_REASONS, detail or reason
        self.left_out[reason] += 1
        if len(self.examples) < _MAX_EXAMPLES:
            self.examples.append(LeftOut(sample, reason, detail))

    def count_dropped(self, lost: tuple[Dropped, ...]) -> None:
        """Count the fields that a row cannot represent."""
        for loss in lost:
            # Counted by kind: `messages[3].content` and `messages[7].content` are the same loss.
            path = re.sub(r"\[\d+\]", "[]", loss.where)
            kind = f"{path}: {loss.what}"
            known = kind in self.lost or len(self.lost) < _MAX_REASONS
            self.lost[kind if known else "other things"] += 1

    def json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "format": self.format,
            "read": self.read,
            "used": self.used,
            "corrected": self.corrected,
            "rows": self.rows,
            "files": self.files,
            "left_out": dict(self.left_out),
            "examples": [vars(each) for each in self.examples],
            "lost": dict(self.lost),
            "notes": self.notes,
        }
