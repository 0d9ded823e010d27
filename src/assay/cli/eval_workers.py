"""`--workers N`: one run in N processes, with one display, one Ctrl-C and one report."""

import asyncio
import json
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from assay.datasets import SkippedRows
from assay.errors import AssayError, BadRow, ConfigError, StoreError
from assay.runner import (
    BudgetLedger,
    BudgetMessage,
    EvalConfig,
    EvalReport,
    Progress,
    Stop,
    build_eval_report,
)
from assay.store import RunRow

from .exit_status import EXIT_USAGE_ERROR, InconclusiveError
from .output import print_message
from .progress_bar import Display
from .run_tracking import RunTrackingStore
from .signals import exit_interrupted

_POLL_S = 0.5
# The longest message of a worker: an outcome names the first bad rows of the dataset.
_MAX_MESSAGE_BYTES = 2**24
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
    """The options of the command."""

    command: str = "eval"
    """`eval`, `score`, `check` or `judge`."""

    variant: int = 0
    """The place of the evaluation among those of the command."""

    run: str = ""
    shard: str = ""
    """The part of the run that the worker executes."""

    total: int | None = None
    """The number of samples, if the command has checked them all."""

    failed_before: int = 0
    """Failed attempts of the run before the command, which `fail_on_error` leaves out."""

    def encode(self) -> bytes:
        """Return the task as a line of JSON."""
        return encode_message(**{**vars(self), "args": vars(self.args)})

    @classmethod
    def decode(cls, line: bytes) -> "WorkerTask":
        fields = json.loads(line)
        return cls(**{**fields, "args": Namespace(**fields["args"])})


@dataclass(frozen=True)
class WorkerOutcome:
    """What a worker process sends back when it ends."""

    problem: str | None = None
    exit_status: int = 0
    skipped: SkippedRows | None = None
    spending: dict[str, Any] | None = None
    """The calls of a judge and their cost, as the fields of `Spending`."""

    def encode(self) -> bytes:
        """Return the outcome as a line of JSON."""
        skipped = self.skipped
        if skipped is not None:
            problems = [(each.message, each.where, each.hint) for each in skipped.problems]
            return encode_message(
                outcome={**vars(self), "skipped": {**vars(skipped), "problems": problems}}
            )
        return encode_message(outcome=vars(self))

    @classmethod
    def decode(cls, fields: dict[str, Any]) -> "WorkerOutcome":
        if (skipped := fields["skipped"]) is not None:
            problems = [
                BadRow(message, where=where, hint=hint)
                for message, where, hint in skipped["problems"]
            ]
            skipped = SkippedRows(**{**skipped, "problems": problems})
        return cls(**{**fields, "skipped": skipped})


def encode_message(**fields: object) -> bytes:
    """Return a message between the command and a worker: one line of JSON."""
    return json.dumps(fields).encode() + b"\n"


def count_workers(config: EvalConfig, args: Namespace) -> int | None:
    """Return the number of worker processes; None to run in this process."""
    wanted: int | None = args.workers
    if wanted is None or config.engine is not None:
        return None
    # Each worker has at least one sample and one request in flight.
    return min(wanted, config.concurrency, config.client.concurrency or wanted)


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
        max_cost_usd: float | None = None,
    ) -> None:
        self._task = task
        self._count = count
        self._store = store
        self._display = display
        self._stop = stop
        self._max_cost_usd = max_cost_usd
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._stop_level = 0
        self.add_cost: Callable[[Progress], Progress] = lambda progress: progress
        """Replaces the cost of samples that were rolled out and paid for before."""

        self.outcomes: list[WorkerOutcome] = []
        """What the workers reported when they ended, without those that were killed."""

        self._ledger: BudgetLedger | None = None

    async def execute(self, run_id: str) -> EvalReport:
        """Run the workers to their end. Raises the first error that one of them reports."""
        self._stop.listen(lambda: self._stop_workers(2 if self._stop.at_once else 1))
        self._stop_level = int(self._stop.requested)
        spent_usd = 0.0
        if (row := self._find_run(run_id)) is not None:
            self._task = replace(self._task, failed_before=row.totals.attempts)
            spent_usd = (row.totals.cost_usd or 0.0) + self._store.run(run_id).attempts_cost_usd()
        if self._max_cost_usd is not None:
            self._ledger = BudgetLedger(self._max_cost_usd, spent_usd, send=self._send_budget)
        watcher = asyncio.create_task(self._watch(run_id))
        numbers = range(1, self._count + 1)
        try:
            work = (self._run_worker(run_id, each) for each in numbers)
            self.outcomes = outcomes = await asyncio.gather(*work)
        finally:
            for process in self._processes.values():
                with suppress(ProcessLookupError):
                    process.kill()
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        if self._find_run(run_id) is None and self._stop.requested:
            print_message("interrupted before the run was started; nothing was recorded")
            exit_interrupted()
        for outcome in sorted(outcomes, key=lambda each: each.exit_status):
            if outcome.problem is not None:
                if outcome.exit_status == EXIT_USAGE_ERROR:
                    raise ConfigError(outcome.problem)
                if self._store.started is not None:
                    # A store that cannot be written may be the problem.
                    with suppress(StoreError):
                        self._store.started.mark_failed()
                raise InconclusiveError(outcome.problem)
        run, interrupted = self._store.run(run_id), self._stop.requested
        report = build_eval_report(run, self._store, reopen=self._store, interrupted=interrupted)
        return replace(report, skipped=outcomes[0].skipped)

    async def _run_worker(self, run_id: str, number: int) -> WorkerOutcome:
        """Run one worker, again if it is killed, and return its outcome."""
        for restarts_left in reversed(range(_MAX_RESTARTS + 1)):
            outcome, status = await self._start_worker(run_id, number)
            if self._ledger is not None:
                self._ledger.forget(number)
            if outcome is None and self._stop_level:
                return WorkerOutcome()  # it ended before it could report, as it was asked to
            if outcome is not None:
                if outcome.problem is not None:
                    self._stop_workers(1)
                return outcome
            cause = f"by signal {-status}" if status < 0 else f"with exit status {status}"
            problem = f"worker {number} of {self._count} was ended {cause}"
            if restarts_left:
                self._display.print_line(f"{problem}; restarting it")
        self._stop_workers(1)
        return WorkerOutcome(f"{problem}, {_MAX_RESTARTS + 1} times", exit_status=3)

    async def _start_worker(self, run_id: str, number: int) -> tuple[WorkerOutcome | None, int]:
        task = replace(self._task, run=run_id, shard=f"{number}/{self._count}")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", _WORKER_CODE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_MAX_MESSAGE_BYTES,
            # The terminal sends Ctrl-C to its whole process group; workers get theirs from here.
            start_new_session=True,
        )
        self._processes[number] = process
        assert process.stdin is not None
        assert process.stdout is not None
        # The pipe stays open: its end shows a worker that this process is gone.
        process.stdin.write(task.encode())
        if self._stop_level:
            process.stdin.write(encode_message(stop=self._stop_level))
        outcome = None
        async for line in process.stdout:
            if not line.endswith(b"\n"):
                break  # the worker was killed while it wrote
            message = json.loads(line)
            if "outcome" in message:
                outcome = WorkerOutcome.decode(message["outcome"])
            elif "budget" not in message:
                self._send(line, *(each for each in self._processes if each != number))
            elif self._ledger is not None:
                self._ledger.receive(number, message["budget"])
        status = await process.wait()
        del self._processes[number]
        return outcome, status

    def _send(self, line: bytes, *numbers: int) -> None:
        """Send a message to workers, unless they have ended."""
        for number in numbers:
            process = self._processes.get(number)
            if process is not None and process.returncode is None and process.stdin is not None:
                process.stdin.write(line)

    def _send_budget(self, number: int, answer: BudgetMessage) -> None:
        self._send(encode_message(budget=answer), number)

    def _stop_workers(self, level: int) -> None:
        """Ask all workers to stop: 1 after the samples in flight, 2 now."""
        # By a message, not a signal: a signal would end an interpreter that is just starting with
        # a traceback. A second worker that fails must not cut off the samples of the others.
        if level > self._stop_level:
            self._stop_level = level
            self._send(encode_message(stop=level), *self._processes)

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
                    self._display.watch(self.add_cost(progress))
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
