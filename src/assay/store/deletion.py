"""Removing runs from a store, and giving the space back."""

from typing import TYPE_CHECKING

from assay.errors import ConfigError

from .database import Database
from .lease import find_live_holder

if TYPE_CHECKING:
    from sqlalchemy import Connection

_RUN_TABLES = (
    "assay_result",
    "assay_attempt",
    "assay_step",
    "assay_tally",
    "assay_lease",
    "assay_run",
)
"""Everything of a run but the bodies of its results; what others refer to comes last."""


def delete_run_rows(database: Database, connection: "Connection", run_no: int, run_id: str) -> int:
    """Delete a run in the transaction of `connection`. Returns how many results it had.

    Raises `ConfigError` when a live process works on the run: its results would come back.
    """
    holder = find_live_holder(database, connection, run_no)
    if holder is not None:
        raise ConfigError(
            f"run {run_id!r} cannot be deleted: it is in use by {holder}",
            where=database.where,
            hint="stop that process first",
        )
    results = "SELECT result_no FROM assay_result WHERE run_no = ?"
    deleted = database.execute(
        connection, f"DELETE FROM assay_body WHERE result_no IN ({results})", run_no
    )
    count = deleted.rowcount
    for table in _RUN_TABLES:
        database.execute(connection, f"DELETE FROM {table} WHERE run_no = ?", run_no)
    return count
