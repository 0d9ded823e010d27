"""Calling a scorer from the event loop without letting a slow one stall the rollouts."""

import asyncio
import contextvars
import inspect
import time
from collections.abc import Awaitable, Callable

from assay.providers import CallThreads
from assay.types import EvaluateResult, Sample, set_unchecked

from .outcome import read_outcome

ScoreFunction = Callable[[Sample], object | Awaitable[object]]
"""Takes a sample; returns or awaits a result, a number or a bool."""

# Types that are never awaitable. `isawaitable` asks an ABC, which is slow for every sample.
_PLAIN_RESULTS = frozenset({float, int, bool, EvaluateResult})

_TRIALS = 3
# Below this a call costs less than handing it to a thread; above `_SLOW_S` it visibly delays the
# other rollouts. Between the two a scorer keeps the mode that it has.
_FAST_S = 0.001
_SLOW_S = 0.02
# As many as the default executor of asyncio has at most.
_MAX_SCORER_THREADS = 32
# How long calls wait for the verdict of the first three before they take threads of their own.
_TRIAL_WAIT_S = 0.005


class ScoreCaller:
    """Call a scorer from one event loop: await async ones, run slow ones in threads.

    A thread costs more than most scorers do. So the first three calls run in threads and are
    timed, while further calls wait for the result for a few milliseconds. After three fast calls
    the scorer is called directly, until a single call is slow.

    With `always_threaded` it is never called directly. For callers with timeouts: a single slow
    call in the event loop would use up the time of all others.
    """

    def __init__(self, score_fn: ScoreFunction, *, always_threaded: bool = False) -> None:
        self._score_fn = score_fn
        self._always_threaded = always_threaded
        self._tried = 0
        self._verdict = asyncio.Event()
        self._fast_calls = 0
        self._slow = False
        self._threads: CallThreads | None = None

    async def __call__(self, sample: Sample) -> EvaluateResult:
        trajectory = sample.trajectory
        messages = None if trajectory is None else trajectory.messages.copy()
        try:
            return read_outcome(await self._call(sample))
        finally:
            # `sample.messages` is the recorded conversation itself: a scorer that appends a prompt
            # for its judge there must not change what is recorded, or read by the next scorer.
            if trajectory is not None and trajectory.messages != messages:
                set_unchecked(trajectory, {"messages": messages})

    async def _call(self, sample: Sample) -> object:
        if self._is_fast():
            value = self._call_timed(sample)
        elif inspect.iscoroutinefunction(self._score_fn):
            value = self._score_fn(sample)
        else:
            value = await self._call_untrusted(sample)
        if type(value) not in _PLAIN_RESULTS and inspect.isawaitable(value):
            value = await value
        return value

    def _is_fast(self) -> bool:
        return self._fast_calls >= _TRIALS and not self._slow

    def _call_timed(self, sample: Sample) -> object:
        started = time.perf_counter()
        value = self._score_fn(sample)
        seconds = time.perf_counter() - started
        if seconds < _FAST_S and not self._always_threaded:
            self._fast_calls += 1
        elif seconds > _SLOW_S:
            self._slow = True
        return value

    async def _call_untrusted(self, sample: Sample) -> object:
        self._tried += 1
        if self._tried == 1:
            asyncio.get_running_loop().call_later(_TRIAL_WAIT_S, self._verdict.set)
        elif self._tried > _TRIALS and not (self._always_threaded or self._verdict.is_set()):
            await self._verdict.wait()
            if self._is_fast():
                return self._call_timed(sample)
        if self._threads is None:
            self._threads = CallThreads(_MAX_SCORER_THREADS, role="scorer")
        # Threads start with an empty context; scorers may read the variables of their caller.
        context = contextvars.copy_context()
        try:
            return await self._threads.run(lambda: context.run(self._call_timed, sample))
        finally:
            if self._fast_calls >= _TRIALS:
                self._verdict.set()

    def close(self) -> None:
        """Stop the threads after the calls that are queued."""
        if self._threads is not None:
            self._threads.close()
