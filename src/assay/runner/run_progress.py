"""What can be told about a run while it goes on, and how it is asked to stop."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from assay.store import Totals


@dataclass
class Progress:
    """A run so far. Counts what is recorded, not what is in flight."""

    total: int | None = None
    """Rollouts to come to in the end, when that is known."""

    already_done: int = 0
    """Recorded before this run was resumed."""

    done: int = 0
    failed: int = 0
    not_judged: int = 0
    cost_usd: float = 0.0
    cost_unknown: int = 0
    """Samples whose cost is not known, and is not in `cost_usd`."""

    started: float = field(default_factory=time.monotonic)
    _rewards: float = 0.0
    _judged: int = 0

    @property
    def mean(self) -> float | None:
        """Of the judged results so far, each counted for itself.

        The report has the mean of the samples, which averages the repeats of each first.
        """
        return self._rewards / self._judged if self._judged else None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    @property
    def rate(self) -> float | None:
        """Samples a second, of this run."""
        finished = self.done + self.failed
        return finished / self.elapsed_s if finished and self.elapsed_s else None

    @property
    def seconds_left(self) -> float | None:
        if self.total is None or not self.rate:
            return None
        left = self.total - self.already_done - self.done - self.failed
        return max(left, 0) / self.rate

    def resume_from(self, done: int, totals: Totals) -> None:
        """Begin with what the run had when it was resumed."""
        self.already_done = done
        self.not_judged = totals.invalid
        self.cost_usd = totals.cost_usd or 0.0
        self.cost_unknown = totals.recorded - totals.cost_known
        self._rewards, self._judged = totals.score_sum, totals.valid

    def add(self, reward: float | None, cost_usd: float | None) -> None:
        self.done += 1
        if reward is None:
            self.not_judged += 1
        else:
            self._judged += 1
            self._rewards += reward
        if cost_usd is None:
            self.cost_unknown += 1
        else:
            self.cost_usd += cost_usd


ProgressCallback = Callable[[Progress], None]
"""Called after each sample is recorded, from the event loop: it must be quick."""


class Stop:
    """Asks a run to end early. Everything that is recorded stays."""

    def __init__(self, *, grace_s: float = 30.0) -> None:
        self.grace_s = grace_s
        """How long samples in flight may take to end by themselves."""

        self.requested = False
        self.at_once = False
        self._listeners: list[Callable[[], None]] = []

    def request(self) -> None:
        """First: start no more samples. Again: end those in flight now."""
        self.at_once = self.requested
        self.requested = True
        for listener in self._listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)


@dataclass(frozen=True)
class RunControl:
    """How a run is watched and stopped."""

    progress: Progress
    watch: ProgressCallback | None
    stop: Stop
    spent_usd: float = 0.0
    """What the run had cost when it was resumed."""

    stops_early: bool = True
    """Whether a run in which nothing succeeds is stopped."""
