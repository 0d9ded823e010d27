"""`assay eval --workers N`: one run in N processes, with one display, one Ctrl-C and one report."""

import asyncio
import pickle
import signal
import sys
from argparse import Namespace
from contextlib import suppress
from dataclasses import dataclass, replace

from assay.datasets import SkippedRows
from assay.errors import AssayError, ConfigError, StoreError
from assay.runner import EvalConfig, EvalReport, Progress, Stop, build_eval_report
from assay.store import RunRow

from .exit_status import EXIT_USAGE_ERROR, InconclusiveError
from .progress_bar import Display
from .run_tracking import RunTrackingStore

_POLL_S = 0.5
# A worker may be killed for its memory; code that always ends its process must not loop.
_MAX_RESTARTS = 3
# The handler covers the imports: without it an early Ctrl-C prints a traceback for each worker.
_WORKER_CODE = (
    "import os, signal; signal.signal(signal.SIGINT, lambda *_: os._exit(130)); "
    "from assay.cli.eval_worker import main; main()"
)


@dataclass(frozen=True)
class WorkerTask:
    """What a worker process is sent."""

    args: Namespace
    """The options of the command, with the worker's shard and the run."""

    variant: int
    """The place of the evaluation among those of the command."""


@dataclass(frozen=True)
class WorkerOutcome:
    """What a worker process sends back when it ends."""

    problem: str | None = None
    exit_status: int = 0
    skipped: SkippedRows | None = None


def count_workers(config: EvalConfig, args: Namespace) -> int | None:
    """Return the number of worker processes; None to run in this process."""
    wanted: int | None = args.workers
    if wanted is None:
        return None
    # Each worker has at least one sample and one request in flight.
    return min(wanted, config.concurrency, config.client.concurrency or wanted)


def divide_concurrency(config: EvalConfig, number: int, count: int) -> EvalConfig:
    """Return the configuration of one of `count` workers, which keep the limits together."""

    def divide(limit: int) -> int:
        return max(limit // count + (number <= limit % count), 1)

    client, most = config.client, config.client.concurrency
    return replace(
        config,
        concurrency=divide(config.concurrency),
        client=replace(
            client,
            concurrency=None if most is None else divide(most),
            max_concurrency=divide(client.max_concurrency),
        ),
    )


class WorkerPool:
    """The worker processes of one run. Each executes a shard and writes to the store itself."""

    def __init__(
        self,
        task: WorkerTask,
        count: int,
        *,
        store: RunTrackingStore,
        display: Display,
        stop: Stop,
    ) -> None:
        self._task = task
        self._count = count
        self._store = store
        self._display = display
        self._stop = stop
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._is_ending = False

    async def execute(self, run_id: str) -> EvalReport:
        """Run the workers to their end. Raises the first error that one of them reports."""
        self._stop.listen(self._interrupt)
        watcher = asyncio.create_task(self._watch(run_id))
        numbers = range(1, self._count + 1)
        try:
            outcomes = await asyncio.gather(*(self._run_worker(run_id, each) for each in numbers))
        finally:
            for process in self._processes.values():
                with suppress(ProcessLookupError):
                    process.kill()
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        self._find_run(run_id)
        for outcome in sorted(outcomes, key=lambda each: each.exit_status):
            if outcome.problem is not None:
                is_usage_error = outcome.exit_status == EXIT_USAGE_ERROR
                raise (ConfigError if is_usage_error else InconclusiveError)(outcome.problem)
        run, interrupted = self._store.run(run_id), self._stop.requested
        report = build_eval_report(run, self._store, reopen=self._store, interrupted=interrupted)
        return replace(report, skipped=outcomes[0].skipped)

    async def _run_worker(self, run_id: str, number: int) -> WorkerOutcome:
        """Run one worker, again if it is killed, and return its outcome."""
        for restarts_left in reversed(range(_MAX_RESTARTS + 1)):
            outcome, status = await self._start_worker(run_id, number)
            if outcome is None and self._is_ending:
                return WorkerOutcome()  # it ended before it could report, as it was asked to
            if outcome is not None:
                if outcome.problem is not None:
                    self._interrupt()
                return outcome
            cause = f"by signal {-status}" if status < 0 else f"with exit status {status}"
            problem = f"worker {number} of {self._count} was ended {cause}"
            if restarts_left:
                self._display.print_line(f"{problem}; restarting it")
        self._interrupt()
        return WorkerOutcome(f"{problem}, {_MAX_RESTARTS + 1} times", exit_status=3)

    async def _start_worker(self, run_id: str, number: int) -> tuple[WorkerOutcome | None, int]:
        shard = f"{number}/{self._count}"
        args = Namespace(**{**vars(self._task.args), "shard": shard, "run": run_id})
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", _WORKER_CODE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # The terminal sends Ctrl-C to its whole process group; workers get theirs from here.
            start_new_session=True,
        )
        self._processes[number] = process
        assert process.stdin is not None
        assert process.stdout is not None
        # The pipe stays open: its end shows a worker that this process is gone.
        process.stdin.write(pickle.dumps(replace(self._task, args=args)))
        if self._is_ending:
            process.send_signal(signal.SIGINT)
        reported = await process.stdout.read()
        status = await process.wait()
        del self._processes[number]
        outcome: WorkerOutcome | None = pickle.loads(reported) if reported else None
        return outcome, status

    def _interrupt(self) -> None:
        """Ask all workers to stop: once to finish samples in flight, twice to stop now."""
        self._is_ending = True
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)

    async def _watch(self, run_id: str) -> None:
        """Show the progress of all workers, which the store knows."""
        first: RunRow | None = None
        progress = Progress()
        while True:
            with suppress(StoreError):
                # In a thread: a slow database must not delay Ctrl-C.
                row = await asyncio.to_thread(self._find_run, run_id)
                if row is not None:
                    if first is None:
                        first = row
                        progress.resume_from(row.totals.recorded, row.totals)
                    update_progress(progress, first, row)
                    self._display.watch(progress)
            await asyncio.sleep(_POLL_S)

    def _find_run(self, run_id: str) -> RunRow | None:
        """Return the row of the run; None until a worker has created it."""
        if self._store.started is None:
            with suppress(AssayError):
                run = self._store.run(run_id)
                if run.id == run_id:
                    self._store.track(run)
        return None if self._store.started is None else self._store.started.row()


def update_progress(progress: Progress, first: RunRow, row: RunRow) -> None:
    """Set the progress from the rows of a run when it was first seen and now."""
    total = row.spec.total
    progress.resume_from(first.totals.recorded, row.totals)
    progress.total = None if total is None else total * row.spec.repeats
    progress.done = row.totals.recorded - first.totals.recorded
    progress.failed = row.totals.failed
