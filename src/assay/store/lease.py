"""Leases: which process uses a run. Advisory: unique keys prevent duplicate samples."""

import os
import socket
import weakref
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from assay.errors import ConfigError

from .database import Database, Transaction

STALE_AFTER_S = 30.0
"""A holder whose heartbeat is older than this is considered dead."""

# The tokens of this process, and whether each has an open writer. Threads set and pop single
# entries, which is atomic.
_claims: dict[str, bool] = {}


@dataclass(frozen=True)
class Holder:
    """The process that uses a run."""

    pid: int
    host: str
    since: str
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class Lease:
    """The lease of this process on a run."""

    def __init__(self, database: Database, run_no: int, token: str) -> None:
        self._database = database
        self._run_no = run_no
        self.token = token
        self.mark_writing(False)
        # A lease that is garbage-collected without a release must not block this process.
        weakref.finalize(self, _claims.pop, token, None)

    def mark_writing(self, is_open: bool) -> None:
        """Record whether a writer is open under this lease."""
        _claims[self.token] = is_open

    def renew(self) -> None:
        """Renew the heartbeat. Does nothing once another process has taken over."""
        with self._database.write_transaction() as transaction:
            transaction.execute(
                "UPDATE assay_lease SET heartbeat_at = ? WHERE run_no = ? AND token = ?",
                transaction.now(),
                self._run_no,
                self.token,
            )

    def release(self, transaction: Transaction) -> bool:
        """Release the run. Return False if another process has taken it over."""
        deleted = transaction.execute(
            "DELETE FROM assay_lease WHERE run_no = ? AND token = ? RETURNING run_no",
            self._run_no,
            self.token,
        )
        _claims.pop(self.token, None)
        return deleted.first() is not None


def claim_run(
    database: Database,
    transaction: Transaction,
    run_no: int,
    run_id: str,
    *,
    take_over: bool,
    left: int | None = None,
) -> Lease:
    """Claim the lease of a run, or raise `ConfigError` that names the live process that has it.

    `left` is the number of missing results, if it is known.
    """
    holder = find_live_holders(transaction).get(run_no)
    # This process may claim again a run that it no longer writes to, as after an error in a
    # notebook.
    own = holder is not None and _claims.get(holder.token) is False
    if holder is not None and not own and not take_over:
        missing = "samples that are not recorded yet" if left is None else f"up to {left} samples"
        raise ConfigError(
            f"run {run_id!r} is in use by {holder}",
            where=database.where,
            hint="wait for that process or stop it; take_over=True (--take-over) resumes the run "
            "anyway: no result is recorded twice, but the model calls of "
            f"{missing} may be repeated",
        )
    transaction.execute("DELETE FROM assay_lease WHERE run_no = ?", run_no)
    return create_lease(database, transaction, run_no)


def create_lease(database: Database, transaction: Transaction, run_no: int) -> Lease:
    """Create the lease of a run without a holder."""
    token = uuid4().hex
    transaction.execute(
        "INSERT INTO assay_lease (run_no, token, pid, host, since, heartbeat_at) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        run_no,
        token,
        os.getpid(),
        socket.gethostname(),
        datetime.now(UTC).isoformat(timespec="seconds"),
        transaction.now(),
    )
    return Lease(database, run_no, token)


def find_live_holders(transaction: Transaction) -> dict[int, Holder]:
    """Return the live holders of all runs, by the run's number."""
    now = transaction.now()
    rows = transaction.execute("SELECT * FROM assay_lease").all()
    return {
        row.run_no: Holder(pid=row.pid, host=row.host, since=row.since, token=row.token)
        for row in rows
        if _is_alive(row, now)
    }


def _is_alive(row: Any, now: float) -> bool:
    # abs: after the clock was set back, a heartbeat lies in the future and proves nothing.
    if abs(now - row.heartbeat_at) > STALE_AFTER_S:
        return False
    # Process ids are only comparable on the same host; elsewhere the heartbeat decides. So it does
    # on Windows, where os.kill(pid, 0) is not harmless.
    if row.host != socket.gethostname():
        return True
    if row.pid == os.getpid():
        return row.token in _claims
    if os.name == "nt":
        return True
    try:
        os.kill(row.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
