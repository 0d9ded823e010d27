"""Metrics of the steps of a training that is recorded as a run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.errors import ConfigError, StoreError

from .database import Database, Transaction
from .lease import Lease

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
    try:
        text = json.dumps(dict(metrics), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the metrics are not plain JSON: {error}",
            where=_RECORD_STEP,
            hint="write None for a number that is unknown or not finite",
        ) from None
    with database.write_transaction() as transaction:
        _check_lease(transaction, run_no, lease, where=database.where)
        transaction.execute(
            "INSERT INTO assay_step (run_no, step, metrics, recorded_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (run_no, step) DO UPDATE "
            "SET metrics = excluded.metrics, recorded_at = excluded.recorded_at",
            run_no,
            step,
            text,
            transaction.now(),
        )


def delete_steps(database: Database, run_no: int, lease: Lease, *, after: int) -> None:
    """Delete the steps after this one."""
    with database.write_transaction() as transaction:
        _check_lease(transaction, run_no, lease, where=database.where)
        transaction.execute("DELETE FROM assay_step WHERE run_no = ? AND step > ?", run_no, after)


def read_steps(database: Database, run_no: int) -> list[StepRow]:
    """Return all steps in order."""
    query = "SELECT * FROM assay_step WHERE run_no = ? ORDER BY step"
    with database.read_transaction() as transaction:
        rows = transaction.execute(query, run_no).all()
    steps = []
    for row in rows:
        try:
            metrics = json.loads(row.metrics)
        except ValueError:
            metrics = None
        if not isinstance(metrics, dict):
            raise StoreError(
                f"the stored metrics of step {row.step} are not a JSON object",
                where=database.where,
            )
        steps.append(StepRow(row.step, metrics, row.recorded_at))
    return steps


def _check_lease(transaction: Transaction, run_no: int, lease: Lease, *, where: str) -> None:
    # Two processes may record samples of one run, because of their unique keys. Steps have no such
    # keys: one training would overwrite the metrics of the other. FOR UPDATE keeps the lease until
    # the transaction ends.
    held = "SELECT token FROM assay_lease WHERE run_no = ?" + transaction.lock_clause
    if transaction.execute(held, run_no).scalar() != lease.token:
        raise StoreError(
            "the run was finished, or another process has taken it over",
            where=where,
            hint="resume the run to record more steps",
        )
