"""The engine of a run on Ray: sends jobs to workers, counts results, replaces dead workers."""

import asyncio
import pickle
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Self

from assay.errors import AccessDenied, ConfigError, RunStopped
from assay.providers import ModelClient
from assay.scorers import Judge
from assay.store import Run, Writer
from assay.types import Failure, Usage

from ..eval_config import EvalConfig
from ..rollout_job import RolloutJob
from ..run_progress import Progress, RunControl
from .in_process import EvalEngine
from .ray_cluster import RayCluster, StartedWorker, WorkerDied, call_worker
from .ray_worker import JobReport, SentJob

_MAX_BATCH = 32
# Larger arguments of a call take the way through Ray's object store.
_MAX_BATCH_BYTES = 90_000
# A worker is sent the jobs that it finishes in this time beside those in progress: it must not
# wait for the next ones, and the last jobs of a run should be spread over all workers.
_AHEAD_S = 0.3
_RATE_S = 1.0
# After jobs were cancelled, workers still record what was paid for.
_LAST_RESULTS_S = 10.0
# A sample that was in progress in so many dying workers is probably why they die.
_MAX_LOSSES = 5


class WorkerSlot:
    """One share of the run's concurrency, and the worker that has it."""

    def __init__(self, worker: StartedWorker, part: int, concurrency: int) -> None:
        self.worker: StartedWorker | None = worker
        """None while a dead worker is being replaced."""

        self.part = part
        self.concurrency = concurrency
        self.outstanding: dict[str, RolloutJob] = {}
        self.pending: list[RolloutJob] = []
        self._ended: deque[tuple[float, int]] = deque()

    @property
    def room(self) -> int:
        """How many more jobs the worker may be sent."""
        recent = sum(count for _, count in self._ended)
        ahead = 1 + int(recent / _RATE_S * _AHEAD_S)
        return self.concurrency + ahead - len(self.outstanding)

    def count_ended(self, count: int) -> None:
        now = time.monotonic()
        self._ended.append((now, count))
        while self._ended[0][0] < now - _RATE_S:
            self._ended.popleft()


class RayEngine(EvalEngine):
    """Executes the jobs of a run on the workers of a cluster."""

    def __init__(
        self,
        cluster: RayCluster,
        run: Run,
        config: EvalConfig,
        client: ModelClient | None,
        writer: Writer,
        control: RunControl,
    ) -> None:
        super().__init__(config, client, writer, control)
        self._cluster = cluster
        self._run = run
        total, parts = config.concurrency, len(cluster.workers)
        self._slots = [
            WorkerSlot(worker, part, total // parts + (part < total % parts))
            for part, worker in enumerate(cluster.workers)
        ]
        self._requeued: deque[RolloutJob] = deque()
        self._losses: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._abandoned = False

    async def run(self, todo: Iterator[RolloutJob]) -> None:
        """Execute all jobs, until none is left or the run is stopped. Raises as `EvalEngine`."""
        async with self:
            await self.execute(todo)

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._stop_workers())]
        try:
            await asyncio.gather(*(self._open_run(slot) for slot in self._slots))
        except BaseException:
            await self._end_tasks()
            raise
        self._tasks += [asyncio.create_task(self._collect(slot)) for slot in self._slots]
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._end_tasks()
        if not self._abandoned:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_RESULTS_S):
                    await self._call_workers("close_run")

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._admission.close()
        if self._scorer is not None:
            self._scorer.close()

    async def execute(self, todo: Iterator[RolloutJob], progress: Progress | None = None) -> None:
        """Execute jobs of the open run, such as those of one step of a training, as `run` does."""
        self._progress = progress or self._progress
        await self._feed(self._read_ahead(todo))
        self._check_worker_ends([])
        if self._fatal is not None:
            raise self._fatal

    async def _open_run(self, slot: WorkerSlot) -> None:
        assert slot.worker is not None
        try:
            await call_worker(slot.worker.actor.open_run, self._run.id, slot.concurrency)
        except WorkerDied:
            await self._replace(slot)

    async def _call_workers(self, method: str, *given: object) -> None:
        """Call a method of the open run on every living worker. Dead ones are found elsewhere."""
        actors = [slot.worker.actor for slot in self._slots if slot.worker is not None]
        calls = [call_worker(getattr(each, method), self._run.id, *given) for each in actors]
        await asyncio.gather(*calls, return_exceptions=True)

    async def _feed(self, todo: Iterator[RolloutJob]) -> None:
        """Send jobs until none is left, then wait for those that are on their way."""
        while not self._is_ending():
            reason = None
            if self._probes and not self._early.is_settled:
                reason = await self._admission.enter()
            slot = await self._wait_for_slot()
            if slot is None:
                break
            try:
                job = self._requeued.popleft() if self._requeued else next(todo, None)
            except Exception as error:
                self._fatal = error
                break
            if job is None:
                if not self._has_outstanding():
                    return
                await self._wait_for_change()
                continue
            if reason is not None:
                # Checked after reading a job: a run without further jobs was not cut short.
                self._fatal = reason
                break
            self._send(slot, job)
        await self._tell_workers(at_once=False)
        while self._has_outstanding() and not self._abandoned:
            await self._wait_for_change()

    def _has_outstanding(self) -> bool:
        return any(slot.outstanding for slot in self._slots)

    async def _wait_for_slot(self) -> WorkerSlot | None:
        """Return the worker with most room; None if the run ends first."""
        while not self._is_ending():
            alive = [slot for slot in self._slots if slot.worker is not None]
            slot = max(alive, key=lambda each: each.room, default=None)
            if slot is not None and slot.room > 0:
                return slot
            await self._wait_for_change()
        return None

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _abort(self, error: BaseException) -> None:
        super()._abort(error)
        self._changed.set()

    def _send(self, slot: WorkerSlot, job: RolloutJob) -> None:
        """Send a job together with those that follow in the same turn of the event loop."""
        self._admission.start()
        slot.outstanding[job.key] = job
        slot.pending.append(job)
        if len(slot.pending) >= _MAX_BATCH:
            self._flush(slot)
        elif len(slot.pending) == 1:
            asyncio.get_running_loop().call_soon(self._flush, slot)

    def _flush(self, slot: WorkerSlot) -> None:
        jobs, slot.pending = slot.pending, []
        if not jobs or slot.worker is None:
            return  # sent already, or requeued with the other jobs of a dead worker
        sent = [
            SentJob(
                *(job.sample, job.repeat, job.key, job.sample_id),
                is_kept=job.kept is not None,
                source=job.source,
                group=job.group,
            )
            for job in jobs
        ]
        try:
            for batch in _pickle_batches(sent):
                # Not awaited: the results are, and an error of the worker comes with them.
                slot.worker.actor.execute.remote(self._run.id, batch, self._early.answered)
        except ConfigError as error:
            self._abort(error)

    async def _collect(self, slot: WorkerSlot) -> None:
        """Count the results of a worker for as long as the run lasts."""
        while slot.worker is not None:
            try:
                report = await call_worker(slot.worker.actor.collect, self._run.id)
            except WorkerDied:
                await self._replace(slot)
            except Exception as error:
                self._abort(error)
                return
            else:
                self._count_report(slot, report)
            self._changed.set()

    def _count_report(self, slot: WorkerSlot, report: JobReport) -> None:
        early = self._early
        if report.answers:
            early.answer(Usage(cost_usd=report.spent_usd))
        notes = [(key, (reward, cost), fresh) for key, reward, cost, fresh in report.recorded]
        if notes:
            early.succeeded = True
            slot.count_ended(len(notes))
        for refusal in report.refusals:
            # One limit for all workers: each has a share of it, and lowers it.
            for other in self._slots:
                if other is not slot and other.worker is not None:
                    other.worker.actor.lower_limit.remote(*refusal)
        judge = self._config.score_fn
        if report.judge_spending is not None and isinstance(judge, Judge):
            judge.spending.include(report.judge_spending)
        for error, failure in report.faults:
            self._count_failure(error, failure)
        for key in report.dropped:
            self._settle(slot, key)
        try:
            for key, note, fresh in notes:
                self._settle(slot, key)
                self._count_and_show(note, fresh)
            for key in report.failed:
                self._settle(slot, key)
                self._count_and_show(None, True)
        except Exception as error:
            self._abort(error)
        if report.fatal is not None:
            self._abort(report.fatal)

    def _settle(self, slot: WorkerSlot, key: str) -> None:
        if slot.outstanding.pop(key, None) is not None:
            self._losses.pop(key, None)
            self._admission.end()

    def _count_and_show(self, note: tuple[float | None, float | None] | None, fresh: bool) -> None:
        self._count_result(note, fresh)
        if self._watch is not None:
            self._watch(self._progress)

    def _count_failure(self, error: BaseException, failure: Failure) -> None:
        ending = self._early.fail(error, failure)
        if isinstance(ending, AccessDenied) or (ending and self._early.is_hopeless):
            self._abort(ending)
        elif ending is not None:
            self._fatal = self._fatal or ending

    async def _replace(self, slot: WorkerSlot) -> None:
        """Requeue the jobs of a dead worker and start another, unless the run ends."""
        assert slot.worker is not None
        dead, slot.worker = slot.worker, None
        try:
            await self._requeue_jobs(slot)
            while slot.worker is None and not self._is_ending():
                try:
                    worker = await self._cluster.replace_worker(slot.part, dead)
                    dead = worker
                    await call_worker(worker.actor.open_run, self._run.id, slot.concurrency)
                    slot.worker = worker
                except (WorkerDied, RunStopped):
                    if not any(each.worker for each in self._slots):
                        raise RunStopped(
                            "every worker of the cluster died, and none could be started again",
                            where="Ray",
                            hint="resume the run when the cluster has nodes: results are kept",
                        ) from None
        except Exception as error:
            self._abort(error)

    async def _requeue_jobs(self, slot: WorkerSlot) -> None:
        # The worker may have committed results that it could not report any more.
        recorded = await asyncio.to_thread(self._run.find_rewards, list(slot.outstanding))
        for key, job in list(slot.outstanding.items()):
            self._settle_lost(slot, job)
            if key in recorded:
                self._count_and_show(recorded[key], True)
            else:
                self._requeued.append(job)
        slot.pending.clear()
        self._changed.set()

    def _settle_lost(self, slot: WorkerSlot, job: RolloutJob) -> None:
        losses = self._losses[job.key] + 1
        self._settle(slot, job.key)
        self._losses[job.key] = losses
        if losses >= _MAX_LOSSES:
            raise RunStopped(
                f"{losses} workers died while they executed sample {job.sample_id!r}",
                where="Ray",
                hint="the sample, or one executed beside it, may exhaust the memory of a node",
            )

    async def _stop_workers(self) -> None:
        """Wait for a stop request and its grace time, then cancel the samples in progress."""
        self._stop.listen(self._woken.set)
        while not (self._stop.requested or self._hopeless):
            await self._woken.wait()
        self._woken.clear()
        self._changed.set()
        if not (self._stop.at_once or self._hopeless):
            await self._tell_workers(at_once=False)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), self._stop.grace_s)
        await self._tell_workers(at_once=True)
        await asyncio.sleep(_LAST_RESULTS_S)
        self._abandoned = True
        self._changed.set()

    async def _tell_workers(self, *, at_once: bool) -> None:
        self._requeued.clear()
        for slot in self._slots:
            for job in slot.pending:
                self._settle(slot, job.key)
            slot.pending.clear()
        await self._call_workers("stop", at_once)


def _pickle_batches(jobs: list[SentJob]) -> Iterator[bytes]:
    """Yield the jobs in batches that are small enough to be sent directly, if possible."""
    try:
        batch = pickle.dumps(jobs, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise ConfigError(
            f"a sample cannot be sent to a worker: {type(error).__name__}: {error}",
            where="Ray",
            hint="samples may contain plain values only",
        ) from None
    if len(batch) <= _MAX_BATCH_BYTES or len(jobs) == 1:
        yield batch
        return
    rest = iter(jobs)
    for _ in range(2):
        yield from _pickle_batches(list(islice(rest, (len(jobs) + 1) // 2)))
