"""Progress of a run, and the request to stop it."""

import time
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.store import Totals

from .peers import Peers
from .run_limits import RunSpending

if TYPE_CHECKING:
    from assay.gateway import Replay


@dataclass
class Progress:
    """Counts of a running evaluation. Samples in flight are not counted."""

    total: int | None = None
    """Rollouts of the whole run, if known."""

    already_done: int = 0
    """Rollouts recorded before the run was resumed."""

    done: int = 0
    failed: int = 0
    not_judged: int = 0
    cost_usd: float = 0.0
    cost_unknown: int = 0
    """Samples of unknown cost, which `cost_usd` omits."""

    started: float = field(default_factory=time.monotonic)
    _rewards: float = 0.0
    _judged: int = 0

    @property
    def mean(self) -> float | None:
        """The mean of the scored results so far."""
        # Every repeat counts for itself. The report averages the repeats of a sample first, which
        # is not possible while some of them are missing.
        return self._rewards / self._judged if self._judged else None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    @property
    def rate(self) -> float | None:
        """Samples per second since the run was started or resumed."""
        finished = self.done + self.failed
        return finished / self.elapsed_s if finished and self.elapsed_s else None

    @property
    def seconds_left(self) -> float | None:
        if self.total is None or not self.rate:
            return None
        left = self.total - self.already_done - self.done - self.failed
        return max(left, 0) / self.rate

    def resume_from(self, done: int, totals: Totals) -> None:
        """Start from the counts of a resumed run."""
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
    """A request to end a run early. Recorded samples are kept."""

    def __init__(self, *, grace_s: float = 30.0) -> None:
        self.grace_s = grace_s
        """Seconds that samples in flight get to finish."""

        self.requested = False
        self.at_once = False
        self._listeners: list[tuple[AbstractEventLoop, Callable[[], object]]] = []

    def request(self) -> None:
        """Start no more samples. A second request cancels the samples in flight.

        May be called from any thread, and from a signal handler.
        """
        self.at_once = self.requested
        self.requested = True
        for loop, listener in tuple(self._listeners):
            # A closed loop has nothing left to stop.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(listener)

    def listen(self, listener: Callable[[], object]) -> None:
        """Call `listener` in the running event loop at each later request."""
        self._listeners.append((get_running_loop(), listener))


@dataclass(frozen=True)
class RunControl:
    """Progress, callback and stop request of a run."""

    progress: Progress
    watch: ProgressCallback | None
    stop: Stop
    spent_usd: float = 0.0
    """Cost of the run before it was resumed."""

    stops_early: bool = True
    """Whether to stop a run in which nothing succeeds."""

    replay: "Replay | None" = None
    """The recording that answers instead of the model."""

    is_resumed: bool = False
    """Whether a shard joined a run with results: its remaining samples may have failed before."""

    peers: Peers | None = None
    """The other processes of a sharded run."""

    spending: RunSpending | None = None
    """What the run has spent of its `run_limits`. None: it has no such limits."""
