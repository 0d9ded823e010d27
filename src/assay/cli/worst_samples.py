"""The worst samples of a run: label, answer, expected answer and reason of each."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.cells import cell_len

from assay.errors import ConfigError
from assay.store import ResultRow, Run
from assay.types import Sample, build_label

from .labels import SessionLabel, build_session_label
from .output import Line, Styled, cut, measure_line_width, pad

_MAX_SHOWN_ID_WIDTH = 26
_SHOWN_PLACE_WIDTH = 40
# Longer ids leave no room for a label in 80 columns.
_MAX_SHOWN_ID_CHARS = 60
_SESSION_LINE_WIDTH = 80
_FIELD_WIDTH = 10
# Further right an id is too far from its label to be read in one line.
_MAX_LABEL_WIDTH = 100


@dataclass(frozen=True)
class ListedSample:
    """A sample in a list: its row, and the parts of its body that are shown."""

    row: ResultRow
    label: str
    reason: str
    answer: str
    expected: str
    session: SessionLabel | None = None
    threshold: float | None = None
    """The lowest mean score with which the test of the sample passes."""

    @property
    def name(self) -> str:
        row = self.row
        return row.sample_id if not row.repeat else f"{row.sample_id}#{row.repeat}"

    @property
    def score(self) -> str:
        row = self.row
        if row.boundary is not None:
            return f"{row.boundary} failed"
        return f"{row.score:.3f}" if row.valid and row.score is not None else "not judged"

    def plain(self) -> dict[str, Any]:
        """Return the sample as plain values."""
        row = self.row
        return {
            "id": row.sample_id,
            "label": self.label,
            "repeat": row.repeat,
            "status": row.status,
            "score": row.score if row.valid else None,
            "failed": row.boundary,
            "reason": self.reason,
            "answer": self.answer or None,
            "expected": self.expected or None,
            **({} if self.session is None else asdict(self.session)),
        }


def list_worst(run: Run, *, limit: int, failed_only: bool = False) -> list[ListedSample]:
    """Read failed samples first, then the lowest scores, then samples that were not judged."""
    rows = (row for row in run.results() if row.boundary is not None or not failed_only)
    # The position in the run breaks ties; rows themselves cannot be compared.
    numbered = ((_rank_result(row), index, row) for index, row in enumerate(rows))
    worst = heapq.nsmallest(limit, numbered, key=lambda each: each[:2])
    return [_describe_sample(row, find_body(run, row)) for _, _, row in worst]


def _rank_result(row: ResultRow) -> tuple[int, float]:
    if row.boundary is not None:
        return (0, 0.0)
    return (1, row.score) if row.valid and row.score is not None else (2, 0.0)


def _describe_sample(row: ResultRow, sample: Sample) -> ListedSample:
    # Only tests record their thresholds; a row of a dataset may have the same key.
    threshold = sample.metadata.get("threshold") if "test" in sample.metadata else None
    return ListedSample(
        row,
        build_label(sample),
        find_reason(sample),
        # The answer of a failed sample, if there is one, is in its transcript.
        sample.response if row.boundary is None else "",
        "" if sample.ground_truth is None else str(sample.ground_truth),
        build_session_label(sample),
        threshold if isinstance(threshold, float) else None,
    )


def find_reason(sample: Sample) -> str:
    """Return the failure, the scorer's reason or its error; "" if there is none."""
    if sample.failure is not None:
        return f"{sample.failure.kind}: {sample.failure.message}"
    return (sample.score.reason or sample.score.error or "") if sample.score is not None else ""


def find_body(run: Run, row: ResultRow) -> Sample:
    """Load the whole sample of a result row."""
    rows = run.results(sample_id=row.sample_id)
    # Rows and bodies are read in the same order, but a sample may be recorded in between.
    for each, sample in zip(rows, run.samples(sample_id=row.sample_id), strict=False):
        if each.key == row.key:
            return sample
    raise ConfigError(f"sample {row.sample_id!r} was deleted", where=f"run {run.id!r}")


def format_samples(entries: Sequence[ListedSample]) -> Iterator[Line]:
    """Yield a block of lines for each sample: score, label and id, then answer and reason."""
    width = measure_line_width()
    score_width = max((len(entry.score) for entry in entries), default=0)
    id_width = measure_id_width(entry.name for entry in entries)
    for entry in entries:
        # The id of a session is not cut: it is meaningless to read, and there to be copied.
        if entry.session is not None and len(entry.name) <= _MAX_SHOWN_ID_CHARS:
            yield f"  {cut(f'{entry.name} {entry.label}', _SESSION_LINE_WIDTH - 2)}"
            folder = cut(entry.session.place, _SHOWN_PLACE_WIDTH)
            cells = filter(None, (entry.session.date, folder, entry.score, entry.reason))
            yield f"    {cut(' | '.join(cells), width - 4)}"
            continue
        style = "red" if entry.row.boundary is not None else "bold"
        room = width - 4 - score_width
        yield (
            "  ",
            Styled(pad(entry.score, score_width), style),
            f"  {format_name(entry.label, entry.name, room, id_width)}",
        )
        named = {"answer": entry.answer, "expected": entry.expected, "reason": entry.reason}
        yield from format_named(named.items(), indent=score_width + 4)


def measure_id_width(names: Iterable[str]) -> int:
    """Return the columns for ids beside labels."""
    return min(max(map(cell_len, names), default=0), _MAX_SHOWN_ID_WIDTH)


def format_name(label: str, name: str, room: int, id_width: int) -> str:
    """Format a label and the id beside it in so many columns; the id alone without a label."""
    if not label:
        return cut(name, room)
    label_width = min(room - id_width - 2, _MAX_LABEL_WIDTH)
    return f"{pad(label, label_width)}  {cut(name, id_width)}"


def format_named(
    texts: Iterable[tuple[str, str]], *, indent: int, field_width: int = _FIELD_WIDTH
) -> Iterator[str]:
    """Yield a line for each text that is not empty, beside its name and cut to the width."""
    room = measure_line_width() - indent - field_width
    for name, text in texts:
        if text:
            yield f"{' ' * indent}{name:<{field_width}}{cut(text, room)}"
