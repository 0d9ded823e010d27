"""Limits on requests in flight: fixed, or adapted to the server."""

import asyncio
from collections import deque
from collections.abc import Callable

from .active_time import pause_while_queued
from .attempt_errors import AttemptError, ErrorKind
from .clock import REAL_TIME, Timing

INITIAL_LIMIT = 20
_FLOOR = 1.0
# 429s arrive in bursts, of all requests in flight: within this time they count once.
_COOLDOWN_S = 15.0
_LONGEST_COOLDOWN_S = 300.0
# The first climb doubles, so it may overshoot by a factor of two; later steps are small.
_FIRST_CUT = 0.5
_LATER_CUT = 0.8
_GROWTH_STEP = 0.1
_SLOW_FACTOR = 2.0
# The best latency decays slowly, since prompts grow longer during a run.
_DRIFT = 1.02


class LimitShare:
    """The part of every limit that belongs to this process, if several processes make one run."""

    def __init__(self) -> None:
        self._part, self._parts = 0, 1

    def set(self, part: int, parts: int) -> None:
        """Divide the limits of clients that are connected from now on by `parts`."""
        self._part, self._parts = part, parts

    def take(self, limit: int) -> int:
        """Return the share of this process in a limit. It is at least one."""
        return max(1, limit // self._parts + (self._part < limit % self._parts))


LIMIT_SHARE = LimitShare()


class Limiter:
    """A fixed number of slots, granted first come, first served."""

    def __init__(self, limit: int) -> None:
        self._limit = float(limit)
        self._in_flight = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """The current limit."""
        return int(self._limit)

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def try_acquire(self) -> bool:
        """Take a slot if one is free and the queue is empty."""
        if self._waiters or self._in_flight >= int(self._limit):
            return False
        self._in_flight += 1
        return True

    async def acquire(self) -> None:
        """Take a slot, queueing behind earlier callers."""
        if self.try_acquire():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            with pause_while_queued():
                await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release()  # the slot was granted in the same tick
            elif waiter in self._waiters:  # else `_grant_slots` has removed it
                self._waiters.remove(waiter)
            raise

    def release(self) -> None:
        """Return a slot, and grant it to the first in the queue."""
        self._in_flight -= 1
        if self._waiters:
            self._grant_slots()

    def record_success(self, latency_s: float) -> None:
        """Learn from an answer. A fixed limit learns nothing."""

    def record_failure(self, fault: AttemptError) -> None:
        """Learn from a failed attempt. A fixed limit learns nothing."""

    def _grant_slots(self) -> None:
        while self._waiters and self._in_flight < int(self._limit):
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._in_flight += 1
                waiter.set_result(None)


class AdaptiveLimiter(Limiter):
    """Grows while requests are queued and latency is stable; shrinks on 429.

    It starts at 20 and doubles with each round of answers until the first 429, which halves it.
    From then on a round adds a tenth (at least one) and a 429 takes a fifth. All 429s within 15 s
    of a cut, or within the `Retry-After` that came with them, are one episode and cut once.
    Server errors and timeouts stop growth for 15 s. Growth also stops while answers take more
    than twice as long as in the best of times.
    """

    def __init__(
        self, *, ceiling: int, timing: Timing = REAL_TIME, initial: int = INITIAL_LIMIT
    ) -> None:
        super().__init__(min(initial, ceiling))
        self._ceiling = float(ceiling)
        self._clock = timing.clock
        self._first_climb = True
        self._episode_ends = self._growth_resumes = float("-inf")
        self._round_size = self.limit
        self._answers = 0
        self._latencies_s = 0.0
        self._best_s: float | None = None
        self._slow = False
        self.on_cut: Callable[[float], None] | None = None
        """Called after a cut with the seconds that the server asked to wait."""

        self.refusals: deque[float] = deque()
        """The waits of 429s that another process was answered with; any thread may append."""

    def record_success(self, latency_s: float) -> None:
        """Grow by one answer's share of a round, if the limit is saturated."""
        if self.refusals:
            self._apply_refusals()
        self._answers += 1
        self._latencies_s += latency_s
        # Means of whole rounds: single answers vary with the length of their prompts.
        if self._answers >= self._round_size:
            mean = self._latencies_s / self._answers
            best = mean if self._best_s is None else min(self._best_s * _DRIFT, mean)
            self._best_s = best
            self._slow = mean > best * _SLOW_FACTOR
            self._answers, self._latencies_s = 0, 0.0
            self._round_size = max(self.limit, 1)
        # The answered request still occupies its slot.
        saturated = bool(self._waiters) or self._in_flight >= int(self._limit)
        if self._slow or not saturated or self._limit >= self._ceiling:
            return
        if self._clock() < self._growth_resumes:
            return
        share = 1.0 if self._first_climb else max(1.0, self._limit * _GROWTH_STEP) / self._limit
        self._limit = min(self._limit + share, self._ceiling)
        self._grant_slots()

    def record_failure(self, fault: AttemptError) -> None:
        """Cut once per episode of 429s; stop growing for a while after other errors."""
        self._apply_refusals()
        if fault.kind is ErrorKind.THROTTLED:
            if self._cut(fault.retry_after_s or 0.0) and self.on_cut is not None:
                self.on_cut(fault.retry_after_s or 0.0)
        elif not fault.permanent:
            self._growth_resumes = max(self._growth_resumes, self._clock() + _COOLDOWN_S)

    def _apply_refusals(self) -> None:
        while self.refusals:
            self._cut(self.refusals.popleft())

    def _cut(self, pause_s: float) -> bool:
        """Cut, unless in an episode of 429s; prolong the episode. Return whether it is new."""
        now = self._clock()
        is_new = now >= self._episode_ends
        if is_new:
            cut = _FIRST_CUT if self._first_climb else _LATER_CUT
            # Without any request in flight, the limiter would never recover.
            self._limit = max(float(int(self._limit * cut)), _FLOOR)
            self._first_climb = False
            self._episode_ends = now + _COOLDOWN_S
        self._episode_ends = max(self._episode_ends, now + min(pause_s, _LONGEST_COOLDOWN_S))
        self._growth_resumes = max(self._growth_resumes, self._episode_ends)
        return is_new
