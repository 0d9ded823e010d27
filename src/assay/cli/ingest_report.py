"""What `assay ingest` tells of what it read, wrote and left out."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from assay.errors import AssayError, BadRow, StoreError
from assay.formats import cut_outputs
from assay.sessions import CONVERSION_ERRORS, TranscriptReading, UnreadableSession
from assay.types import Sample

from .ingest_output import LineFormatter, format_sample_line
from .ingest_sources import Stream

_INGEST_LABEL_WIDTH = 14
_MAX_LISTED_MISSING = 20
_MAX_LISTED_KINDS = 10


@dataclass
class IngestReport:
    """Counts of one ingestion, filled in while it goes on."""

    stream: Stream
    output: str | None
    format: str
    max_output_chars: int | None = None
    store: str | None = None
    run: str | None = None
    next: str | None = None
    unplaced: int = 0
    """Things that the format has no place for."""

    outputs_cut: int = 0
    unwritten: int = 0
    named: int = 0
    """Skipped sessions that were already reported one by one."""

    stored: int | None = None
    """Samples that the store confirmed as inserted; None where a file is written."""

    @property
    def skipped(self) -> list[UnreadableSession]:
        return self.stream.reading.skipped

    @property
    def complete(self) -> bool:
        """Whether every session that was asked for is written."""
        reading = self.stream.reading
        damaged = isinstance(reading, TranscriptReading) and reading.damaged
        return not (self.skipped or reading.missing or damaged)

    @property
    def written(self) -> int:
        if self.stored is not None:
            return self.stored
        return self.stream.reading.read - self.unwritten

    def build_formatter(self, form: str) -> LineFormatter:
        """Lines of `form`. A sample that cannot be written is skipped like an unreadable one."""

        def write(sample: Sample) -> str | None:
            try:
                if self.max_output_chars is not None:
                    sample, cut = cut_outputs(sample, self.max_output_chars)
                    self.outputs_cut += cut
                line, lost = format_sample_line(sample, form)
            except CONVERSION_ERRORS as error:
                self.skip(sample.id, BadRow(f"cannot be written: {error}"))
                return None
            self.unplaced += lost
            return line

        return write

    def skip(self, session_id: str, problem: BadRow) -> None:
        self.unwritten += 1
        self.skipped.append(UnreadableSession(session_id, problem.with_traceback(None)))

    def count_stored(self, session_id: str, *, inserted: bool) -> None:
        """Count a sample that the store inserted; report one whose id is stored already."""
        assert self.stored is not None
        if inserted:
            self.stored += 1
            return
        problem = BadRow(
            "another session with this id is stored; this one is not",
            where=f"session {session_id}",
            hint="write both to a file with -o FILE",
        )
        self.skip(session_id, problem)

    def is_about_sample(self, error: AssayError) -> bool:
        """Whether an error of the store is about one sample, so that others can be written."""
        return not isinstance(error, StoreError)

    def lines(self) -> list[str]:
        """The same as `json`, for people."""
        reading = self.stream.reading
        sessions = f"{self.written} written"
        if reading.inlined:
            sessions += f", {reading.inlined} of subagents inside them"
        left = {
            "not asked for": reading.not_chosen,
            "empty": reading.empty,
            "of subagents": reading.dropped,
        }
        lines = [
            _format_ingest_line("source", str(self.stream.path)),
            _format_ingest_line("sessions", sessions),
        ]
        if any(left.values()):
            counted = ", ".join(f"{count} {what}" for what, count in left.items() if count)
            lines.append(_format_ingest_line("left out", counted))
        if self.skipped:
            lines.append(
                _format_ingest_line(
                    "skipped", f"{len(self.skipped)} that cannot be read or written"
                )
            )
        lines += [
            _format_ingest_line("not there", each) for each in reading.missing[:_MAX_LISTED_MISSING]
        ]
        if len(reading.missing) > _MAX_LISTED_MISSING:
            lines.append(
                _format_ingest_line("", f"and {len(reading.missing) - _MAX_LISTED_MISSING} more")
            )
        if self.unplaced:
            have = "thing has" if self.unplaced == 1 else "things have"
            lines.append(
                _format_ingest_line("format", f"{self.unplaced} {have} no place in {self.format}")
            )
        if self.max_output_chars is not None:
            cut = f"{self.outputs_cut} cut after {self.max_output_chars} characters"
            lines.append(_format_ingest_line("outputs", cut))
        if reading.unknown_kinds:
            lines.append(
                _format_ingest_line("unknown", _format_unknown_kinds(reading.unknown_kinds))
            )
        lines += [_format_ingest_line("note", note) for note in reading.notes]
        if self.run is not None:
            lines += [
                _format_ingest_line("run", self.run),
                _format_ingest_line("store", str(self.store)),
            ]
            lines += ["next:", f"  {self.next}"]
        elif self.output != "-":
            lines.append(_format_ingest_line("file", f"{self.output} ({self.format})"))
        return lines

    def json(self) -> str:
        reading = self.stream.reading
        value: dict[str, Any] = {
            "source": str(self.stream.path),
            "written": self.written,
            "inlined": reading.inlined,
            "not_chosen": reading.not_chosen,
            "empty": reading.empty,
            "dropped": reading.dropped,
            "skipped": [
                {"session": each.session_id, "problem": str(each.problem)} for each in self.skipped
            ],
            "missing": reading.missing,
            "unplaced": self.unplaced,
            "outputs_cut": self.outputs_cut,
            "unknown_records": reading.unknown_kinds.total(),
            "unknown_kinds": dict(reading.unknown_kinds.most_common()),
            "untested_versions": dict(reading.untested_versions.most_common()),
            "notes": reading.notes,
            "file": self.output,
            "format": self.format,
            "run": self.run,
            "store": self.store,
        }
        return json.dumps(value, indent=2)


def _format_unknown_kinds(kinds: Counter[str]) -> str:
    """Such as `12 records of 2 unknown kinds: hologram (11), mirror (1)`."""
    records, named = kinds.total(), kinds.most_common(_MAX_LISTED_KINDS)
    text = f"{records} {'record' if records == 1 else 'records'} of {len(kinds)} unknown "
    text += "kind: " if len(kinds) == 1 else "kinds: "
    text += ", ".join(f"{kind} ({count})" for kind, count in named)
    left = len(kinds) - len(named)
    return f"{text}, and {left} more {'kind' if left == 1 else 'kinds'}" if left else text


def _format_ingest_line(label: str, text: str) -> str:
    return f"{label:<{_INGEST_LABEL_WIDTH}}{text}"
