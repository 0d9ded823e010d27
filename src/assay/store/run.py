"""One run of a store: read its samples and totals, and record more."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.errors import ConfigError

from .database import Database, Transaction
from .insert_rows import NO_POSITION
from .insertion import insert_batch
from .labels import SampleLabel, find_labels, read_sample_labels, write_label
from .lease import Lease, find_live_holders
from .result_reader import RunReader
from .run_rows import (
    RUN_QUERY,
    RunRow,
    RunSpec,
    RunStatus,
    Totals,
    build_deleted_error,
    now,
    parse_run_row,
    parse_run_spec,
)
from .training_steps import StepRow, delete_steps, read_steps, write_step

if TYPE_CHECKING:
    from .result_table import ResultTable
    from .writer import Writer, WriterSettings


# Added to a sample's index when another sample already has that position.
_POSITION_OFFSET = 10**9


class RunCounts(NamedTuple):
    """What all processes of a run have recorded."""

    recorded: int
    attempts: int
    """Failed attempts, retried ones included."""

    cost_usd: float
    """Known cost of the results."""

    total: int | None
    """Rollouts of the whole run, if known."""


class SamplePositions:
    """Positions of the samples that have results or failed attempts in a run.

    Rollouts of one sample are grouped by their position. In a changed dataset the remaining rows
    have other indexes than before, so the recorded positions must be used.
    """

    def __init__(self, database: Database, run_no: int) -> None:
        self._database = database
        self._run_no = run_no

    def of(self, keys: Sequence[str], index: int | None) -> int | None:
        """Return the position of the sample with these keys and the row at `index`.

        The recorded position if there is one, otherwise `index`, or a free position when another
        sample already has that.
        """
        marks = ", ".join("?" * len(keys))
        position = self._find_position(f"key IN ({marks})", *keys)
        if position is not None:
            return None if position == NO_POSITION else position
        while index is not None and self._find_position("position = ?", index) is not None:
            index += _POSITION_OFFSET
        return index

    def _find_position(self, condition: str, *values: object) -> int | None:
        with self._database.read_transaction() as transaction:
            for table in ("result", "attempt"):
                query = f"SELECT position FROM assay_{table} WHERE run_no = ? AND {condition}"
                found = transaction.execute(f"{query} LIMIT 1", self._run_no, *values).scalar()
                if found is not None:
                    return int(found)
        return None


class Run(RunReader):
    """A run opened read-only, or for recording after it was started or resumed."""

    def __init__(
        self,
        database: Database,
        run_no: int,
        spec: RunSpec,
        lease: Lease | None = None,
        *,
        is_new: bool = False,
    ) -> None:
        super().__init__(database, run_no, spec.id)
        self.spec = spec
        self.is_new = is_new
        """Whether the run was started through this object, so that nothing was recorded before."""

        self._lease = lease

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def status(self) -> RunStatus:
        return self.row().status

    @property
    def totals(self) -> Totals:
        """Counts and sums over the results so far. Only the mean of repeats reads the results."""
        return self.row().totals

    def read_counts(self) -> RunCounts:
        """Return the counts of the run so far. Cheap, however many results it has."""
        query = (
            "SELECT t.recorded, t.attempts, t.cost_usd, r.total * r.repeats AS total "
            "FROM assay_run r JOIN assay_tally t ON t.run_no = r.run_no WHERE r.run_no = ?"
        )
        with self._database.read_transaction() as transaction:
            row = transaction.execute(query, self._run_no).first()
        if row is None:
            raise build_deleted_error(self.id, self._database.where)
        return RunCounts(*row)

    def row(self) -> RunRow:
        """Return the current entry of this run in the list of runs."""
        with self._database.read_transaction() as transaction:
            holder = find_live_holders(transaction).get(self._run_no)
            row = transaction.execute(f"{RUN_QUERY} WHERE r.run_no = ?", self._run_no).first()
        if row is None:
            raise build_deleted_error(self.id, self._database.where)
        return parse_run_row(row, holder)

    @property
    def key_fingerprint(self) -> str:
        """The fingerprint in the keys of this run, unaffected by later changes of the scorer."""
        return self.spec.key_fingerprint or self.spec.config_fingerprint

    def places(self) -> SamplePositions | None:
        """Return the positions of recorded samples; None if they equal the indexes of the rows."""
        # Without a fingerprint a change of the dataset cannot be ruled out.
        moved = self.spec.dataset_fingerprint is None or self.row().dataset_changed
        if self.is_new or self.spec.repeats == 1 or not moved:
            return None
        return SamplePositions(self._database, self._run_no)

    def writer(self, settings: "WriterSettings | None" = None) -> "Writer":
        """Start a thread that records samples of this run. Close it before `finish`."""
        lease = self._require_lease("writer()")
        lease.mark_writing(True)
        return self._start_writer(lease.renew, partial(lease.mark_writing, False), settings)

    def open_shared_writer(self) -> "Writer":
        """Start a thread that records samples for the process that holds this run.

        Only that process renews the lease and ends the run.
        """
        return self._start_writer(lambda: None, lambda: None)

    def _start_writer(
        self,
        renew: Callable[[], None],
        closed: Callable[[], None],
        settings: "WriterSettings | None" = None,
    ) -> "Writer":
        # Not above: importing asyncio takes longer than reading a small run.
        from .writer import Writer, WriterSettings

        return Writer(
            partial(insert_batch, self._database, self._run_no),
            renew=renew,
            closed=closed,
            settings=settings or WriterSettings(),
            where=self._database.where,
        )

    def steps(self) -> list[StepRow]:
        """Return the metrics of each training step, in order; empty for other runs."""
        return read_steps(self._database, self._run_no)

    def find_runs(self, *, suffix: str) -> "list[Run]":
        """Return the runs of the same store whose ids end in a text, oldest first, read-only."""
        query = (
            "SELECT * FROM assay_run WHERE length(id) > ? AND substr(id, length(id) - ?) = ? "
            "ORDER BY run_no"
        )
        with self._database.read_transaction() as transaction:
            rows = transaction.execute(query, len(suffix), len(suffix) - 1, suffix).all()
        return [Run(self._database, row.run_no, parse_run_spec(row)) for row in rows]

    def record_step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record the metrics of a training step; overwrite those of an earlier try.

        Returns after the commit. Raises `StoreError` once another process has taken the run over.
        """
        lease = self._require_lease("record_step()")
        write_step(self._database, self._run_no, lease, step=step, metrics=metrics)

    def forget_steps(self, *, after: int) -> None:
        """Delete the steps after this one, which a resumed training repeats."""
        lease = self._require_lease("forget_steps()")
        delete_steps(self._database, self._run_no, lease, after=after)

    def table(self) -> "ResultTable":
        """Return the results as a table: pages in any order, filters and groups."""
        # Not above: an evaluation records its samples without ever reading them as a table.
        from .result_table import ResultTable

        return ResultTable(self._database, self._run_no)

    def write_label(self, label: SampleLabel) -> SampleLabel:
        """Record the label that a person gave to a sample, beside its result.

        Raises `ConfigError` if the run has no sample with that key.
        """
        return write_label(self._database, self._run_no, label)

    def find_labels(self, keys: Iterable[str]) -> dict[str, SampleLabel]:
        """Return the last label of each of these keys."""
        return find_labels(self._database, self._run_no, keys)

    def labels(self, *, history: bool = False) -> Iterator[SampleLabel]:
        """Yield the last label of each sample, oldest first; with `history` all of them."""
        return read_sample_labels(self._database, self._run_no, history=history)

    def keep_summary(self, summary: str, totals: Totals) -> None:
        """Store the statistics of all results as JSON, computed when the run had these totals."""
        with self._database.write_transaction() as transaction:
            transaction.execute(
                # Nothing for a run that was deleted.
                "INSERT INTO assay_summary (run_no, recorded, attempts, summary) "
                "SELECT run_no, ?, ?, ? FROM assay_run WHERE run_no = ? "
                "ON CONFLICT (run_no) DO UPDATE SET recorded = excluded.recorded, "
                "attempts = excluded.attempts, summary = excluded.summary",
                totals.recorded,
                totals.attempts,
                summary,
                self._run_no,
            )

    def find_summary(self) -> str | None:
        """Return the stored statistics; None without any, or if results were added since."""
        query = (
            "SELECT s.summary FROM assay_summary s JOIN assay_tally t ON t.run_no = s.run_no "
            "AND t.recorded = s.recorded AND t.attempts = s.attempts WHERE s.run_no = ?"
        )
        with self._database.read_transaction() as transaction:
            found: str | None = transaction.execute(query, self._run_no).scalar()
        return found

    def read_revision(self) -> str:
        """Return a text that changes whenever something is recorded or the run ends."""
        query = (
            "SELECT t.recorded, t.attempts, r.status FROM assay_run r "
            "JOIN assay_tally t ON t.run_no = r.run_no WHERE r.run_no = ?"
        )
        with self._database.read_transaction() as transaction:
            row = transaction.execute(query, self._run_no).first()
            is_live = self._run_no in find_live_holders(transaction)
        return "deleted" if row is None else ".".join(map(str, (*row, int(is_live))))

    def finish(self, status: RunStatus) -> None:
        """Record the final status and release the run.

        Does nothing if another process has taken the run over. A run that is executed in shards is
        completed once each of its samples is recorded, and keeps running while another shard does.
        """
        lease = self._require_lease("finish()")
        if status not in ("completed", "interrupted", "failed"):
            raise ConfigError(
                f"status must be 'completed', 'interrupted' or 'failed', not {status!r}",
                where="finish()",
            )
        with self._database.write_transaction() as transaction:
            if lease.shard is not None:
                # Locks the run: of two shards that end at once, the second sees the first's end.
                query = f"SELECT run_no FROM assay_run WHERE run_no = ?{transaction.lock_clause}"
                transaction.execute(query, self._run_no)
            if not lease.release(transaction):
                return
            ended = status if lease.shard is None else self._find_ending(transaction, status)
            if ended is not None:
                transaction.execute(
                    "UPDATE assay_run SET status = ?, finished_at = ? WHERE run_no = ?",
                    ended,
                    now(),
                    self._run_no,
                )

    def _find_ending(self, transaction: Transaction, status: RunStatus) -> RunStatus | None:
        """Return the status of a run after one of its shards ended; None while others work."""
        row = transaction.execute(f"{RUN_QUERY} WHERE r.run_no = ?", self._run_no).first()
        if row.total is not None and row.recorded + row.failed >= row.total * row.repeats:
            return "completed"
        if self._run_no in find_live_holders(transaction):
            return None
        # This shard is complete, but others were stopped or are not started yet.
        return "interrupted" if status == "completed" else status

    def mark_failed(self) -> None:
        """Record that an error ended one of several processes, and with it the run."""
        with self._database.write_transaction() as transaction:
            query = "UPDATE assay_run SET status = ? WHERE run_no = ? AND status <> ?"
            transaction.execute(query, "failed", self._run_no, "running")

    def record_total(self, total: int, *, overwrite: bool = False) -> int:
        """Record the number of samples, unless it is known already. Return the recorded number."""
        new = "?" if overwrite else "coalesce(total, ?)"
        query = f"UPDATE assay_run SET total = {new} WHERE run_no = ? RETURNING total"
        with self._database.write_transaction() as transaction:
            recorded = transaction.execute(query, total, self._run_no).scalar()
        if recorded is None:
            raise build_deleted_error(self.id, self._database.where)
        return int(recorded)

    def _require_lease(self, where: str) -> Lease:
        if self._lease is None:
            raise ConfigError(
                f"run {self.id!r} was opened read-only",
                where=where,
                hint="start or resume a run to record into it",
            )
        return self._lease
