"""Calling a scorer from the event loop without letting a slow one stall the rollouts."""

import asyncio
import contextvars
import inspect
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from assay.models import EvaluateResult, Sample

from .outcome import read_outcome

ScoreFunction = Callable[[Sample], object | Awaitable[object]]
"""Takes a sample; returns or awaits a result, a number or a bool."""

_TRIALS = 3
_FAST_S = 0.001
_SLOW_S = 0.02
_THREADS = 32


class ScoreCaller:
    """Awaits an async scorer; runs a plain one in threads until it has proved to be fast.

    A thread costs more than most scorers do. So the first calls are timed there; after three fast
    ones the scorer is called directly, until a single call is slow.
    """

    def __init__(self, score_fn: ScoreFunction) -> None:
        self._score_fn = score_fn
        self._fast_calls = 0
        self._slow = False
        self._threads: ThreadPoolExecutor | None = None

    async def __call__(self, sample: Sample) -> EvaluateResult:
        if self._fast_calls >= _TRIALS and not self._slow:
            value = self._timed(sample)
        else:
            value = await self._in_thread(sample)
        if inspect.isawaitable(value):
            value = await value
        return read_outcome(value, sample)

    def _timed(self, sample: Sample) -> object:
        started = time.perf_counter()
        value = self._score_fn(sample)
        seconds = time.perf_counter() - started
        if seconds < _FAST_S:
            self._fast_calls += 1
        elif seconds > _SLOW_S:
            self._slow = True
        return value

    async def _in_thread(self, sample: Sample) -> object:
        if inspect.iscoroutinefunction(self._score_fn):
            return self._score_fn(sample)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="assay-scorer")
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, context.run, self._timed, sample
        )

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
