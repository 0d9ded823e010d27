"""The report of `assay ingest`: sessions read, written and left out."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from assay.errors import AssayError, BadRow
from assay.formats import Converted, cut_outputs, to_atif, to_eval_record, to_vertex
from assay.sessions import CONVERSION_ERRORS, SessionStream, UnreadableSession
from assay.stats import format_plural
from assay.types import Sample

from .output import format_fields

# --json lists all of them.
_MAX_LISTED_MISSING = 20
_MAX_LISTED_KINDS = 10


FORMATS = ("sample", "eval", "atif", "vertex")
_CONVERSIONS: dict[str, Callable[[Sample], Converted[dict[str, Any]]]] = {
    "eval": to_eval_record,
    "atif": to_atif,
    "vertex": to_vertex,
}


def format_sample_line(sample: Sample, form: str) -> tuple[str, int]:
    """Return a sample as one line of JSON, and the number of values the format cannot represent."""
    conversion = _CONVERSIONS.get(form)
    if conversion is None:
        return sample.to_json(), 0
    converted = conversion(sample)
    text = json.dumps(converted.value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text, len(converted.dropped)


@dataclass
class IngestReport:
    """Counts of one ingestion, updated while it runs."""

    stream: SessionStream
    output: str | None
    format: str
    max_output_chars: int | None = None
    store: str | None = None
    run: str | None = None
    next: str | None = None
    unplaced: int = 0
    """Values that the format cannot represent."""

    outputs_cut: int = 0
    unwritten: int = 0
    named: int = 0
    """Skipped sessions that are already reported one by one."""

    stored: int | None = None
    """Samples that the store confirmed as inserted; None where a file is written."""

    @property
    def skipped(self) -> list[UnreadableSession]:
        return self.stream.reading.skipped

    @property
    def complete(self) -> bool:
        """Whether every selected session is written."""
        reading = self.stream.reading
        return not (self.skipped or reading.missing or reading.damaged)

    @property
    def written(self) -> int:
        if self.stored is not None:
            return self.stored
        return self.stream.reading.read - self.unwritten

    def format_line(self, sample: Sample) -> str | None:
        """Return a sample as one line of JSON; None for one that the format cannot represent."""
        try:
            if self.max_output_chars is not None:
                sample, cut = cut_outputs(sample, self.max_output_chars)
                self.outputs_cut += cut
            line, lost = format_sample_line(sample, self.format)
        except CONVERSION_ERRORS as error:
            self.skip(sample.id, BadRow(f"the session cannot be written: {error}"))
            return None
        self.unplaced += lost
        return line

    def skip(self, session_id: str, problem: BadRow) -> None:
        self.unwritten += 1
        self.skipped.append(UnreadableSession(session_id, problem.with_traceback(None)))

    def settle(self, session_id: str, outcome: bool | AssayError) -> None:
        """Count a sample that the store inserted; report any other."""
        assert self.stored is not None
        where = f"session {session_id}"
        if outcome is True:
            self.stored += 1
        elif isinstance(outcome, AssayError):
            self.skip(session_id, BadRow(outcome.message, where=where))
        else:
            problem = BadRow(
                "another session with this id is already stored; this one was skipped",
                where=where,
                hint="write both to a file with -o FILE",
            )
            self.skip(session_id, problem)

    def lines(self) -> list[str]:
        """Return the report as text; `plain` has the same content."""
        reading = self.stream.reading
        sessions = f"{self.written} written"
        if reading.inlined:
            sessions += f", {reading.inlined} of subagents inside them"
        left = {
            "not selected": reading.not_chosen,
            "empty": reading.empty,
            "of subagents": reading.dropped,
        }
        left_out = ", ".join(f"{count} {what}" for what, count in left.items() if count)
        skipped = f"{len(self.skipped)} that cannot be read or written" if self.skipped else None
        missing = reading.missing[:_MAX_LISTED_MISSING]
        if len(missing) < len(reading.missing):
            missing.append(f"and {len(reading.missing) - len(missing)} more")
        unplaced, outputs, unknown = None, None, None
        if self.unplaced:
            unplaced = f"{self.format} cannot represent {format_plural(self.unplaced, 'value')}"
        if self.max_output_chars is not None:
            outputs = f"{self.outputs_cut} truncated after {self.max_output_chars} characters"
        if kinds := reading.unknown_kinds:
            # Such as `12 records of 2 unknown kinds: hologram (11), mirror (1)`.
            named = [f"{kind} ({count})" for kind, count in kinds.most_common(_MAX_LISTED_KINDS)]
            if len(named) < len(kinds):
                named.append(f"and {format_plural(len(kinds) - len(named), 'more kind')}")
            records = format_plural(kinds.total(), "record")
            unknown = (
                f"{records} of {format_plural(len(kinds), 'unknown kind')}: {', '.join(named)}"
            )
        fields = {
            "source": self.stream.path,
            "sessions": sessions,
            "left out": left_out or None,
            "skipped": skipped,
            "missing": missing,
            "format": unplaced,
            "outputs": outputs,
            "unknown": unknown,
            "note": reading.notes,
        }
        if self.run is not None:
            fields |= {"run": self.run, "store": self.store}
        elif self.output != "-":
            fields["file"] = f"{self.output} ({self.format})"
        return [*format_fields(fields), *(["next:", f"  {self.next}"] if self.next else [])]

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values."""
        reading = self.stream.reading
        return {
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
