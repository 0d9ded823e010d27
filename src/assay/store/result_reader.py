"""Read results of a run: narrow rows or whole samples, in dataset order, a page at a time.

Failed attempts are stored apart from results. Reading merges in the last failed attempt of each
sample without a result, so that failed samples are counted.
"""

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import StoreError

from .database import Database
from .insert_rows import NO_POSITION, decode_body, to_column_id

if TYPE_CHECKING:
    from assay.types import Sample, Status

SCORER_BOUNDARY = "scorer"
"""`Boundary.SCORER` in a column: a rollout whose scorer failed is kept, to be scored again."""

# The columns read for a result or an attempt: the fields of `ResultRow` in order, and a number
# that breaks ties.
_ROW_COLUMNS = (
    "key sample_id repeat group_index status score valid boundary cost_usd input_tokens "
    "output_tokens latency_s cached recorded_at metrics position number"
).split()

_VALID, _CACHED = _ROW_COLUMNS.index("valid"), _ROW_COLUMNS.index("cached")

# The condition that an attempt is the last one of a sample without a result.
_IS_FINAL_FAILURE = (
    "NOT EXISTS (SELECT 1 FROM assay_result d WHERE d.run_no = t.run_no AND d.key = t.key) "
    "AND NOT EXISTS (SELECT 1 FROM assay_attempt l "
    "WHERE l.run_no = t.run_no AND l.key = t.key AND l.attempt_no > t.attempt_no)"
)

_ROWS_PER_PAGE = 1000
_BODIES_PER_PAGE = 50


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


@dataclass(frozen=True)
class ResultFilter:
    """Which samples of a run to read."""

    status: "Status | None" = None
    valid: bool | None = None
    sample_id: str | None = None
    failed: bool = True
    """Whether to include failed samples without a result."""


def read_results(database: Database, run_no: int, chosen: ResultFilter) -> Iterator[ResultRow]:
    for row in _merge_rows(database, run_no, chosen, bodies=False):
        yield _parse_result_row(row)


def read_samples(database: Database, run_no: int, chosen: ResultFilter) -> "Iterator[Sample]":
    for row in _merge_rows(database, run_no, chosen, bodies=True):
        yield parse_body(row.codec, row.blob, where=f"{database.where}, key {row.key}")


def parse_body(codec: str, blob: bytes, *, where: str) -> "Sample":
    """Parse the sample of a body. Raises `StoreError` for an invalid one."""
    # Not above: lists and gates read numbers only, and need none of these models.
    from pydantic import ValidationError

    from assay.types import Sample

    try:
        return Sample.from_json(decode_body(codec, blob, where=where))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise StoreError(f"a stored sample cannot be read: {problem}", where=where) from None


def read_attempts(database: Database, run_no: int, *, key: str | None) -> Iterator[AttemptRow]:
    """Yield failed attempts, oldest first."""
    query = (
        "SELECT attempt_no, key, sample_id, position, repeat, boundary, kind, message, retryable, "
        "recorded_at FROM assay_attempt WHERE run_no = ? AND attempt_no > ?"
        f"{'' if key is None else ' AND key = ?'} ORDER BY attempt_no LIMIT {_ROWS_PER_PAGE}"
    )
    last = 0
    while True:
        with database.read_transaction() as transaction:
            values = () if key is None else (key,)
            rows = transaction.execute(query, run_no, last, *values).all()
        for row in rows:
            yield AttemptRow(
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


def read_retried_attempts(database: Database, run_no: int) -> RetriedAttempts:
    # A rollout whose scorer failed is rescored without model calls: count its cost once, with the
    # later attempt.
    cost = f"CASE WHEN t.boundary = '{SCORER_BOUNDARY}' THEN 0.0 ELSE t.cost_usd END"
    query = (
        f"SELECT count(*) AS attempts, sum({cost}) AS cost, count({cost}) AS known "
        f"FROM assay_attempt t WHERE t.run_no = ? AND NOT ({_IS_FINAL_FAILURE})"
    )
    with database.read_transaction() as transaction:
        return RetriedAttempts(*transaction.execute(query, run_no).first())


def read_failure_groups(database: Database, run_no: int, limit: int) -> list[FailureGroup]:
    query = (
        "SELECT boundary, kind, message, count(*) AS samples FROM assay_attempt t "
        f"WHERE t.run_no = ? AND {_IS_FINAL_FAILURE} GROUP BY boundary, kind, message "
        "ORDER BY samples DESC, boundary, kind, message LIMIT ?"
    )
    with database.read_transaction() as transaction:
        return [FailureGroup(*row) for row in transaction.execute(query, run_no, limit).all()]


def read_attempts_cost(database: Database, run_no: int) -> float:
    # A rollout whose scorer failed is paid for once, however often it is rescored.
    query = (
        "SELECT sum(t.cost_usd) FROM assay_attempt t WHERE t.run_no = ? "
        f"AND (t.boundary <> '{SCORER_BOUNDARY}' OR {_IS_FINAL_FAILURE})"
    )
    with database.read_transaction() as transaction:
        return float(transaction.execute(query, run_no).scalar() or 0.0)


def read_keys(database: Database, run_no: int) -> Iterator[str]:
    """Yield the keys of all results."""
    query = "SELECT key FROM assay_result WHERE run_no = ? AND key > ? ORDER BY key LIMIT ?"
    last, size = "", 10 * _ROWS_PER_PAGE
    while True:
        with database.read_transaction() as transaction:
            keys = transaction.execute(query, run_no, last, size).scalars()
        yield from keys
        if len(keys) < size:
            return
        last = keys[-1]


def _merge_rows(
    database: Database, run_no: int, chosen: ResultFilter, *, bodies: bool
) -> Iterator[Any]:
    results = _iterate_pages(database, run_no, chosen, failures=False, bodies=bodies)
    if not chosen.failed or chosen.valid:
        return results
    query = "SELECT attempts FROM assay_tally WHERE run_no = ?"
    with database.read_transaction() as transaction:
        if not transaction.execute(query, run_no).scalar():
            return results
    failures = _iterate_pages(database, run_no, chosen, failures=True, bodies=bodies)
    return _drop_repeated_keys(heapq.merge(results, failures, key=_result_sort_key))


def _result_sort_key(row: Any) -> tuple[int, str, int]:
    # Databases sort text by its bytes, Python by code points: the same order in UTF-8.
    return (row.position, row.sample_id, row.repeat)


def _drop_repeated_keys(rows: Iterator[Any]) -> Iterator[Any]:
    # A result may be recorded between two pages, so that its failure was read as well.
    position: object = None
    keys: set[str] = set()
    for row in rows:
        if _result_sort_key(row) != position:
            position, keys = _result_sort_key(row), set()
        if row.key not in keys:
            keys.add(row.key)
            yield row


def _iterate_pages(
    database: Database, run_no: int, chosen: ResultFilter, *, failures: bool, bodies: bool
) -> Iterator[Any]:
    """Yield results, or final failures, in dataset order.

    A page at a time, so that no transaction is open while the rows are used.
    """
    query, values = _build_row_query(run_no, chosen, failures=failures, bodies=bodies)
    order = f"t.position, t.sample_id, t.repeat, {'t.attempt_no' if failures else 't.result_no'}"
    size = _BODIES_PER_PAGE if bodies else _ROWS_PER_PAGE
    page = query
    after: tuple[object, ...] = ()
    while True:
        with database.read_transaction() as transaction:
            rows = transaction.execute(
                f"{page} ORDER BY {order} LIMIT {size}", *values, *after
            ).all()
        yield from rows
        if len(rows) < size:
            return
        page = f"{query} AND ({order}) > (?, ?, ?, ?)"
        after = (*_result_sort_key(rows[-1]), rows[-1].number)


def _build_row_query(
    run_no: int, chosen: ResultFilter, *, failures: bool, bodies: bool
) -> tuple[str, list[object]]:
    """Build the query of `_ROW_COLUMNS`, without an order, and its values."""
    if failures:
        source, codec = "assay_attempt t", ", t.codec, t.blob"
        # Constants for the columns that only results have.
        other = {"score": "NULL", "valid": "FALSE", "metrics": "NULL", "number": "t.attempt_no"}
    else:
        source, codec = "assay_result t", ", b.codec, b.blob"
        source += " JOIN assay_body b ON b.result_no = t.result_no" if bodies else ""
        other = {"boundary": "NULL", "number": "t.result_no"}
    columns = ", ".join(f"{other.get(name, f't.{name}')} AS {name}" for name in _ROW_COLUMNS)
    conditions: dict[str, object] = {"t.run_no = ?": run_no}
    if chosen.status is not None:
        conditions["t.status = ?"] = str(chosen.status)
    if chosen.sample_id is not None:
        conditions["t.sample_id = ?"] = to_column_id(chosen.sample_id)
    if chosen.valid is not None and not failures:
        conditions["t.valid = ?"] = chosen.valid
    where = " AND ".join([*conditions, *([_IS_FINAL_FAILURE] if failures else [])])
    query = f"SELECT {columns}{codec if bodies else ''} FROM {source} WHERE {where}"
    return query, list(conditions.values())


def _parse_result_row(row: Sequence[Any]) -> ResultRow:
    # By position, not by name: looking up attributes of a million rows is slow.
    *values, metrics, position, _ = row
    # SQLite has no booleans.
    values[_VALID], values[_CACHED] = bool(values[_VALID]), bool(values[_CACHED])
    values.append({} if metrics is None else json.loads(metrics))
    values.append(None if position == NO_POSITION else position)
    return ResultRow(*values)
