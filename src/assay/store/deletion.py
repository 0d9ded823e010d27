"""Deletion of runs from a store."""

from assay.errors import ConfigError

from .database import Transaction
from .lease import find_live_holder

# The tables of a run, except the bodies of its results. Referenced tables come last.
_RUN_TABLES = (
    "assay_result",
    "assay_attempt",
    "assay_step",
    "assay_tally",
    "assay_lease",
    "assay_run",
)


def delete_run_rows(transaction: Transaction, run_no: int, run_id: str, *, where: str) -> int:
    """Delete a run. Return the number of its results.

    Raises `ConfigError` when a live process uses the run: it would write results again.
    """
    holder = find_live_holder(transaction, run_no)
    if holder is not None:
        raise ConfigError(
            f"run {run_id!r} cannot be deleted: it is in use by {holder}",
            where=where,
            hint="stop that process first",
        )
    # Bodies first: only the rows of `assay_result` map them to the run.
    results = "SELECT result_no FROM assay_result WHERE run_no = ?"
    deleted = transaction.execute(f"DELETE FROM assay_body WHERE result_no IN ({results})", run_no)
    for table in _RUN_TABLES:
        transaction.execute(f"DELETE FROM {table} WHERE run_no = ?", run_no)
    return deleted.rowcount
