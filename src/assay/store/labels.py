"""Labels that people give to samples: pass or fail, a score, or a corrected answer.

Labels are stored beside the results and never replaced: the last one of a sample counts.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from assay.errors import ConfigError

from .database import Database
from .excerpts import to_column_text

Verdict = Literal["pass", "fail"]

_MAX_TEXT_CHARS = 100_000
_MAX_AUTHOR_CHARS = 200
_LABELS_PER_PAGE = 1000
_COLUMNS = "l.label_no, l.key, l.verdict, l.score, l.answer, l.note, l.author, l.recorded_at"


@dataclass(frozen=True)
class SampleLabel:
    """The label of one sample by one person. A label without values withdraws earlier ones."""

    key: str
    """The key of the result or failed sample, as in `ResultRow`."""

    verdict: Verdict | None = None
    score: float | None = None
    answer: str | None = None
    """The corrected answer."""

    note: str | None = None
    author: str = ""
    recorded_at: float = 0.0
    """Seconds since 1970; set when the label is written."""

    def __post_init__(self) -> None:
        if self.verdict not in (None, "pass", "fail"):
            raise ConfigError(f"verdict must be 'pass' or 'fail', not {self.verdict!r}")
        if self.score is not None and not math.isfinite(self.score):
            raise ConfigError(f"the score of a label must be finite, not {self.score!r}")
        for name in ("answer", "note"):
            if len(getattr(self, name) or "") > _MAX_TEXT_CHARS:
                raise ConfigError(f"the {name} has more than {_MAX_TEXT_CHARS} characters")
        if len(self.author) > _MAX_AUTHOR_CHARS:
            raise ConfigError(f"the author has more than {_MAX_AUTHOR_CHARS} characters")

    @property
    def is_empty(self) -> bool:
        """Whether this label withdraws earlier ones."""
        return self.verdict is None and self.score is None and not self.answer and not self.note


def write_label(database: Database, run_no: int, label: SampleLabel) -> SampleLabel:
    """Write and commit a label. Raises `ConfigError` if the run has no such sample."""

    def clean(text: str | None) -> str | None:
        return None if not text else to_column_text(text)

    with database.write_transaction() as transaction:
        for table in ("result", "attempt"):
            query = f"SELECT 1 FROM assay_{table} WHERE run_no = ? AND key = ? LIMIT 1"
            if transaction.execute(query, run_no, to_column_text(label.key)).scalar():
                break
        else:
            raise ConfigError(f"the run has no sample with the key {label.key[:60]!r}")
        written = SampleLabel(
            key=label.key,
            verdict=label.verdict,
            score=label.score,
            answer=clean(label.answer),
            note=clean(label.note),
            author=to_column_text(label.author),
            recorded_at=transaction.now(),
        )
        transaction.execute(
            "INSERT INTO assay_label "
            "(run_no, key, verdict, score, answer, note, author, recorded_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            run_no,
            written.key,
            written.verdict,
            written.score,
            written.answer,
            written.note,
            written.author,
            written.recorded_at,
        )
    return written


def find_labels(database: Database, run_no: int, keys: Iterable[str]) -> dict[str, SampleLabel]:
    """Return the last label of each of these keys, without withdrawn ones."""
    wanted = [to_column_text(key) for key in dict.fromkeys(keys)]
    if not wanted:
        return {}
    marks = ", ".join("?" * len(wanted))
    query = (
        f"SELECT {_COLUMNS} FROM assay_label l WHERE l.run_no = ? AND l.key IN ({marks}) "
        "ORDER BY l.label_no"
    )
    with database.read_transaction() as transaction:
        rows = transaction.execute(query, run_no, *wanted).all()
    latest = {row.key: _parse_label_row(row) for row in rows}
    return {key: label for key, label in latest.items() if not label.is_empty}


def read_sample_labels(
    database: Database, run_no: int, *, history: bool = False
) -> Iterator[SampleLabel]:
    """Yield the last label of each sample, oldest first; with `history` all, withdrawn too."""
    newest = (
        "NOT EXISTS (SELECT 1 FROM assay_label n "
        "WHERE n.run_no = l.run_no AND n.key = l.key AND n.label_no > l.label_no)"
    )
    query = (
        f"SELECT {_COLUMNS} FROM assay_label l WHERE l.run_no = ? AND l.label_no > ? "
        f"{'' if history else f'AND {newest} '}ORDER BY l.label_no LIMIT {_LABELS_PER_PAGE}"
    )
    last = 0
    while True:
        with database.read_transaction() as transaction:
            rows = transaction.execute(query, run_no, last).all()
        for row in rows:
            label = _parse_label_row(row)
            if history or not label.is_empty:
                yield label
        if len(rows) < _LABELS_PER_PAGE:
            return
        last = rows[-1].label_no


def _parse_label_row(row: Any) -> SampleLabel:
    return SampleLabel(
        key=row.key,
        verdict=row.verdict,
        score=row.score,
        answer=row.answer,
        note=row.note,
        author=row.author,
        recorded_at=row.recorded_at,
    )
