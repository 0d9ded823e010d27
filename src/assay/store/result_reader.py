"""Read results of a run: narrow rows or whole samples, in dataset order, a page at a time.

Failed attempts are stored apart from results. Reading merges in the last failed attempt of each
sample without a result, so that failed samples are counted.
"""

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from pydantic import ValidationError

from assay.errors import StoreError
from assay.types import Boundary, Sample, Status

from .database import Database
from .insert_rows import NO_POSITION, decode_body, to_column_id
from .schema import get_tables

if TYPE_CHECKING:
    from sqlalchemy import Row, Table

# The columns read for a result or an attempt: the fields of `ResultRow` in order, and a number
# that breaks ties.
_ROW_COLUMNS = (
    "key sample_id repeat group_index status score valid boundary cost_usd input_tokens "
    "output_tokens latency_s cached recorded_at metrics position number"
).split()

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

    status: Status | None = None
    valid: bool | None = None
    sample_id: str | None = None
    failed: bool = True
    """Whether to include failed samples without a result."""


def read_results(database: Database, run_no: int, chosen: ResultFilter) -> Iterator[ResultRow]:
    for row in _merge_rows(database, run_no, chosen, bodies=False):
        yield _parse_result_row(row)


def read_samples(database: Database, run_no: int, chosen: ResultFilter) -> Iterator[Sample]:
    for row in _merge_rows(database, run_no, chosen, bodies=True):
        yield parse_body(row.codec, row.blob, where=f"{database.where}, key {row.key}")


def parse_body(codec: str, blob: bytes, *, where: str) -> Sample:
    """Parse the sample of a body. Raises `StoreError` for an invalid one."""
    try:
        return Sample.from_json(decode_body(codec, blob, where=where))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise StoreError(f"a stored sample cannot be read: {problem}", where=where) from None


def read_attempts(database: Database, run_no: int, *, key: str | None) -> Iterator[AttemptRow]:
    """Yield failed attempts, oldest first."""
    attempt = get_tables().attempt
    columns = [column for column in attempt.c if column.name not in ("codec", "blob")]
    last = 0
    while True:
        query = sa.select(*columns).where(attempt.c.run_no == run_no, attempt.c.attempt_no > last)
        if key is not None:
            query = query.where(attempt.c.key == key)
        with database.read_transaction() as connection:
            page = connection.execute(query.order_by(attempt.c.attempt_no).limit(_ROWS_PER_PAGE))
            rows = page.all()
        for row in rows:
            yield AttemptRow(
                key=row.key,
                sample_id=row.sample_id,
                index=None if row.position == NO_POSITION else row.position,
                repeat=row.repeat,
                boundary=row.boundary,
                kind=row.kind,
                message=row.message,
                retryable=row.retryable,
                recorded_at=row.recorded_at,
            )
        if len(rows) < _ROWS_PER_PAGE:
            return
        last = rows[-1].attempt_no


def read_retried_attempts(database: Database, run_no: int) -> RetriedAttempts:
    attempt = get_tables().attempt
    # A rollout whose scorer failed is rescored without model calls: count its cost once, with the
    # later attempt.
    cost_usd = sa.case((attempt.c.boundary == str(Boundary.SCORER), 0.0), else_=attempt.c.cost_usd)
    counts = sa.func.count(), sa.func.sum(cost_usd), sa.func.count(cost_usd)
    query = sa.select(*counts).where(attempt.c.run_no == run_no, ~_is_final_failure(run_no))
    with database.read_transaction() as connection:
        attempts, total_usd, known = connection.execute(query).one()
    return RetriedAttempts(attempts, total_usd, known)


def read_failure_groups(database: Database, run_no: int, limit: int) -> list[FailureGroup]:
    attempt = get_tables().attempt
    reason = attempt.c.boundary, attempt.c.kind, attempt.c.message
    samples = sa.func.count()
    query = (
        sa.select(*reason, samples)
        .where(attempt.c.run_no == run_no, _is_final_failure(run_no))
        .group_by(*reason)
        .order_by(samples.desc(), *reason)
        .limit(limit)
    )
    with database.read_transaction() as connection:
        return [FailureGroup(*row) for row in connection.execute(query)]


def read_attempts_cost(database: Database, run_no: int) -> float:
    attempt = get_tables().attempt
    # A rollout whose scorer failed is paid for once, however often it is rescored.
    counts = sa.or_(attempt.c.boundary != str(Boundary.SCORER), _is_final_failure(run_no))
    query = sa.select(sa.func.sum(attempt.c.cost_usd)).where(attempt.c.run_no == run_no, counts)
    with database.read_transaction() as connection:
        return float(connection.execute(query).scalar_one() or 0.0)


def read_keys(database: Database, run_no: int) -> Iterator[str]:
    """Yield the keys of all results."""
    result = get_tables().result
    last = ""
    while True:
        query = (
            sa.select(result.c.key)
            .where(result.c.run_no == run_no, result.c.key > last)
            .order_by(result.c.key)
            .limit(10 * _ROWS_PER_PAGE)
        )
        with database.read_transaction() as connection:
            keys = list(connection.execute(query).scalars())
        yield from keys
        if len(keys) < 10 * _ROWS_PER_PAGE:
            return
        last = keys[-1]


def _merge_rows(
    database: Database, run_no: int, chosen: ResultFilter, *, bodies: bool
) -> "Iterator[Row[Any]]":
    results = _iterate_pages(
        database, _build_result_query(run_no, chosen, bodies=bodies), bodies=bodies
    )
    if not chosen.failed or chosen.valid:
        return results
    if not _has_attempts(database, run_no):
        return results
    failures = _iterate_pages(
        database, _build_failure_query(run_no, chosen, bodies=bodies), bodies=bodies
    )
    return _drop_repeated_keys(heapq.merge(results, failures, key=_result_sort_key))


def _has_attempts(database: Database, run_no: int) -> bool:
    query = "SELECT attempts FROM assay_tally WHERE run_no = ?"
    with database.read_transaction() as connection:
        return bool(database.execute(connection, query, run_no).scalar())


def _result_sort_key(row: "Row[Any]") -> tuple[int, str, int]:
    # Databases sort text by its bytes, Python by code points: the same order in UTF-8.
    return (row.position, row.sample_id, row.repeat)


def _drop_repeated_keys(rows: "Iterator[Row[Any]]") -> "Iterator[Row[Any]]":
    # A result may be recorded between two pages, so that its failure was read as well.
    position: object = None
    keys: set[str] = set()
    for row in rows:
        if _result_sort_key(row) != position:
            position, keys = _result_sort_key(row), set()
        if row.key not in keys:
            keys.add(row.key)
            yield row


def _build_result_query(run_no: int, chosen: ResultFilter, *, bodies: bool) -> Any:
    t = get_tables()
    result = t.result
    nothing = {"boundary": sa.null()}
    columns = _select_columns(result, nothing, number=result.c.result_no)
    if bodies:
        query = sa.select(*columns, t.body.c.codec, t.body.c.blob).join_from(
            result, t.body, result.c.result_no == t.body.c.result_no
        )
    else:
        query = sa.select(*columns)
    query = _filter_query(query, result, run_no, chosen)
    return (query if chosen.valid is None else query.where(result.c.valid == chosen.valid)), result


def _build_failure_query(run_no: int, chosen: ResultFilter, *, bodies: bool) -> Any:
    attempt = get_tables().attempt
    nothing = {"score": sa.null(), "valid": sa.false(), "metrics": sa.null()}
    columns = _select_columns(attempt, nothing, number=attempt.c.attempt_no)
    if bodies:
        columns += [attempt.c.codec, attempt.c.blob]
    query = sa.select(*columns).where(_is_final_failure(run_no))
    return _filter_query(query, attempt, run_no, chosen), attempt


def _is_final_failure(run_no: int) -> Any:
    """Return the condition that an attempt is the last one of a sample without a result."""
    attempt, result = get_tables().attempt, get_tables().result
    later = attempt.alias()
    return sa.and_(
        ~sa.exists().where(result.c.run_no == run_no, result.c.key == attempt.c.key),
        ~sa.exists().where(
            later.c.run_no == run_no,
            later.c.key == attempt.c.key,
            later.c.attempt_no > attempt.c.attempt_no,
        ),
    )


def _select_columns(table: "Table", nothing: dict[str, Any], *, number: Any) -> list[Any]:
    """Return `_ROW_COLUMNS` of a table, with constants for columns that only the other has."""
    named = {**{column.name: column for column in table.c}, **nothing, "number": number}
    return [named[name].label(name) for name in _ROW_COLUMNS]


def _filter_query(query: Any, table: "Table", run_no: int, chosen: ResultFilter) -> Any:
    query = query.where(table.c.run_no == run_no)
    if chosen.status is not None:
        query = query.where(table.c.status == str(chosen.status))
    if chosen.sample_id is not None:
        query = query.where(table.c.sample_id == to_column_id(chosen.sample_id))
    return query


def _iterate_pages(database: Database, query: Any, *, bodies: bool) -> "Iterator[Row[Any]]":
    """Yield all rows of a query in dataset order. No transaction is open while they are used."""
    selected, table = query
    number = table.c.result_no if "result_no" in table.c else table.c.attempt_no
    order = (table.c.position, table.c.sample_id, table.c.repeat, number)
    size = _BODIES_PER_PAGE if bodies else _ROWS_PER_PAGE
    last: Row[Any] | None = None
    while True:
        page = selected.order_by(*order).limit(size)
        if last is not None:
            after = (last.position, last.sample_id, last.repeat, last.number)
            page = page.where(sa.tuple_(*order) > sa.tuple_(*map(sa.literal, after)))
        with database.read_transaction() as connection:
            rows = connection.execute(page).all()
        yield from rows
        if len(rows) < size:
            return
        last = rows[-1]


def _parse_result_row(row: Sequence[Any]) -> ResultRow:
    # By position, not by name: looking up attributes of a million rows is slow.
    *values, metrics, position, _ = row
    values.append({} if metrics is None else json.loads(metrics))
    values.append(None if position == NO_POSITION else position)
    return ResultRow(*values)
