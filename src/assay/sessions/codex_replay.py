"""Replay a Codex session from its rollouts: inherited history first, then its own turns.

Each rollout of a thread continues at a position in an earlier one. Later records of the earlier
one were reverted when the rollout was started.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.errors import BadRow

from .codex_conversation import CodexConversation, ConversationCheckpoint
from .codex_rollouts import (
    HistoryBase,
    Rollout,
    RolloutIndex,
    wrap_in_envelope,
)
from .session_lines import iterate_records

RolloutLine = tuple[dict[str, Any] | BadRow, int]
"""A record, or its error, and the offset of the byte after it."""


@dataclass
class CodexReplay:
    """Replays the rollouts of one thread in order."""

    index: RolloutIndex
    reader: CodexConversation
    rollouts: list[Rollout]
    """The rollouts of the thread, from the first to the current one."""

    problems: list[BadRow] = field(default_factory=list)
    """Why inherited history is missing or incomplete."""

    inherited_messages: int = 0
    """The number of first messages that come from other threads."""

    _marks: dict[HistoryBase | None, tuple[ConversationCheckpoint, BadRow | None]] = field(
        default_factory=dict
    )
    """Checkpoints at which rollouts continue, each with the problem of its position."""

    _ends: dict[str, set[HistoryBase]] = field(default_factory=dict)
    """Positions at which rollouts of the thread continue, by the rollout that contains them."""

    def __post_init__(self) -> None:
        for base in (rollout.base for rollout in self.rollouts):
            if base is not None and base.is_usable:
                self._ends.setdefault(base.rollout_id, set()).add(base)

    def take(self, rollout: Rollout, lines: Iterable[RolloutLine]) -> None:
        """Continue with the next rollout, whose own lines are given."""
        # Before the first rollout: one that continues at an unknown position starts from here.
        start, _ = self._marks.setdefault(None, (self.reader.mark(), None))
        mark, problem = self._marks.get(rollout.base, (None, None))
        self.reader.rewind(mark or start)
        # Rewinding removes messages, and with them inherited ones that come after the checkpoint.
        if not self.reader.options.keep_reverted:
            self.inherited_messages = min(self.inherited_messages, (mark or start).messages)
        if mark is None:
            self._inherit(rollout)
        elif problem is not None:
            self.problems.append(problem)
        self._feed(rollout, lines)

    def _inherit(self, rollout: Rollout) -> None:
        segments, problem = self.index.trace_history(rollout)
        if problem is not None:
            self.problems.append(problem)
        for segment in segments:
            try:
                lines = iterate_records(Path(segment.rollout.path))
                self._feed(segment.rollout, lines, until=segment.until)
            except BadRow as error:
                why = f"inherited history is missing: {error.message}"
                self.problems.append(BadRow(why, where=error.where, hint=error.hint))
            # Earlier rollouts of the thread itself are its own work, not inherited.
            if segment.rollout.thread_id != rollout.thread_id:
                self.inherited_messages = self.reader.mark().messages

    def _feed(
        self, rollout: Rollout, lines: Iterable[RolloutLine], until: HistoryBase | None = None
    ) -> None:
        """Read the lines before a position; save checkpoints where other rollouts continue."""
        ends = self._ends.get(rollout.rollout_id, ())
        # The nearest one last, so that each is popped when it is reached.
        waiting = sorted(ends, key=HistoryBase.order, reverse=True)
        extent = _Extent()
        own_from = rollout.own_from if until is None else None
        for line, offset in lines:
            if isinstance(line, BadRow):
                # The caller reports the damaged lines of the session's own rollouts.
                if until is not None:
                    self.problems.append(line)
                continue
            record = wrap_in_envelope(line)
            if until is not None and until.excludes(record, offset):
                extent.passed = True
                break
            while waiting and waiting[-1].excludes(record, offset):
                self._save_checkpoint(waiting.pop(), replace(extent, passed=True), rollout)
            extent.grow(record, offset)
            if own_from is not None and (extent.next_ordinal or 0) > own_from:
                self.inherited_messages = self.reader.mark().messages
                own_from = None
            # The metadata of an inherited session must not replace that of this one.
            if until is None or record["type"] != "session_meta":
                self.reader.take(record)
        if until is not None:
            if why := extent.describe_problem(until):
                self.problems.append(self._build_incomplete_error(rollout, why))
            waiting = [end for end in waiting if extent.reaches(end)]
        for end in waiting:
            self._save_checkpoint(end, extent, rollout)

    def _save_checkpoint(self, end: HistoryBase, extent: "_Extent", rollout: Rollout) -> None:
        why = extent.describe_problem(end)
        problem = None if why is None else self._build_incomplete_error(rollout, why)
        self._marks[end] = self.reader.mark(), problem

    def _build_incomplete_error(self, source: Rollout, why: str) -> BadRow:
        why = f"inherited history is incomplete: `history_base` ends {why} {source.rollout_id}"
        return BadRow(why, where=self.rollouts[-1].path)


@dataclass
class _Extent:
    """How far a rollout was read."""

    records: int = 0
    next_ordinal: int | None = None
    offset: int = 0
    passed: bool = False
    """Whether a record past the position was read."""

    def grow(self, record: dict[str, Any], offset: int) -> None:
        self.records += 1
        self.offset = offset
        if type(ordinal := record.get("ordinal")) is int:
            self.next_ordinal = ordinal + 1

    def reaches(self, end: HistoryBase) -> bool:
        if end.end_ordinal is not None and self.next_ordinal is not None:
            return self.next_ordinal >= end.end_ordinal
        return end.end_offset is None or self.offset >= end.end_offset

    def describe_problem(self, end: HistoryBase) -> str | None:
        """Return how a position lies outside of the rollout, or None."""
        if self.records == 0:
            return "before the first record of rollout"
        return None if self.passed or self.reaches(end) else "after the last record of rollout"
