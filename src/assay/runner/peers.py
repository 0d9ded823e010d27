"""The other processes of a sharded run, as the store shows them."""

import asyncio

from assay.store import Run


class Peers:
    """Successes and costs that other processes recorded since this one joined the run."""

    def __init__(self, run: Run, *, count: int) -> None:
        self.count = count
        """Processes of the run, this one included, if each executes one shard."""

        self.own_usd = 0.0
        """Cost of the samples that this process recorded."""

        self._run = run
        self._recorded = run.totals.recorded
        self._before_usd = self._read_cost()
        self._recorded_usd = 0.0

    @property
    def spent_usd(self) -> float:
        """Cost of the samples that the others recorded, as of the last `refresh`."""
        return max(self._recorded_usd - self.own_usd, 0.0)

    def has_success(self) -> bool:
        """Whether another process succeeded. Ask only while this process has no success."""
        return self._run.totals.recorded > self._recorded

    async def refresh(self) -> None:
        """Read the costs that all processes recorded."""
        # In a thread: a slow database must not stop the rollouts.
        self._recorded_usd = await asyncio.to_thread(self._read_cost) - self._before_usd

    def _read_cost(self) -> float:
        return (self._run.totals.cost_usd or 0.0) + self._run.attempts_cost_usd()
