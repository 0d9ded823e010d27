"""Leases: which processes use a run. Advisory: unique keys prevent duplicate samples.

A run has one exclusive lease, or any number of shared ones: the processes of a sharded run.
"""

import os
import socket
import weakref
from dataclasses import dataclass, replace
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
    """The process that uses a run; of several, the one that started first."""

    pid: int
    host: str
    since: str
    token: str
    shard: str | None = None
    """The part of the run that the process executes; None: it holds the whole run."""

    others: int = 0
    """Further processes that execute shards of the run."""

    def __str__(self) -> str:
        more = f" and {self.others} more" if self.others else ""
        return f"process {self.pid} on {self.host}, since {self.since}{more}"


class Lease:
    """The lease of this process on a run."""

    def __init__(
        self, database: Database, run_no: int, token: str, shard: str | None = None
    ) -> None:
        self._database = database
        self._run_no = run_no
        self.token = token
        self.shard = shard
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
    own = holder is not None and not holder.others and _claims.get(holder.token) is False
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


def join_run(
    database: Database, transaction: Transaction, run_no: int, run_id: str, *, shard: str
) -> Lease:
    """Claim a shared lease, or raise `ConfigError` if a live process holds the whole run.

    Two processes may hold the same shard: they repeat model calls, and each result is recorded
    once.
    """
    holder = find_live_holders(transaction).get(run_no)
    if holder is not None and holder.shard is None and _claims.get(holder.token) is not False:
        raise ConfigError(
            f"run {run_id!r} is in use by {holder}, which does not execute a shard",
            where=database.where,
            hint="wait for that process or stop it, then start the shards",
        )
    if holder is None or holder.shard is None:
        # Left behind by processes that are dead, or by an ended evaluation of this one.
        transaction.execute("DELETE FROM assay_lease WHERE run_no = ?", run_no)
    return create_lease(database, transaction, run_no, shard=shard)


def create_lease(
    database: Database, transaction: Transaction, run_no: int, *, shard: str | None = None
) -> Lease:
    """Create a lease of a run that no other process holds, or holds a shard of."""
    values: dict[str, object] = {
        "run_no": run_no,
        "token": uuid4().hex,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "heartbeat_at": transaction.now(),
        **({} if shard is None else {"shard": shard}),
    }
    marks = ", ".join("?" * len(values))
    transaction.execute(
        f"INSERT INTO assay_lease ({', '.join(values)}) VALUES ({marks})", *values.values()
    )
    return Lease(database, run_no, str(values["token"]), shard)


def find_live_holders(transaction: Transaction) -> dict[int, Holder]:
    """Return the live holders of all runs, by the run's number."""
    now = transaction.now()
    holders: dict[int, Holder] = {}
    for row in transaction.execute("SELECT * FROM assay_lease ORDER BY since, token").all():
        if not _is_alive(row, now):
            continue
        if (first := holders.get(row.run_no)) is not None:
            holders[row.run_no] = replace(first, others=first.others + 1)
        else:
            holders[row.run_no] = Holder(
                pid=row.pid, host=row.host, since=row.since, token=row.token, shard=row.shard
            )
    return holders


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
