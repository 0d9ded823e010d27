"""Deletion of runs from a store."""

from typing import TYPE_CHECKING

from assay.errors import ConfigError

from .database import Database
from .lease import find_live_holder

if TYPE_CHECKING:
    from sqlalchemy import Connection

# The tables of a run, except the bodies of its results. Referenced tables come last.
_RUN_TABLES = (
    "assay_result",
    "assay_attempt",
    "assay_step",
    "assay_tally",
    "assay_lease",
    "assay_run",
)


def delete_run_rows(database: Database, connection: "Connection", run_no: int, run_id: str) -> int:
    """Delete a run in the transaction of `connection`. Return the number of its results.

    Raises `ConfigError` when a live process uses the run: it would write results again.
    """
    holder = find_live_holder(database, connection, run_no)
    if holder is not None:
        raise ConfigError(
            f"run {run_id!r} cannot be deleted: it is in use by {holder}",
            where=database.where,
            hint="stop that process first",
        )
    # Bodies first: only the rows of `assay_result` map them to the run.
    results = "SELECT result_no FROM assay_result WHERE run_no = ?"
    deleted = database.execute(
        connection, f"DELETE FROM assay_body WHERE result_no IN ({results})", run_no
    )
    count = deleted.rowcount
    for table in _RUN_TABLES:
        database.execute(connection, f"DELETE FROM {table} WHERE run_no = ?", run_no)
    return count
