"""Batches that do not depend on timing: a batch begins when every rollout waits for the model.

How a prompt is rounded depends, in the last bits, on what else is in its batch. So a training is
repeatable to the bit only if the same calls always come together.
"""

from assay.providers import EXIT_GROUP, BatchAnswer, BatchEngine, BatchQueue, Job


class Lockstep(BatchQueue):
    """The calls of a known number of rollouts, all in one event loop.

    A rollout whose environment is slow holds the others up.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rollouts = 0
        self._held: list[Job] = []
        self._engine: BatchEngine | None = None
        self._max_batch = 1
        self._released = False

    def expect(self, rollouts: int) -> None:
        """So many rollouts are about to begin. Each says `leave` when it ends, however it does."""
        self._rollouts = rollouts
        self._held = []

    def leave(self) -> None:
        self._rollouts -= 1
        self._begin_if_complete()

    def release(self) -> None:
        """From now on wait for nobody: some of the rollouts may never come."""
        self._released = True
        self._begin_if_complete()

    async def answer(self, job: Job, engine: BatchEngine, *, max_batch: int) -> BatchAnswer:
        """Wait for the completion, in a batch with the calls of all other rollouts."""
        self._engine, self._max_batch = engine, max_batch
        self._held.append(job)
        self._begin_if_complete()
        try:
            return await job.future
        finally:
            job.future.cancel()
            if job in self._held:
                self._held.remove(job)

    def _begin_if_complete(self) -> None:
        waiting = len(self._held) >= self._rollouts or self._released
        if not self._held or not waiting or self._engine is None:
            return
        engine, max_batch = self._engine, self._max_batch
        # In an order of their own: they arrive in that of their environments.
        held = sorted(self._held, key=lambda job: (len(job.prompt), job.prompt, job.seed))
        self._held = []
        with self._lock:
            self._waiting += held
            busy, self._busy = self._busy, True
        if not busy:
            EXIT_GROUP.start(lambda: self._work(engine, max_batch))
