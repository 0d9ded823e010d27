"""Metrics of the steps of a training that is recorded as a run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.errors import ConfigError, StoreError

from .database import Database
from .lease import Lease
from .schema import get_tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

_RECORD_STEP = "record_step()"


@dataclass(frozen=True)
class StepRow:
    """One step of a training."""

    step: int
    """From 1."""

    metrics: dict[str, Any]
    """Plain JSON values by metric name; None if unknown."""

    recorded_at: float
    """Seconds since 1970."""


def write_step(
    database: Database, run_no: int, lease: Lease, *, step: int, metrics: Mapping[str, Any]
) -> None:
    """Write and commit the metrics of a step; overwrite earlier ones."""
    if step < 1:
        raise ConfigError(f"step must be at least 1, not {step!r}", where=_RECORD_STEP)
    text = _encode_step_metrics(metrics)
    with database.write_transaction() as connection:
        _check_lease(database, connection, run_no, lease)
        values = {"metrics": text, "recorded_at": database.now(connection)}
        connection.execute(
            database.insert(get_tables().step)
            .values(run_no=run_no, step=step, **values)
            .on_conflict_do_update(index_elements=["run_no", "step"], set_=values)
        )


def delete_steps(database: Database, run_no: int, lease: Lease, *, after: int) -> None:
    """Delete the steps after this one."""
    table = get_tables().step
    with database.write_transaction() as connection:
        _check_lease(database, connection, run_no, lease)
        connection.execute(table.delete().where(table.c.run_no == run_no, table.c.step > after))


def read_steps(database: Database, run_no: int) -> list[StepRow]:
    """Return all steps in order."""
    table = get_tables().step
    query = table.select().where(table.c.run_no == run_no).order_by(table.c.step)
    with database.read_transaction() as connection:
        rows = connection.execute(query).all()
    return [
        StepRow(row.step, _parse_step_metrics(row, database.where), row.recorded_at) for row in rows
    ]


def _check_lease(database: Database, connection: "Connection", run_no: int, lease: Lease) -> None:
    # Two processes may record samples of one run, because of their unique keys. Steps have no such
    # keys: one training would overwrite the metrics of the other. FOR UPDATE keeps the lease until
    # the transaction ends.
    table = get_tables().lease
    held = sa.select(table.c.token).where(table.c.run_no == run_no).with_for_update()
    if connection.execute(held).scalar() != lease.token:
        raise StoreError(
            "the run was finished, or another process has taken it over",
            where=database.where,
            hint="resume the run to record more steps",
        )


def _encode_step_metrics(metrics: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(metrics), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the metrics are not plain JSON: {error}",
            where=_RECORD_STEP,
            hint="write None for a number that is unknown or not finite",
        ) from None


def _parse_step_metrics(row: Any, where: str) -> dict[str, Any]:
    try:
        found = json.loads(row.metrics)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StoreError(
            f"the stored metrics of step {row.step} are not a JSON object", where=where
        )
    return found
