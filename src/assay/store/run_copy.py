"""Copies of runs in other stores: insert-if-absent, so that a copy can be resumed and repeated."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import ConfigError

from .database import Database, Transaction
from .excerpts import NO_EXCERPT, Excerpt
from .insert_rows import ATTEMPT_COLUMNS, RESULT_COLUMNS, InsertRow, decode_body
from .insertion import insert_batch
from .lease import Lease, claim_run
from .run_rows import find_run_row
from .store import Store, insert_run_columns

_BATCH = 500
_RUN_COLUMNS = (
    "id name config config_fingerprint dataset dataset_fingerprint dataset_changed total repeats "
    "created_at finished_at key_fingerprint reuses"
).split()
_LABEL_COLUMNS = "key verdict score answer note author recorded_at".split()
# Two runs with one id are the same run if these agree.
_IDENTITY = ("config_fingerprint", "key_fingerprint", "dataset_fingerprint", "repeats")
_BOOLEANS = frozenset({"valid", "cached", "retryable", "dataset_changed"})


@dataclass
class CopyProgress:
    """Counts of a copy."""

    total: int
    """Results of the run when the copy began."""

    results: int = 0
    attempts: int = 0
    steps: int = 0
    labels: int = 0
    present: int = 0
    """Results that the other store already had."""


def copy_run(
    store: Store, other: Store, run_id: str, *, watch: Callable[[CopyProgress], None] | None = None
) -> CopyProgress:
    """Copy a run with its results, bodies, failed attempts, training steps and labels.

    Rows that the other store has are kept as they are. Raises `ConfigError` if it has another run
    of that id, or if a live process uses its copy.
    """
    source, target = store._database, other._database
    with source.read_transaction() as transaction:
        row = find_run_row(transaction, run_id, where=store.where)
        total = transaction.execute(
            "SELECT recorded FROM assay_tally WHERE run_no = ?", row.run_no
        ).scalar()
    run_no, lease = _claim_copy(target, row)
    progress = CopyProgress(total)
    try:
        for batch in _read_batches(source, row.run_no, _RESULT_QUERY, _build_copied_row):
            new = _omit_present(target, run_no, "result", batch)
            progress.results += sum(insert_batch(target, run_no, new)) if new else 0
            progress.present += len(batch) - len(new)
            lease.renew()
            if watch is not None:
                watch(progress)
        for batch in _read_batches(source, row.run_no, _ATTEMPT_QUERY, _build_attempt):
            new = _omit_present(target, run_no, "attempt", batch)
            insert_batch(target, run_no, new)
            progress.attempts += len(new)
            lease.renew()
        progress.steps = _copy_steps(source, row.run_no, target, run_no)
        progress.labels = _copy_labels(source, row.run_no, target, run_no)
    finally:
        with target.write_transaction() as transaction:
            lease.release(transaction)
    # Last: until then the copy is an interrupted run.
    status = "interrupted" if row.status == "running" else row.status
    with target.write_transaction() as transaction:
        transaction.execute(
            "UPDATE assay_run SET status = ?, finished_at = ? WHERE run_no = ?",
            status,
            row.finished_at,
            run_no,
        )
    return progress


def _claim_copy(target: Database, row: Any) -> tuple[int, Lease]:
    """Create the run in the other store, or find its copy, and claim it."""
    values = {name: getattr(row, name) for name in _RUN_COLUMNS}
    values |= {"dataset_changed": bool(row.dataset_changed), "status": "interrupted"}
    with target.write_transaction() as transaction:
        run_no = insert_run_columns(transaction, values)
        if run_no is None:
            found = find_run_row(transaction, row.id, where=target.where, lock=True)
            differing = [name for name in _IDENTITY if getattr(found, name) != getattr(row, name)]
            if differing:
                raise ConfigError(
                    f"another run has the id {row.id!r}: they differ in {', '.join(differing)}",
                    where=target.where,
                    hint="copy to another store, or delete one of the two runs",
                )
            run_no = int(found.run_no)
        return run_no, claim_run(target, transaction, run_no, row.id, take_over=False)


_RESULT_QUERY = (
    f"SELECT t.result_no AS number, {', '.join(f't.{name}' for name in RESULT_COLUMNS[1:])}, "
    "t.prompt_digest, b.codec, b.blob, e.label, e.answer, e.expected, e.reason, e.fields "
    "FROM assay_result t JOIN assay_body b ON b.result_no = t.result_no "
    "LEFT JOIN assay_excerpt e ON e.result_no = t.result_no "
    "WHERE t.run_no = ? AND t.result_no > ? ORDER BY t.result_no LIMIT ?"
)
_ATTEMPT_QUERY = (
    f"SELECT attempt_no AS number, {', '.join(ATTEMPT_COLUMNS[1:])}, prompt_digest, label, answer, "
    "expected, fields FROM assay_attempt "
    "WHERE run_no = ? AND attempt_no > ? ORDER BY attempt_no LIMIT ?"
)


def _read_batches(
    source: Database, run_no: int, query: str, build: Callable[[Any, str], InsertRow]
) -> Iterator[list[InsertRow]]:
    last = -1
    while True:
        with source.read_transaction() as transaction:
            rows = transaction.execute(query, run_no, last, _BATCH).all()
        if rows:
            yield [build(row, source.where) for row in rows]
        if len(rows) < _BATCH:
            return
        last = rows[-1].number


def _build_copied_row(row: Any, where: str) -> InsertRow:
    values = _read_values(row, RESULT_COLUMNS[1:])
    # Results of older versions have no excerpt.
    known = row.label is not None or row.answer is not None
    excerpt = Excerpt(*(getattr(row, name) for name in Excerpt._fields)) if known else NO_EXCERPT
    return InsertRow(
        row.key,
        values,
        decode_body(row.codec, row.blob, where=where),
        prompt_digest=row.prompt_digest,
        excerpt=excerpt,
    )


def _build_attempt(row: Any, where: str) -> InsertRow:
    values = _read_values(row, ATTEMPT_COLUMNS[1:-2])
    excerpt = Excerpt(row.label, row.answer, row.expected, "", row.fields)
    body = decode_body(row.codec, row.blob, where=where)
    return InsertRow(
        row.key, values, body, failed=True, prompt_digest=row.prompt_digest, excerpt=excerpt
    )


def _read_values(row: Any, names: Sequence[str]) -> tuple[Any, ...]:
    # SQLite stores booleans as numbers, which PostgreSQL refuses.
    return tuple(
        bool(getattr(row, name)) if name in _BOOLEANS else getattr(row, name) for name in names
    )


def _omit_present(
    target: Database, run_no: int, table: str, batch: list[InsertRow]
) -> list[InsertRow]:
    """Return the rows that the other store lacks."""
    marks = ", ".join("?" * len(batch))
    query = f"SELECT key, recorded_at FROM assay_{table} WHERE run_no = ? AND key IN ({marks})"
    with target.read_transaction() as transaction:
        rows = transaction.execute(query, run_no, *(entry.key for entry in batch)).all()
    if table == "result":
        present = {row.key for row in rows}
        return [entry for entry in batch if entry.key not in present]
    # A sample may have several attempts, which differ in their time.
    at = RESULT_COLUMNS.index("recorded_at") - 1
    attempts = {(row.key, row.recorded_at) for row in rows}
    return [entry for entry in batch if (entry.key, entry.values[at]) not in attempts]


def _copy_steps(source: Database, source_no: int, target: Database, run_no: int) -> int:
    with source.read_transaction() as transaction:
        query = "SELECT step, metrics, recorded_at FROM assay_step WHERE run_no = ? ORDER BY step"
        rows = transaction.execute(query, source_no).all()
    with target.write_transaction() as transaction:
        before = _count_rows(transaction, "step", run_no)
        transaction.execute_many(
            "INSERT INTO assay_step (run_no, step, metrics, recorded_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (run_no, step) DO NOTHING",
            [(run_no, *row) for row in rows],
        )
        return _count_rows(transaction, "step", run_no) - before


def _copy_labels(source: Database, source_no: int, target: Database, run_no: int) -> int:
    columns = ", ".join(_LABEL_COLUMNS)
    query = f"SELECT {columns} FROM assay_label WHERE run_no = ? ORDER BY label_no"
    with source.read_transaction() as transaction:
        rows = transaction.execute(query, source_no).all()
    with target.write_transaction() as transaction:
        found = transaction.execute(query, run_no).all()
        present = {(row.key, row.author, row.recorded_at) for row in found}
        new = [row for row in rows if (row.key, row.author, row.recorded_at) not in present]
        marks = ", ".join("?" * (len(_LABEL_COLUMNS) + 1))
        transaction.execute_many(
            f"INSERT INTO assay_label (run_no, {columns}) VALUES ({marks})",
            [(run_no, *row) for row in new],
        )
    return len(new)


def _count_rows(transaction: Transaction, table: str, run_no: int) -> int:
    query = f"SELECT count(*) FROM assay_{table} WHERE run_no = ?"
    return int(transaction.execute(query, run_no).scalar())
