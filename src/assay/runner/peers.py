"""The other processes of a sharded run, as the store shows them."""

import asyncio

from assay.store import Run

from .shared_budget import BUDGET, SharedBudget


class Peers:
    """Successes, failures and costs that other processes recorded since this one joined the run."""

    def __init__(self, run: Run, *, count: int, failed_before: int | None = None) -> None:
        self.count = count
        """Processes of the run, this one included, if each executes one shard."""

        self.budget: SharedBudget | None = BUDGET if BUDGET.is_open else None
        """The budget that one command grants all its workers. None for shards on their own, which
        read in the store what the others have spent."""

        self.own_usd = 0.0
        """Cost of the samples that this process recorded."""

        self.own_failed = 0
        """Failed samples that this process recorded."""

        self.failed = 0
        """Failed samples that the others recorded, as of the last `refresh`."""

        self._run = run
        first = run.read_counts()
        self.total = first.total
        """Rollouts of the whole run, if known."""

        self._recorded = first.recorded
        self._failed_before = first.attempts if failed_before is None else failed_before
        self._before_usd = self._recorded_usd = self._read_cost(first.cost_usd)
        self._count_failed(first.attempts)

    @property
    def spent_usd(self) -> float:
        """Cost of the samples that the others recorded, as of the last `refresh`."""
        return max(self._recorded_usd - self._before_usd - self.own_usd, 0.0)

    def has_success(self) -> bool:
        """Whether another process succeeded. Ask only while this process has no success."""
        return self._run.read_counts().recorded > self._recorded

    async def poll(self) -> None:
        """Refresh without stopping the rollouts while a slow database answers."""
        await asyncio.to_thread(self.refresh)

    def refresh(self) -> None:
        """Read what all processes recorded."""
        now = self._run.read_counts()
        self.total = now.total
        self._recorded_usd = self._read_cost(now.cost_usd)
        self._count_failed(now.attempts)

    def _count_failed(self, attempts: int) -> None:
        # Own failures may wait to be written: the others then seem to have fewer for a moment.
        others = attempts - self._failed_before - self.own_failed
        self.failed = max(others, self.failed)

    def _read_cost(self, results_usd: float) -> float:
        return results_usd + self._run.attempts_cost_usd()
