"""Prompts of recorded rollouts, and rollouts that are kept to be rescored."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.types import Boundary, Trajectory

from .database import Database
from .insertion import compute_first_result_no
from .result_reader import parse_body
from .schema import get_tables

if TYPE_CHECKING:
    from sqlalchemy import Table

_PAGE = 10_000


@dataclass(frozen=True)
class KeptRollout:
    """A recorded rollout that can be scored again without model calls."""

    trajectory: Trajectory
    prompt_digest: str | None
    """None in rows of older versions of assay."""

    metadata: dict[str, Any] = field(default_factory=dict)
    """Metadata of the sample, including entries of its scorer before it failed."""


def read_prompts(
    database: Database, run_no: int, *, kept: bool
) -> Iterator[tuple[str, str | None]]:
    """Yield key and prompt digest of each result, or of each attempt whose scorer failed."""
    table = get_tables().attempt if kept else get_tables().result
    number = table.c.attempt_no if kept else table.c.result_no
    chosen = sa.select(number, table.c.key, table.c.prompt_digest).where(table.c.run_no == run_no)
    if kept:
        chosen, last = chosen.where(table.c.boundary == str(Boundary.SCORER)), 0
    else:
        # By the run's range of numbers: the rows are read in the order of the primary key.
        chosen, last = (
            chosen.where(number < compute_first_result_no(run_no + 1)),
            compute_first_result_no(run_no),
        )
    while True:
        query = chosen.where(number > last)
        with database.read_transaction() as connection:
            rows = connection.execute(query.order_by(number).limit(_PAGE)).all()
        for _, key, digest in rows:
            yield key, digest
        if len(rows) < _PAGE:
            return
        last = rows[-1][0]


def read_kept_rollout(database: Database, run_no: int, key: str) -> KeptRollout | None:
    """Return the rollout of a result, or of the last attempt whose scorer failed."""
    t = get_tables()
    result = sa.select(t.body.c.codec, t.body.c.blob, t.result.c.prompt_digest).join_from(
        t.result, t.body, t.result.c.result_no == t.body.c.result_no
    )
    attempt = (
        sa.select(t.attempt.c.codec, t.attempt.c.blob, t.attempt.c.prompt_digest)
        .where(t.attempt.c.boundary == str(Boundary.SCORER))
        .order_by(t.attempt.c.attempt_no.desc())
        .limit(1)
    )
    with database.read_transaction() as connection:
        row: Any = connection.execute(_filter_by_key(result, t.result, run_no, key)).first()
        if row is None:
            row = connection.execute(_filter_by_key(attempt, t.attempt, run_no, key)).first()
    if row is None:
        return None
    sample = parse_body(row.codec, row.blob, where=f"{database.where}, key {key}")
    if sample.trajectory is None:
        return None
    return KeptRollout(sample.trajectory, row.prompt_digest, sample.metadata)


def _filter_by_key(query: Any, table: "Table", run_no: int, key: str) -> Any:
    return query.where(table.c.run_no == run_no, table.c.key == key)
