"""Copies of runs in other stores: insert-if-absent, so that a copy can be resumed and repeated."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import ConfigError, StoreError

from .database import Database
from .excerpts import NO_EXCERPT, Excerpt, build_excerpt
from .insert_rows import ATTEMPT_COLUMNS, RESULT_COLUMNS, InsertRow, decode_body
from .insertion import insert_batch
from .lease import STALE_AFTER_S, Lease, claim_run, find_live_holders
from .result_reader import parse_sample
from .run_rows import build_deleted_error, find_run_row
from .store import Store, insert_run_columns

_BATCH = 500
_HEARTBEAT_S = STALE_AFTER_S / 6
_RUN_COLUMNS = (
    "id name config config_fingerprint dataset dataset_fingerprint dataset_changed total repeats "
    "created_at finished_at key_fingerprint reuses"
).split()
_LABEL_COLUMNS = "key verdict score answer note author recorded_at".split()
# The dataset and the scorer of a run may change when it is resumed; the start and the keys do not.
_IDENTITY = ("config_fingerprint", "created_at", "repeats")
_SESSION_COLUMNS = (
    "id parent_id branch_point status provider model messages created_at updated_at blob"
).split()
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
    sessions: int = 0
    present: int = 0
    """Results that the other store already had."""


def copy_run(
    store: Store, other: Store, run_id: str, *, watch: Callable[[CopyProgress], None] | None = None
) -> CopyProgress:
    """Copy a run with its results, bodies, failed attempts, training steps, labels and sessions.

    Rows that the other store has are kept, and so is the status of a copy that has more results.
    Raises `ConfigError` if it has another run of that id, if a live process uses its copy, or if
    the run is deleted meanwhile: its copy then remains interrupted.
    """
    for name, given, kind in (
        ("store", store, Store),
        ("other", other, Store),
        ("run_id", run_id, str),
    ):
        if not isinstance(given, kind):
            raise ConfigError(
                f"`{name}` cannot be of type `{type(given).__name__}`",
                where="copy_run()",
                hint="write copy_run(store, other, run_id), with two open stores",
            )
    source, target = store._database, other._database
    if store.where == other.where and store.url == other.url:
        raise ConfigError("a run cannot be copied to its own store", where=store.where)
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
        # A slash follows the id of the run in those of its sessions; `0` follows the slash.
        progress.sessions = _copy_sessions(
            source, target, f"{row.id}/", f"{row.id}0", renew=lease.renew
        )
        with source.read_transaction() as transaction:
            query = "SELECT run_no FROM assay_run WHERE run_no = ?"
            if transaction.execute(query, row.run_no).scalar() is None:
                # The copy has only what was read before.
                raise build_deleted_error(row.id, store.where)
        # Last: until then the copy is an interrupted run.
        _update_copied_run(target, run_no, row, progress, lease)
    finally:
        with target.write_transaction() as transaction:
            lease.release(transaction)
    return progress


def copy_sessions(store: Store, other: Store) -> int:
    """Copy all sessions of a store. Return the number of new and updated ones."""
    return _copy_sessions(store._database, other._database, "", None)


def _update_copied_run(
    target: Database, run_no: int, row: Any, progress: CopyProgress, lease: Lease
) -> None:
    """Set what may change while a run is executed, unless the copy was resumed by itself."""
    values = _read_run_values(row)
    del values["id"]
    values["status"] = "interrupted" if row.status == "running" else row.status
    changes = ", ".join(f"{name} = ?" for name in values)
    recorded = "SELECT recorded FROM assay_tally WHERE run_no = ?"
    with target.write_transaction() as transaction:
        if not lease.release(transaction):
            return  # another process has taken the copy over and executes it
        # Results of its own: those that this and earlier copies brought are not more.
        if transaction.execute(recorded, run_no).scalar() > progress.results + progress.present:
            return
        transaction.execute(
            f"UPDATE assay_run SET {changes} WHERE run_no = ?", *values.values(), run_no
        )


def _read_run_values(row: Any) -> dict[str, Any]:
    return {name: _read_values(row, (name,))[0] for name in _RUN_COLUMNS}


def _claim_copy(target: Database, row: Any) -> tuple[int, Lease]:
    """Create the run in the other store, or find its copy, and claim it."""
    with target.write_transaction() as transaction:
        values = {**_read_run_values(row), "status": "interrupted"}
        run_no = insert_run_columns(transaction, values)
        if run_no is None:
            found = find_run_row(transaction, row.id, where=target.where, lock=True)
            # Keys keep the fingerprint of the first scorer.
            key, found_key = (
                each.key_fingerprint or each.config_fingerprint for each in (row, found)
            )
            differing = [
                name for name in _IDENTITY[1:] if getattr(found, name) != getattr(row, name)
            ]
            if key != found_key:
                differing.insert(0, _IDENTITY[0])
            if differing:
                raise ConfigError(
                    f"another run has the id {row.id!r}: they differ in {', '.join(differing)}",
                    where=target.where,
                    hint="copy to another store, or delete one of the two runs",
                )
            run_no = int(found.run_no)
            holder = find_live_holders(transaction).get(run_no)
            if holder is not None:
                raise ConfigError(
                    f"the copy of run {row.id!r} is in use by {holder}",
                    where=target.where,
                    hint="wait for that process or stop it, then copy again",
                )
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
    return InsertRow(
        row.key,
        values,
        decode_body(row.codec, row.blob, where=where),
        prompt_digest=row.prompt_digest,
        excerpt=_copy_excerpt(row, row.reason),
    )


def _build_attempt(row: Any, where: str) -> InsertRow:
    values = _read_values(row, ATTEMPT_COLUMNS[1:-2])
    body = decode_body(row.codec, row.blob, where=where)
    return InsertRow(
        row.key,
        values,
        body,
        failed=True,
        prompt_digest=row.prompt_digest,
        excerpt=_copy_excerpt(row, ""),
    )


def _copy_excerpt(row: Any, reason: str) -> Excerpt:
    """Return the stored excerpt, or that of the body if an older version recorded none."""
    if row.label is not None:
        return Excerpt(row.label, row.answer, row.expected, reason, row.fields)
    try:
        return build_excerpt(parse_sample(row, where=f"key {row.key}"))
    except StoreError:
        # The body is copied as it is; its reader reports the problem.
        return NO_EXCERPT


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
    if not rows:
        return 0
    with target.write_transaction() as transaction:
        query = "SELECT step, recorded_at FROM assay_step WHERE run_no = ?"
        present = dict(transaction.execute(query, run_no).all())
        # A training that was resumed has repeated steps after its checkpoint.
        new = [row for row in rows if row.recorded_at > present.get(row.step, float("-inf"))]
        transaction.execute_many(
            "INSERT INTO assay_step (run_no, step, metrics, recorded_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (run_no, step) DO UPDATE SET metrics = excluded.metrics, "
            "recorded_at = excluded.recorded_at",
            [(run_no, *row) for row in new],
        )
        transaction.execute(
            "DELETE FROM assay_step WHERE run_no = ? AND step > ? AND recorded_at < ?",
            run_no,
            rows[-1].step,
            rows[-1].recorded_at,
        )
    return len(new)


def _copy_labels(source: Database, source_no: int, target: Database, run_no: int) -> int:
    columns = ", ".join(_LABEL_COLUMNS)
    query = f"SELECT {columns} FROM assay_label WHERE run_no = ? ORDER BY label_no"
    with source.read_transaction() as transaction:
        rows = transaction.execute(query, source_no).all()
    with target.write_transaction() as transaction:
        found = transaction.execute(query, run_no).all()
        present = {(row.key, row.author, row.recorded_at) for row in found}
        new = [row for row in rows if (row.key, row.author, row.recorded_at) not in present]
        if new:
            # Written anew in the order of their times: the last label of a sample counts, and the
            # other store may have later ones.
            merged = sorted([*found, *new], key=lambda row: row.recorded_at)
            marks = ", ".join("?" * (len(_LABEL_COLUMNS) + 1))
            transaction.execute("DELETE FROM assay_label WHERE run_no = ?", run_no)
            transaction.execute_many(
                f"INSERT INTO assay_label (run_no, {columns}) VALUES ({marks})",
                [(run_no, *row) for row in merged],
            )
    return len(new)


def _copy_sessions(
    source: Database,
    target: Database,
    first: str,
    end: str | None,
    *,
    renew: Callable[[], None] = lambda: None,
) -> int:
    """Copy the sessions whose ids lie between two texts. The longer version of two is kept.

    `renew` is called every few seconds.
    """
    copied, last = 0, first
    next_beat = time.monotonic() + _HEARTBEAT_S
    columns = ", ".join(_SESSION_COLUMNS)
    until = "" if end is None else "AND id < ? "
    query = f"SELECT id, messages FROM assay_session WHERE id > ? {until}ORDER BY id LIMIT ?"
    while True:
        with source.read_transaction() as transaction:
            values = [last, *([] if end is None else [end]), _BATCH]
            listed = transaction.execute(query, *values).all()
        if not listed:
            return copied
        last = listed[-1].id
        marks = ", ".join("?" * len(listed))
        with target.read_transaction() as transaction:
            present = dict(
                transaction.execute(
                    f"SELECT id, messages FROM assay_session WHERE id IN ({marks})",
                    *(row.id for row in listed),
                ).all()
            )
        for row in listed:
            if time.monotonic() >= next_beat:
                renew()
                next_beat = time.monotonic() + _HEARTBEAT_S
            if present.get(row.id, -1) >= row.messages:
                continue
            # Read whole, one at a time: a session may be long.
            with source.read_transaction() as transaction:
                session = transaction.execute(
                    f"SELECT {columns} FROM assay_session WHERE id = ?", row.id
                ).first()
                messages = transaction.execute(
                    "SELECT session_id, position, blob FROM assay_message WHERE session_id = ?",
                    row.id,
                ).all()
            with target.write_transaction() as transaction:
                for table, name in (("message", "session_id"), ("session", "id")):
                    transaction.execute(f"DELETE FROM assay_{table} WHERE {name} = ?", row.id)
                places = ", ".join("?" * len(_SESSION_COLUMNS))
                transaction.execute(
                    f"INSERT INTO assay_session ({columns}) VALUES ({places})", *session
                )
                transaction.execute_many(
                    "INSERT INTO assay_message (session_id, position, blob) VALUES (?, ?, ?)",
                    messages,
                )
            copied += 1
