"""Calls that come together are answered together: one thread, one batch at a time."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

from assay.errors import AssayError

from .attempt_errors import AttemptError, ErrorKind
from .daemon_threads import EXIT_GROUP, deliver
from .in_process_decoder import Generated, Sampling, ShouldStop

# A batch begins when so many turns of the event loop in a row brought no further call.
_QUIET_TURNS = 3


@dataclass(frozen=True)
class BatchAnswer:
    """A completion, and the weights that gave it."""

    generated: Generated
    weight_version: str | None


@dataclass(eq=False)
class Job:
    """One call that waits for its completion. Made inside a running event loop."""

    prompt: Sequence[int]
    sampling: Sampling
    seed: int | None
    hits_stop: Callable[[Sequence[int]], bool] | None = None
    """For stops that are words: whether what was sampled so far ends with one."""

    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    future: asyncio.Future[BatchAnswer] = field(init=False)

    def __post_init__(self) -> None:
        self.future = self.loop.create_future()

    def ends(self, ids: Sequence[int]) -> bool:
        return self.future.cancelled() or (self.hits_stop is not None and self.hits_stop(ids))


class BatchEngine(Protocol):
    """What answers a batch."""

    weight_version: str | None

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sequence[Sampling] | Sampling,
        *,
        seeds: Sequence[int | None],
        should_stop: ShouldStop | None = None,
    ) -> list[Generated]:
        """A completion for each prompt."""


class BatchQueue:
    """The calls that wait for one model."""

    def __init__(self) -> None:
        self._waiting: list[Job] = []
        self._lock = Lock()
        self._busy = False

    async def answer(self, job: Job, engine: BatchEngine, *, max_batch: int) -> BatchAnswer:
        """Wait for the completion, in a batch with whatever else waits."""
        with self._lock:
            self._waiting.append(job)
            first, self._busy = not self._busy, True
        try:
            if first:
                try:
                    await self._gather_calls(max_batch)
                except asyncio.CancelledError:
                    job.future.cancel()  # before the thread looks who still waits
                    raise
                finally:
                    # Even if this caller gives up: others wait behind it by now.
                    EXIT_GROUP.start(lambda: self._work(engine, max_batch))
            return await job.future
        finally:
            job.future.cancel()

    async def _gather_calls(self, max_batch: int) -> None:
        """Let the other tasks that are ready ask too. No time passes, only turns of the loop."""
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
        # Whatever the engine raises, its callers must not wait for ever.
        what = error.message if isinstance(error, AssayError) else _format_engine_error(error)
        problem = f"the model failed: {what}"
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


def _format_engine_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
