"""Read a run: narrow rows or whole samples in dataset order, a page at a time.

Failed attempts are stored apart from results. Reading merges in the last failed attempt of each
sample without a result, so that failed samples are counted.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.errors import StoreError
from assay.types import build_label

from .database import Database
from .excerpts import to_column_text
from .insert_rows import NO_POSITION, decode_body, to_column_id
from .insertion import compute_first_result_no
from .run_rows import build_deleted_error
from .sample_keys import DoneKeys, RecordedPrompts

if TYPE_CHECKING:
    from assay.types import Sample, Status, Trajectory

# `Boundary.SCORER` in a column: a rollout whose scorer failed is kept, to be scored again.
_SCORER = "scorer"

# The columns read for a result or an attempt: the fields of `ResultRow` in order, and a number
# that breaks ties.
_ROW_COLUMNS = (
    "key sample_id repeat group_index status score valid boundary cost_usd input_tokens "
    "output_tokens latency_s cached recorded_at metrics position number"
).split()

_VALID, _CACHED = _ROW_COLUMNS.index("valid"), _ROW_COLUMNS.index("cached")
_POSITION = _ROW_COLUMNS.index("position")

IS_FINAL_FAILURE = (
    "NOT EXISTS (SELECT 1 FROM assay_result d WHERE d.run_no = t.run_no AND d.key = t.key) "
    "AND NOT EXISTS (SELECT 1 FROM assay_attempt l "
    "WHERE l.run_no = t.run_no AND l.key = t.key AND l.attempt_no > t.attempt_no)"
)
"""The condition that an attempt `t` is the last one of a sample without a result."""

# Without the checks of `json.loads`, which take longer than these short texts.
_DECODE_JSON = json.JSONDecoder().raw_decode

_ROWS_PER_PAGE = 1000
_BODIES_PER_PAGE = 50
_KEYS_PER_PAGE = 10_000


# Not frozen: creating a frozen one takes 18 times as long, and a report may read a million.
@dataclass(slots=True)
class ResultRow:
    """The narrow part of one result, or of a sample that failed and has none."""

    key: str
    sample_id: str
    repeat: int
    group_index: int | None
    status: str
    score: float | None
    valid: bool
    boundary: str | None
    """The boundary at which the sample failed. None for a result."""

    cost_usd: float | None
    input_tokens: int | None
    output_tokens: int | None
    latency_s: float | None
    cached: bool
    recorded_at: float
    """Seconds since 1970."""

    metrics: dict[str, float | None]
    index: int | None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One failed attempt."""

    number: int
    """Ascending with time, unique in the store."""

    key: str
    sample_id: str
    index: int | None
    repeat: int
    boundary: str
    kind: str
    message: str
    retryable: bool
    recorded_at: float


@dataclass(frozen=True)
class RetriedAttempts:
    """Failed attempts that were retried. No result or failure includes them."""

    attempts: int
    cost_usd: float | None
    """Their additional cost as far as it is known; None if no attempt has one. A rollout that is
    kept because only its scorer failed adds nothing."""

    cost_known: int


@dataclass(frozen=True)
class FailureGroup:
    """Samples that failed for the same reason."""

    boundary: str
    kind: str
    message: str
    samples: int
    example: str
    """The id of one of them."""

    label: str
    """The label of that one."""


class RecordedSample(NamedTuple):
    """A whole sample with its place in the run."""

    key: str
    repeat: int
    sample: "Sample"


@dataclass(frozen=True)
class KeptRollout:
    """A recorded rollout that can be scored again without model calls."""

    trajectory: "Trajectory"
    prompt_digest: str | None
    """None in rows of older versions of assay."""

    metadata: dict[str, Any] = field(default_factory=dict)
    """Metadata of the sample, including entries of its scorer before it failed."""


@dataclass(frozen=True)
class _Place:
    """The sample to read; None for each that does not matter."""

    sample_id: str | None = None
    index: int | None = None


class RunReader:
    """What a run has recorded. No transaction is open while its rows are used."""

    def __init__(self, database: Database, run_no: int, run_id: str) -> None:
        self._database = database
        self._run_no = run_no
        self._run_id = run_id

    def results(
        self,
        *,
        status: "Status | None" = None,
        valid: bool | None = None,
        sample_id: str | None = None,
        index: int | None = None,
        failed: bool = True,
    ) -> Iterator[ResultRow]:
        """Yield narrow rows in dataset order; repeats of a sample are adjacent.

        A sample whose attempts all failed is included once, with its `boundary`, unless `failed`
        is False. With its `index` as well, one sample of a large run is found at once.
        """
        place = _Place(sample_id, index)
        for row in self._merge_rows(status, valid, place, failed=failed, bodies=False):
            yield _parse_row(row)

    def samples(
        self,
        *,
        status: "Status | None" = None,
        valid: bool | None = None,
        sample_id: str | None = None,
        index: int | None = None,
        failed: bool = True,
    ) -> "Iterator[Sample]":
        """Yield whole samples, ordered and filtered as in `results`, with one page in memory."""
        place = _Place(sample_id, index)
        for row in self._merge_rows(status, valid, place, failed=failed, bodies=True):
            yield self._parse_body(row)

    def samples_with_keys(self) -> Iterator[RecordedSample]:
        """Yield whole samples as `samples` does, each with its key and repeat."""
        for row in self._merge_rows(None, None, None, failed=True, bodies=True):
            yield RecordedSample(row.key, row.repeat, self._parse_body(row))

    def results_with_samples(self) -> "Iterator[tuple[ResultRow, Sample]]":
        """Yield the rows of `results`, each with its whole sample."""
        # In one pass: of a run in use, two would read other rows.
        for row in self._merge_rows(None, None, None, failed=True, bodies=True):
            yield _parse_row(row[: len(_ROW_COLUMNS)]), self._parse_body(row)

    def find_sample(self, key: str, *, attempt: int | None = None) -> RecordedSample | None:
        """Return the result with this key, else its last failed attempt; or one failed attempt."""
        result = (
            "SELECT t.key, t.repeat, b.codec, b.blob FROM assay_result t "
            "JOIN assay_body b ON b.result_no = t.result_no WHERE t.run_no = ? AND t.key = ?"
        )
        failure = (
            "SELECT key, repeat, codec, blob FROM assay_attempt WHERE run_no = ? AND key = ? "
            f"{'' if attempt is None else 'AND attempt_no = ? '}ORDER BY attempt_no DESC LIMIT 1"
        )
        row, wanted = None, to_column_text(key)
        with self._database.read_transaction() as transaction:
            if attempt is None:
                row = transaction.execute(result, self._run_no, wanted).first()
            if row is None:
                values = () if attempt is None else (attempt,)
                row = transaction.execute(failure, self._run_no, wanted, *values).first()
        return None if row is None else RecordedSample(row.key, row.repeat, self._parse_body(row))

    def find_repeats(self, key: str) -> list[ResultRow]:
        """Return the rollouts of the same sample as this one, in order; also those that failed."""
        query = "SELECT position, sample_id FROM assay_{} WHERE run_no = ? AND key = ? LIMIT 1"
        with self._database.read_transaction() as transaction:
            for table in ("result", "attempt"):
                place = transaction.execute(
                    query.format(table), self._run_no, to_column_text(key)
                ).first()
                if place is not None:
                    break
            else:
                return []
        # By position too, which has an index: an id alone would be searched in the whole run.
        conditions: dict[str, object] = {
            "t.run_no = ?": self._run_no,
            "t.position = ?": place.position,
            "t.sample_id = ?": place.sample_id,
        }
        rows = [
            _parse_row(row)
            for failures in (False, True)
            for row in self._iterate_pages(conditions, failures=failures, bodies=False)
        ]
        return sorted(rows, key=lambda row: row.repeat)

    def find_sample_ids(self, keys: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Return sample id and repeat of each of these keys that the run has."""
        found: dict[str, tuple[str, int]] = {}
        wanted = [to_column_text(key) for key in keys]
        for first in range(0, len(wanted), _ROWS_PER_PAGE // 2):
            some = wanted[first : first + _ROWS_PER_PAGE // 2]
            marks = ", ".join("?" * len(some))
            with self._database.read_transaction() as transaction:
                for table in ("attempt", "result"):
                    query = (
                        f"SELECT key, sample_id, repeat FROM assay_{table} "
                        f"WHERE run_no = ? AND key IN ({marks})"
                    )
                    rows = transaction.execute(query, self._run_no, *some).all()
                    found.update((row.key, (row.sample_id, row.repeat)) for row in rows)
        return found

    def find_result(self, key: str) -> "tuple[ResultRow, Sample] | None":
        """Return the narrow row and the sample of a key: its result, else its last attempt."""
        for failures in (False, True):
            conditions = {"t.run_no = ?": self._run_no, "t.key = ?": to_column_text(key)}
            for row in self._iterate_pages(conditions, failures=failures, bodies=True):
                return _parse_row(row[: len(_ROW_COLUMNS)]), self._parse_body(row)
        return None

    def find_rewards(self, keys: Iterable[str]) -> dict[str, tuple[float | None, float | None]]:
        """Return reward and cost of each of these keys that has a result."""
        found: dict[str, tuple[float | None, float | None]] = {}
        wanted = list(keys)
        for first in range(0, len(wanted), _ROWS_PER_PAGE):
            some = wanted[first : first + _ROWS_PER_PAGE]
            query = (
                "SELECT key, score, valid, cost_usd FROM assay_result "
                f"WHERE run_no = ? AND key IN ({', '.join('?' * len(some))})"
            )
            with self._database.read_transaction() as transaction:
                for row in transaction.execute(query, self._run_no, *some).all():
                    found[row.key] = row.score if row.valid else None, row.cost_usd
        return found

    def samples_by_key(self, keys: Iterable[str]) -> "Iterator[tuple[str, Sample]]":
        """Yield key and sample of each of these results; of a failure its last attempt.

        Keys are read in the order given, a page at a time; those that do not exist are left out.
        """
        # By the index of keys: a search for an id reads the whole run.
        wanted = list(dict.fromkeys(keys))
        for start in range(0, len(wanted), _BODIES_PER_PAGE):
            page = wanted[start : start + _BODIES_PER_PAGE]
            condition = f"t.run_no = ? AND t.key IN ({', '.join('?' * len(page))})"
            queries = (
                # Results last: a sample may have failed before it was completed.
                f"SELECT t.key, t.codec, t.blob FROM assay_attempt t WHERE {condition} "
                "ORDER BY t.attempt_no",
                "SELECT t.key, b.codec, b.blob FROM assay_result t "
                f"JOIN assay_body b ON b.result_no = t.result_no WHERE {condition}",
            )
            found: dict[str, Any] = {}
            with self._database.read_transaction() as transaction:
                for query in queries:
                    rows = transaction.execute(query, self._run_no, *page).all()
                    found.update((row.key, row) for row in rows)
            for key in page:
                if key in found:
                    yield key, self._parse_body(found[key])

    def read_labels(self, sample_ids: Iterable[str]) -> dict[str, str]:
        """Return the label of each of these samples that the run has."""
        found = ((each, next(self.samples(sample_id=each), None)) for each in sample_ids)
        return {each: build_label(sample) for each, sample in found if sample is not None}

    def attempts(self, *, key: str | None = None) -> Iterator[AttemptRow]:
        """Yield failed attempts, oldest first, of one key or of all."""
        query = (
            "SELECT attempt_no, key, sample_id, position, repeat, boundary, kind, message, "
            "retryable, recorded_at FROM assay_attempt WHERE run_no = ? AND attempt_no > ?"
            f"{'' if key is None else ' AND key = ?'} ORDER BY attempt_no LIMIT {_ROWS_PER_PAGE}"
        )
        last = 0
        while True:
            values = () if key is None else (key,)
            with self._database.read_transaction() as transaction:
                rows = transaction.execute(query, self._run_no, last, *values).all()
            for row in rows:
                yield AttemptRow(
                    number=row.attempt_no,
                    key=row.key,
                    sample_id=row.sample_id,
                    index=None if row.position == NO_POSITION else row.position,
                    repeat=row.repeat,
                    boundary=row.boundary,
                    kind=row.kind,
                    message=row.message,
                    retryable=bool(row.retryable),
                    recorded_at=row.recorded_at,
                )
            if len(rows) < _ROWS_PER_PAGE:
                return
            last = rows[-1].attempt_no

    def read_retries(self) -> RetriedAttempts:
        """Return number and cost of the retried attempts, which `results` does not include."""
        # A rollout whose scorer failed is rescored without model calls: count its cost once, with
        # the later attempt.
        cost = f"CASE WHEN t.boundary = '{_SCORER}' THEN 0.0 ELSE t.cost_usd END"
        query = (
            f"SELECT count(*) AS attempts, sum({cost}) AS cost, count({cost}) AS known "
            f"FROM assay_attempt t WHERE t.run_no = ? AND NOT ({IS_FINAL_FAILURE})"
        )
        with self._database.read_transaction() as transaction:
            return RetriedAttempts(*transaction.execute(query, self._run_no).first())

    def failure_groups(self, *, limit: int = 5) -> list[FailureGroup]:
        """Return the reasons of failed samples, the most frequent first."""
        query = (
            "SELECT boundary, kind, message, count(*) AS samples, min(sample_id) AS example "
            "FROM assay_attempt t "
            f"WHERE t.run_no = ? AND {IS_FINAL_FAILURE} GROUP BY boundary, kind, message "
            "ORDER BY samples DESC, boundary, kind, message LIMIT ?"
        )
        # Among the attempts: a search for an id reads all results of the run.
        label_query = (
            "SELECT label FROM assay_attempt WHERE run_no = ? AND sample_id = ? "
            "ORDER BY attempt_no DESC LIMIT 1"
        )
        with self._database.read_transaction() as transaction:
            rows = transaction.execute(query, self._run_no, limit).all()
            labels = {
                row.example: transaction.execute(label_query, self._run_no, row.example).scalar()
                for row in rows
            }
        # Older versions stored no labels.
        missing = [example for example, label in labels.items() if label is None]
        labels.update(self.read_labels(missing))
        return [
            FailureGroup(boundary, kind, message, samples, example, labels[example] or "")
            for boundary, kind, message, samples, example in rows
        ]

    def attempts_cost_usd(self) -> float:
        """Return the known cost of all failed attempts."""
        # A rollout whose scorer failed is paid for once, however often it is rescored.
        query = (
            "SELECT sum(t.cost_usd) FROM assay_attempt t WHERE t.run_no = ? "
            f"AND (t.boundary <> '{_SCORER}' OR {IS_FINAL_FAILURE})"
        )
        with self._database.read_transaction() as transaction:
            return float(transaction.execute(query, self._run_no).scalar() or 0.0)

    def read_done_keys(self) -> DoneKeys:
        """Return the keys of all results. Failed attempts are not done."""
        return DoneKeys(key for key, _ in self._read_prompts(kept=False))

    def read_kept_keys(self) -> DoneKeys:
        """Return the keys whose scorer failed at least once, done or not."""
        return DoneKeys(key for key, _ in self._read_prompts(kept=True))

    def prompts(self) -> RecordedPrompts:
        """Return the prompts of rollouts that are done, or were kept when their scorer failed."""
        return RecordedPrompts(chain(self._read_prompts(kept=False), self._read_prompts(kept=True)))

    def _read_prompts(self, *, kept: bool) -> Iterator[tuple[str, str | None]]:
        """Yield key and prompt digest of each result, or of each attempt whose scorer failed."""
        if kept:
            table, number, last = "assay_attempt", "attempt_no", 0
            condition: str = "boundary = ?"
            value: object = _SCORER
        else:
            # By the run's range of numbers: the rows are read in the order of the primary key.
            table, number, last = "assay_result", "result_no", compute_first_result_no(self._run_no)
            condition, value = "result_no < ?", compute_first_result_no(self._run_no + 1)
        query = (
            f"SELECT {number} AS number, key, prompt_digest FROM {table} WHERE run_no = ? "
            f"AND {condition} AND {number} > ? ORDER BY {number} LIMIT {_KEYS_PER_PAGE}"
        )
        while True:
            with self._database.read_transaction() as transaction:
                rows = transaction.execute(query, self._run_no, value, last).all()
            for _, key, digest in rows:
                yield key, digest
            if len(rows) < _KEYS_PER_PAGE:
                return
            last = rows[-1].number

    def find_kept_rollout(self, key: str) -> KeptRollout | None:
        """Return the rollout of a result, or of the last attempt whose scorer failed."""
        result = (
            "SELECT t.key, b.codec, b.blob, t.prompt_digest FROM assay_result t "
            "JOIN assay_body b ON b.result_no = t.result_no WHERE t.run_no = ? AND t.key = ?"
        )
        attempt = (
            "SELECT key, codec, blob, prompt_digest FROM assay_attempt "
            "WHERE run_no = ? AND key = ? AND boundary = ? ORDER BY attempt_no DESC LIMIT 1"
        )
        with self._database.read_transaction() as transaction:
            row = transaction.execute(result, self._run_no, key).first()
            if row is None:
                row = transaction.execute(attempt, self._run_no, key, _SCORER).first()
        sample = None if row is None else self._parse_body(row)
        if sample is None or sample.trajectory is None:
            return None
        return KeptRollout(sample.trajectory, row.prompt_digest, sample.metadata)

    def _parse_body(self, row: Any) -> "Sample":
        return parse_sample(row, where=f"{self._database.where}, key {row.key}")

    def _merge_rows(
        self,
        status: "Status | None",
        valid: bool | None,
        wanted: "_Place | None" = None,
        *,
        failed: bool,
        bodies: bool,
    ) -> Iterator[Any]:
        """Yield the rows of results, and of failed samples without one, in dataset order."""
        conditions: dict[str, object] = {"t.run_no = ?": self._run_no}
        if status is not None:
            conditions["t.status = ?"] = str(status)
        if wanted is not None and wanted.sample_id is not None:
            conditions["t.sample_id = ?"] = to_column_id(wanted.sample_id)
        if wanted is not None and wanted.index is not None:
            conditions["t.position = ?"] = wanted.index
        of_results = conditions if valid is None else {**conditions, "t.valid = ?": valid}
        results = self._iterate_pages(of_results, failures=False, bodies=bodies)
        query = "SELECT attempts FROM assay_tally WHERE run_no = ?"
        with self._database.read_transaction() as transaction:
            attempts = transaction.execute(query, self._run_no).scalar()
        if attempts is None:
            # Without rows it would look like a run that has recorded nothing.
            raise build_deleted_error(self._run_id, self._database.where)
        any_failed = attempts > 0
        if not failed or valid or not any_failed:
            yield from results
            return
        failures = self._iterate_pages(conditions, failures=True, bodies=bodies)
        yield from _merge_failures(results, failures)

    def _iterate_pages(
        self, conditions: dict[str, object], *, failures: bool, bodies: bool
    ) -> Iterator[Any]:
        """Yield `_ROW_COLUMNS` of results, or of final failures, in dataset order."""
        if failures:
            source, number, body = "assay_attempt t", "t.attempt_no", ", t.codec, t.blob"
            # Constants for the columns that only results have.
            other = {"score": "NULL", "valid": "FALSE", "metrics": "NULL", "number": number}
        else:
            source, number, body = "assay_result t", "t.result_no", ", b.codec, b.blob"
            source += " JOIN assay_body b ON b.result_no = t.result_no" if bodies else ""
            other = {"boundary": "NULL", "number": number}
        columns = ", ".join(f"{other.get(name, f't.{name}')} AS {name}" for name in _ROW_COLUMNS)
        where = " AND ".join([*conditions, *([IS_FINAL_FAILURE] if failures else [])])
        query = f"SELECT {columns}{body if bodies else ''} FROM {source} WHERE {where}"
        order = f"t.position, t.sample_id, t.repeat, {number}"
        size = _BODIES_PER_PAGE if bodies else _ROWS_PER_PAGE
        page, after = query, tuple[object, ...]()
        while True:
            with self._database.read_transaction() as transaction:
                rows = transaction.execute(
                    f"{page} ORDER BY {order} LIMIT {size}", *conditions.values(), *after
                ).all()
            yield from rows
            if len(rows) < size:
                return
            page = f"{query} AND ({order}) > (?, ?, ?, ?)"
            after = (*_read_place(rows[-1]), rows[-1].number)


def _merge_failures(results: Iterator[Any], failures: Iterator[Any]) -> Iterator[Any]:
    """Yield both in dataset order, without failures of samples that have a result.

    A result may be recorded between two pages, so that its failure was read as well.
    """
    failure, keys = next(failures, None), set[str]()
    for row in results:
        # Most samples do not fail: their positions are compared first, which is quick.
        while failure is not None and failure.position <= row[_POSITION]:
            if _read_place(failure) >= _read_place(row):
                # Of those at the same place, results come first.
                if _read_place(failure) == _read_place(row):
                    keys.add(row.key)
                break
            if failure.key not in keys:
                yield failure
            failure = next(failures, None)
        yield row
    while failure is not None:
        if failure.key not in keys:
            yield failure
        failure = next(failures, None)


def _read_place(row: Any) -> tuple[int, str, int]:
    # Databases sort text by its bytes, Python by code points: the same order in UTF-8.
    return (row.position, row.sample_id, row.repeat)


def _parse_row(row: Sequence[Any]) -> ResultRow:
    # By position, not by name: looking up attributes of a million rows is slow.
    *values, metrics, position, _ = row
    # SQLite has no booleans.
    values[_VALID], values[_CACHED] = bool(values[_VALID]), bool(values[_CACHED])
    values.append({} if metrics is None else _DECODE_JSON(metrics)[0])
    values.append(None if position == NO_POSITION else position)
    return ResultRow(*values)


def parse_sample(row: Any, *, where: str) -> "Sample":
    """Parse the body of a row with `codec` and `blob`. Raises `StoreError`."""
    # Not above: lists and gates read numbers only, and need none of these models.
    from pydantic import ValidationError

    from assay.types import Sample

    try:
        return Sample.from_json(decode_body(row.codec, row.blob, where=where))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise StoreError(f"a stored sample cannot be read: {problem}", where=where) from None
