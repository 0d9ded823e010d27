"""Batch concurrent calls of one model: one thread, one batch at a time."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

from assay.errors import AssayError

from .attempt_errors import AttemptError, ErrorKind
from .daemon_threads import EXIT_GROUP, deliver
from .in_process_decoder import Generated, Sampling, ShouldStop

# A batch starts after this many iterations of the event loop without a new call.
_QUIET_TURNS = 3


@dataclass(frozen=True)
class BatchAnswer:
    """A completion and the version of the weights that produced it."""

    generated: Generated
    weight_version: str | None


@dataclass(eq=False)
class Job:
    """One queued call. Created inside a running event loop."""

    prompt: Sequence[int]
    sampling: Sampling
    seed: int | None
    hits_stop: Callable[[Sequence[int]], bool] | None = None
    """For stop texts: whether the sampled ids contain one."""

    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    future: asyncio.Future[BatchAnswer] = field(init=False)

    def __post_init__(self) -> None:
        self.future = self.loop.create_future()

    def ends(self, ids: Sequence[int]) -> bool:
        return self.future.cancelled() or (self.hits_stop is not None and self.hits_stop(ids))


class BatchEngine(Protocol):
    """Generates completions for a batch."""

    weight_version: str | None

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sequence[Sampling] | Sampling,
        *,
        seeds: Sequence[int | None],
        should_stop: ShouldStop | None = None,
    ) -> list[Generated]:
        """Return a completion for each prompt."""


class BatchQueue:
    """The queued calls of one model."""

    def __init__(self) -> None:
        self._waiting: list[Job] = []
        self._lock = Lock()
        self._busy = False

    async def answer(self, job: Job, engine: BatchEngine, *, max_batch: int) -> BatchAnswer:
        """Queue a job and wait for its completion."""
        with self._lock:
            self._waiting.append(job)
            first, self._busy = not self._busy, True
        try:
            if first:
                try:
                    await self._gather_calls(max_batch)
                except asyncio.CancelledError:
                    job.future.cancel()  # before the thread collects the jobs that are still wanted
                    raise
                finally:
                    # Even if this caller is cancelled: others are queued behind it by now.
                    EXIT_GROUP.start(lambda: self._work(engine, max_batch))
            return await job.future
        finally:
            job.future.cancel()

    async def _gather_calls(self, max_batch: int) -> None:
        # Lets other ready tasks enqueue their calls. It does not sleep: only the loop iterates.
        quiet, seen = 0, 0
        while quiet < _QUIET_TURNS and len(self._waiting) < max_batch:
            quiet = quiet + 1 if len(self._waiting) == seen else 0
            seen = len(self._waiting)
            await asyncio.sleep(0)

    def _work(self, engine: BatchEngine, max_batch: int) -> None:
        while not EXIT_GROUP.is_shutting_down:
            with self._lock:
                jobs = [job for job in self._waiting if not job.future.cancelled()]
                self._waiting = jobs[max_batch:]
                self._busy = bool(jobs)
            if not jobs:
                return
            _run_batch(engine, jobs[:max_batch])


def _run_batch(engine: BatchEngine, jobs: list[Job]) -> None:
    def ends(row: int, ids: Sequence[int]) -> bool:
        return EXIT_GROUP.is_shutting_down or jobs[row].ends(ids)

    version = engine.weight_version
    try:
        made = engine.generate(
            [job.prompt for job in jobs],
            [job.sampling for job in jobs],
            seeds=[job.seed for job in jobs],
            should_stop=ends,
        )
    except Exception as error:
        # Any exception of the engine must reach its callers, which would otherwise wait forever.
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, AssayError):
            reason = error.message
        problem = f"the model failed: {reason}"
        answers: list[Any] = [AttemptError(ErrorKind.REFUSED, problem) for _ in jobs]
    else:
        answers = [BatchAnswer(each, version) for each in made]
    for loop in {job.loop for job in jobs}:
        ends_here = [
            (job.future, answer)
            for job, answer in zip(jobs, answers, strict=True)
            if job.loop is loop
        ]
        deliver(loop, ends_here)
