"""Batches that do not depend on timing: a batch starts when every rollout waits for the model.

The last bits of a result depend on the other prompts in its batch. So a training is repeatable to
the bit only if the same calls are always batched together.
"""

from assay.providers import EXIT_GROUP, BatchAnswer, BatchEngine, BatchQueue, Job


class Lockstep(BatchQueue):
    """The calls of a known number of rollouts, all in one event loop.

    A rollout with a slow environment delays the others.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rollouts = 0
        self._held: list[Job] = []
        self._engine: BatchEngine | None = None
        self._max_batch = 1
        self._released = False

    def expect(self, rollouts: int) -> None:
        """Expect this many rollouts. Each must call `leave` when it ends, also after an error."""
        self._rollouts = rollouts
        self._held = []

    def leave(self) -> None:
        self._rollouts -= 1
        self._begin_if_complete()

    def release(self) -> None:
        """Stop waiting for other rollouts: after a stop request some may never call the model."""
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
            # A cancelled rollout must neither be computed nor keep the others waiting.
            job.future.cancel()
            if job in self._held:
                self._held.remove(job)

    def _begin_if_complete(self) -> None:
        waiting = len(self._held) >= self._rollouts or self._released
        if not self._held or not waiting or self._engine is None:
            return
        engine, max_batch = self._engine, self._max_batch
        # Sorted: the order of arrival depends on the timing of the environments.
        held = sorted(self._held, key=lambda job: (len(job.prompt), job.prompt, job.seed))
        self._held = []
        with self._lock:
            self._waiting += held
            busy, self._busy = self._busy, True
        if not busy:
            EXIT_GROUP.start(lambda: self._work(engine, max_batch))
