"""One run of a store: read its samples and totals, and record more."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from assay.errors import ConfigError

from .database import Database
from .insertion import insert_batch
from .lease import Lease, find_live_holder
from .positions import SamplePositions
from .result_reader import (
    AttemptRow,
    FailureGroup,
    ResultFilter,
    ResultRow,
    RetriedAttempts,
    read_attempts,
    read_attempts_cost,
    read_failure_groups,
    read_keys,
    read_results,
    read_retried_attempts,
    read_samples,
)
from .run_rows import RUN_QUERY, RunRow, RunSpec, RunStatus, Totals, now, parse_run_row
from .sample_keys import DoneKeys, RecordedPrompts
from .stored_prompts import KeptRollout, read_kept_rollout, read_prompts
from .training_steps import StepRow, delete_steps, read_steps, write_step

if TYPE_CHECKING:
    from assay.types import Sample, Status

    from .writer import Writer, WriterSettings


class Run:
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
        self.spec = spec
        self.is_new = is_new
        """Whether the run was started through this object, so that nothing was recorded before."""

        self._database = database
        self._run_no = run_no
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

    def row(self) -> RunRow:
        """Return the current entry of this run in the list of runs."""
        with self._database.read_transaction() as transaction:
            holder = find_live_holder(transaction, self._run_no)
            row = transaction.execute(f"{RUN_QUERY} WHERE r.run_no = ?", self._run_no).first()
        return parse_run_row(row, holder)

    def read_done_keys(self) -> DoneKeys:
        """Return the keys of all results. Failed attempts are not done."""
        return DoneKeys(read_keys(self._database, self._run_no))

    @property
    def key_fingerprint(self) -> str:
        """The fingerprint in the keys of this run, unaffected by later changes of the scorer."""
        return self.spec.key_fingerprint or self.spec.config_fingerprint

    def prompts(self) -> RecordedPrompts:
        """Return the prompts of rollouts that are done, or were kept when their scorer failed."""
        done = read_prompts(self._database, self._run_no, kept=False)
        kept = read_prompts(self._database, self._run_no, kept=True)
        return RecordedPrompts(chain(done, kept))

    def read_kept_keys(self) -> DoneKeys:
        """Return the keys whose scorer failed at least once, done or not."""
        kept = read_prompts(self._database, self._run_no, kept=True)
        return DoneKeys(key for key, _ in kept)

    def find_kept_rollout(self, key: str) -> KeptRollout | None:
        """Return the rollout of a result, or of the last attempt whose scorer failed."""
        return read_kept_rollout(self._database, self._run_no, key)

    def places(self) -> SamplePositions | None:
        """Return the positions of recorded samples; None if they equal the indexes of the rows."""
        # Without a fingerprint a change of the dataset cannot be ruled out.
        moved = self.spec.dataset_fingerprint is None or self.row().dataset_changed
        if self.is_new or self.spec.repeats == 1 or not moved:
            return None
        return SamplePositions(self._database, self._run_no)

    def results(
        self,
        *,
        status: "Status | None" = None,
        valid: bool | None = None,
        sample_id: str | None = None,
        failed: bool = True,
    ) -> Iterator[ResultRow]:
        """Yield narrow rows in dataset order; repeats of a sample are adjacent.

        A sample whose attempts all failed is included once, with its `boundary`, unless `failed`
        is False.
        """
        chosen = ResultFilter(status=status, valid=valid, sample_id=sample_id, failed=failed)
        return read_results(self._database, self._run_no, chosen)

    def samples(
        self,
        *,
        status: "Status | None" = None,
        valid: bool | None = None,
        sample_id: str | None = None,
        failed: bool = True,
    ) -> "Iterator[Sample]":
        """Yield whole samples, ordered and filtered as in `results`, with one page in memory."""
        chosen = ResultFilter(status=status, valid=valid, sample_id=sample_id, failed=failed)
        return read_samples(self._database, self._run_no, chosen)

    def attempts(self, *, key: str | None = None) -> Iterator[AttemptRow]:
        """Yield failed attempts, oldest first, of one key or of all."""
        return read_attempts(self._database, self._run_no, key=key)

    def read_retries(self) -> RetriedAttempts:
        """Return number and cost of the retried attempts, which `results` does not include."""
        return read_retried_attempts(self._database, self._run_no)

    def failure_groups(self, *, limit: int = 5) -> list[FailureGroup]:
        """Return the reasons of failed samples, the most frequent first."""
        return read_failure_groups(self._database, self._run_no, limit)

    def attempts_cost_usd(self) -> float:
        """Return the known cost of all failed attempts."""
        return read_attempts_cost(self._database, self._run_no)

    def writer(self, settings: "WriterSettings | None" = None) -> "Writer":
        """Start a thread that records samples of this run. Close it before `finish`."""
        # Not above: importing asyncio takes longer than reading a small run.
        from .writer import Writer, WriterSettings

        lease = self._require_lease("writer()")
        lease.mark_writing(True)
        write = partial(insert_batch, self._database, self._run_no)
        return Writer(
            write,
            renew=lease.renew,
            closed=partial(lease.mark_writing, False),
            settings=settings or WriterSettings(),
            where=self._database.where,
        )

    def steps(self) -> list[StepRow]:
        """Return the metrics of each training step, in order; empty for other runs."""
        return read_steps(self._database, self._run_no)

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

    def finish(self, status: RunStatus) -> None:
        """Record the final status and release the run.

        Does nothing if another process has taken the run over.
        """
        lease = self._require_lease("finish()")
        if status not in ("completed", "interrupted", "failed"):
            raise ConfigError(
                f"status must be 'completed', 'interrupted' or 'failed', not {status!r}",
                where="finish()",
            )
        with self._database.write_transaction() as transaction:
            if lease.release(transaction):
                transaction.execute(
                    "UPDATE assay_run SET status = ?, finished_at = ? WHERE run_no = ?",
                    status,
                    now(),
                    self._run_no,
                )

    def _require_lease(self, where: str) -> Lease:
        if self._lease is None:
            raise ConfigError(
                f"run {self.id!r} was opened read-only",
                where=where,
                hint="start or resume a run to record into it",
            )
        return self._lease
