"""One run of a store: its samples, what they add up to, and the way to record more."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from assay.errors import ConfigError
from assay.types import Sample, Status

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
from .run_rows import RunRow, RunSpec, RunStatus, Totals, build_run_query, now, parse_run_row
from .sample_keys import DoneKeys, RecordedPrompts
from .schema import get_tables
from .stored_prompts import KeptRollout, read_kept_rollout, read_prompts
from .training_steps import StepRow, delete_steps, read_steps, write_step
from .writer import Writer, WriterSettings

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Run:
    """A run that was found for reading, or claimed for recording by starting or resuming it."""

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
        """Whether it was started through this object: nothing was recorded before."""

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
        """Counts and sums over the results so far; only the mean of repeats takes reading them."""
        return self.row().totals

    def row(self) -> RunRow:
        """What a list of runs shows of this one, as of now."""
        with self._database.read_transaction() as connection:
            query = build_run_query().where(get_tables().run.c.run_no == self._run_no)
            holder = find_live_holder(self._database, connection, self._run_no)
            return parse_run_row(connection.execute(query).one(), holder)

    def done(self) -> DoneKeys:
        """The keys recorded by now. Failed attempts are not done."""
        return DoneKeys(read_keys(self._database, self._run_no))

    @property
    def key_fingerprint(self) -> str:
        """The fingerprint in the keys of this run, whatever scorer it took since."""
        return self.spec.key_fingerprint or self.spec.config_fingerprint

    def prompts(self) -> RecordedPrompts:
        """Which prompts the rollouts had that are done, or were kept when their scorer failed."""
        done = read_prompts(self._database, self._run_no, kept=False)
        kept = read_prompts(self._database, self._run_no, kept=True)
        return RecordedPrompts(chain(done, kept))

    def kept_keys(self) -> DoneKeys:
        """The keys whose scorer failed, done by now or not."""
        kept = read_prompts(self._database, self._run_no, kept=True)
        return DoneKeys(key for key, _ in kept)

    def kept(self, key: str) -> KeptRollout | None:
        """The rollout of a result, or else of the last attempt whose scorer failed."""
        return read_kept_rollout(self._database, self._run_no, key)

    def places(self) -> SamplePositions | None:
        """Where samples stand that have rollouts already; None where their rows say the same."""
        moved = self.spec.dataset_fingerprint is None or self.row().dataset_changed
        if self.is_new or self.spec.repeats == 1 or not moved:
            return None
        return SamplePositions(self._database, self._run_no)

    def results(
        self,
        *,
        status: Status | None = None,
        valid: bool | None = None,
        sample_id: str | None = None,
        failed: bool = True,
    ) -> Iterator[ResultRow]:
        """Narrow rows in dataset order; repeats of a sample are neighbours.

        A sample whose attempts all failed is among them once, with its `boundary`, unless
        `failed` is False.
        """
        chosen = ResultFilter(status=status, valid=valid, sample_id=sample_id, failed=failed)
        return read_results(self._database, self._run_no, chosen)

    def samples(
        self,
        *,
        status: Status | None = None,
        valid: bool | None = None,
        sample_id: str | None = None,
        failed: bool = True,
    ) -> Iterator[Sample]:
        """Whole samples, ordered and chosen as in `results`, a page in memory at a time."""
        chosen = ResultFilter(status=status, valid=valid, sample_id=sample_id, failed=failed)
        return read_samples(self._database, self._run_no, chosen)

    def attempts(self, *, key: str | None = None) -> Iterator[AttemptRow]:
        """Every failed attempt, oldest first, of one key or of all."""
        return read_attempts(self._database, self._run_no, key=key)

    def retried(self) -> RetriedAttempts:
        """How many failed attempts were tried again, and what they cost: `results` has neither."""
        return read_retried_attempts(self._database, self._run_no)

    def failure_groups(self, *, limit: int = 5) -> list[FailureGroup]:
        """The reasons for which samples failed, the most frequent first."""
        return read_failure_groups(self._database, self._run_no, limit)

    def attempts_cost_usd(self) -> float:
        """What all failed attempts cost, as far as it is known."""
        return read_attempts_cost(self._database, self._run_no)

    def writer(self, settings: WriterSettings | None = None) -> Writer:
        """Start a thread that records samples of this run. Close it before `finish`."""
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
        """What each step of a training measured, in order; nothing for any other run."""
        return read_steps(self._database, self._run_no)

    def record_step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record what a step of a training measured, in place of what an earlier try did.

        Returns after the commit. Raises `StoreError` once another process has the run.
        """
        lease = self._require_lease("record_step()")
        write_step(self._database, self._run_no, lease, step=step, metrics=metrics)

    def forget_steps(self, *, after: int) -> None:
        """Forget the steps after this one, which a resumed training does again."""
        lease = self._require_lease("forget_steps()")
        delete_steps(self._database, self._run_no, lease, after=after)

    def finish(self, status: RunStatus) -> None:
        """Say how the run ended and give it up.

        When another process has taken the run over, its end is for that process to say.
        """
        lease = self._require_lease("finish()")
        if status not in ("completed", "interrupted", "failed"):
            raise ConfigError(
                f"status must be 'completed', 'interrupted' or 'failed', not {status!r}",
                where="finish()",
            )
        with self._database.write_transaction() as connection:
            if lease.release(connection):
                self._set_status(connection, status)

    def _set_status(self, connection: "Connection", status: RunStatus) -> None:
        self._database.execute(
            connection,
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
