"""Insertion of one batch of rows in one transaction, which also updates the run's tally.

The statements are text, built once for each number of rows: composing them for every batch
would add half of the time it takes to run them.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, compress, count, islice, repeat
from operator import mul
from typing import Any

from assay.errors import StoreError

from .database import Database, Transaction
from .excerpts import Excerpt
from .insert_rows import ATTEMPT_COLUMNS, RESULT_COLUMNS, InsertRow, encode_body

_BODY_COLUMNS = ("result_no", "codec", "blob")
_EXCERPT_COLUMNS = ("result_no", *Excerpt._fields)
# Batch sizes of one statement. Few, so that the driver's cache of prepared statements fits all.
_ROWS_PER_STATEMENT = (128, 32, 8, 1)

# Indexes into `InsertRow.values`, which lacks the run's number.
_INPUT, _OUTPUT, _COST, _SCORE, _VALID = (
    RESULT_COLUMNS.index(name) - 1
    for name in ("input_tokens", "output_tokens", "cost_usd", "score", "valid")
)


def compute_first_result_no(run_no: int) -> int:
    """Return the start of the range of result numbers that belongs to a run."""
    # 2**40 results per run and 2**23 runs fit into a signed 64-bit key.
    return run_no << 40


def insert_batch(database: Database, run_no: int, batch: Sequence[InsertRow]) -> list[bool]:
    """Write and commit. Return for each entry whether it was inserted; False if its key existed."""
    results = [entry for entry in batch if not entry.failed]
    attempts = [entry for entry in batch if entry.failed] if len(results) < len(batch) else []
    # The first of two equal keys wins. In the order of the key index, so that its pages are written
    # sequentially.
    by_key = {entry.key: entry for entry in reversed(results)}
    ordered = [by_key[key] for key in sorted(by_key)]
    # Compressed before the transaction, in which others that write to the run wait.
    bodies = [encode_body(entry.body) for entry in ordered]
    with database.write_transaction() as transaction:
        # Locks the run's tally, so that processes that write to one run queue up and never
        # deadlock.
        last = transaction.execute(
            "UPDATE assay_tally SET last_result_no = last_result_no + ? "
            "WHERE run_no = ? RETURNING last_result_no",
            len(ordered),
            run_no,
        ).scalar()
        if last is None:
            # Possible once the lease has expired, as in a process that was suspended.
            raise StoreError(
                "the run was deleted by another process while it was recorded",
                where=database.where,
                hint="start a new run",
            )
        inserted = _insert_results(transaction, run_no, ordered, bodies, last=last)
        _insert_attempts(transaction, run_no, attempts)
        _update_tally(transaction, run_no, inserted, len(attempts))
    if len(inserted) == len(batch):
        return [True] * len(batch)
    fresh = {id(entry) for entry in inserted}
    return [entry.failed or id(entry) in fresh for entry in batch]


def _insert_results(
    transaction: Transaction,
    run_no: int,
    ordered: list[InsertRow],
    bodies: list[tuple[str, bytes]],
    *,
    last: int,
) -> list[InsertRow]:
    """Insert the entries with new keys, up to the number `last`, and return them."""
    if not ordered:
        return []
    first = last - len(ordered) + 1
    plain = not transaction.is_postgresql
    columns = _collect_known_columns(ordered, plain=plain)
    rows = zip(count(first), repeat(run_no), *columns.values(), strict=False)
    _insert_rows(transaction, "result", ("result_no", "run_no", *columns), rows, len(ordered))
    # One count, because RETURNING for every row costs a tenth more CPU. Not `rowcount`: drivers
    # disagree about it after ON CONFLICT.
    between = "FROM assay_result WHERE result_no BETWEEN ? AND ?"
    numbered = list(zip(count(first), ordered, bodies, strict=False))
    if transaction.execute(f"SELECT count(*) {between}", first, last).scalar() < len(ordered):
        # The keys of the others already existed.
        found = set(transaction.execute(f"SELECT result_no {between}", first, last).scalars())
        numbered = [each for each in numbered if each[0] in found]
    blobs = (
        (number, codec, bytearray(blob) if plain else blob) for number, _, (codec, blob) in numbered
    )
    _insert_rows(transaction, "body", _BODY_COLUMNS, blobs, len(numbered))
    # Empty texts, which the reader takes for unknown, instead of None: see `plain` above.
    excerpts = ((number, *entry.excerpt) for number, entry, _ in numbered)
    _insert_rows(transaction, "excerpt", _EXCERPT_COLUMNS, excerpts, len(numbered))
    return [entry for _, entry, _ in numbered]


def _collect_known_columns(entries: list[InsertRow], *, plain: bool) -> dict[str, Iterable[Any]]:
    """Return the values of the entries by column, without columns that are all None.

    `plain` converts to numbers and text: SQLite's driver raises and catches an exception for
    every None, bool and bytes, which costs more than the rest of its work on them.
    """
    columns = zip(*[entry.values for entry in entries], strict=True)
    known: dict[str, Iterable[Any]] = {
        name: column
        for name, column in zip(RESULT_COLUMNS[1:], columns, strict=True)
        if column.count(None) < len(column)
    }
    for name in ("valid", "cached") if plain else ():
        known[name] = map(int, known[name])
    digests = [entry.prompt_digest for entry in entries]
    if digests.count(None) < len(digests):
        known["prompt_digest"] = digests
    return known


def _insert_attempts(transaction: Transaction, run_no: int, entries: list[InsertRow]) -> None:
    if not entries:
        return
    # The reason of a failure has columns of its own.
    columns = [*ATTEMPT_COLUMNS, "label", "answer", "expected", "fields"]
    rows = [
        (run_no, *entry.values, *encode_body(entry.body), *entry.excerpt[:3], entry.excerpt.fields)
        for entry in entries
    ]
    digests = [entry.prompt_digest for entry in entries]
    if digests.count(None) < len(digests):
        columns.append("prompt_digest")
        rows = [(*row, digest) for row, digest in zip(rows, digests, strict=True)]
    marks = ", ".join("?" * len(columns))
    transaction.execute_many(
        f"INSERT INTO assay_attempt ({', '.join(columns)}) VALUES ({marks})", rows
    )


def _update_tally(
    transaction: Transaction, run_no: int, entries: list[InsertRow], attempts: int
) -> None:
    if not entries and not attempts:
        return
    # Column by column: zip, compress and sum run in C, in a fraction of the time.
    columns = list(zip(*[entry.values for entry in entries], strict=True))
    scores: list[float] = []
    costs: list[float] = []
    tokens: list[tuple[int, int]] = []
    if columns:
        scores = list(compress(columns[_SCORE], columns[_VALID]))
        costs = [cost for cost in columns[_COST] if cost is not None]
        tokens = [
            (read, written)
            for read, written in zip(columns[_INPUT], columns[_OUTPUT], strict=True)
            if read is not None and written is not None
        ]
    added = {
        "recorded": len(entries),
        "valid": len(scores),
        "score_sum": float(sum(scores)),
        "score_square_sum": float(sum(map(mul, scores, scores))),
        "cost_usd": float(sum(costs)),
        "cost_known": len(costs),
        "input_tokens": sum([read for read, _ in tokens]),
        "output_tokens": sum([written for _, written in tokens]),
        "tokens_known": len(tokens),
        "attempts": attempts,
    }
    changes = ", ".join(f"{name} = {name} + ?" for name in added)
    transaction.execute(
        f"UPDATE assay_tally SET {changes} WHERE run_no = ?", *added.values(), run_no
    )


def _insert_rows(
    transaction: Transaction,
    table: str,
    columns: tuple[str, ...],
    rows: Iterator[tuple[Any, ...]],
    left: int,
) -> None:
    if transaction.is_postgresql and table != "result":
        # A fifth less time than INSERT, which alone can skip the keys that exist.
        transaction.copy(f"assay_{table} ({', '.join(columns)})", rows)
        return
    for size in _ROWS_PER_STATEMENT:
        statement = _build_insert_sql(table, columns, size)
        for _ in range(left // size):
            transaction.execute(statement, *chain.from_iterable(islice(rows, size)))
        left %= size


@lru_cache(maxsize=256)
def _build_insert_sql(table: str, columns: tuple[str, ...], rows: int) -> str:
    one = f"({', '.join('?' * len(columns))})"
    inserted = f"INSERT INTO assay_{table} ({', '.join(columns)}) VALUES {', '.join([one] * rows)}"
    if table == "result":
        return f"{inserted} ON CONFLICT (run_no, key) DO NOTHING"
    return inserted
