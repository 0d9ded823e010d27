"""Values that were computed from whole runs, kept while the runs do not change.

A value of large runs takes seconds. It is computed in a thread of its own, so that a page can be
answered before it is ready, and several requests for it wait for the same computation.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from assay.store import RunRow, Store

_Value = TypeVar("_Value")
# Fewer are read at once on any machine that is not overloaded.
_QUICK_RESULTS = 20_000
_DEADLINE: ContextVar[float | None] = ContextVar("deadline", default=None)


class StillComputing(Exception):
    """A value is not ready within the time that a page waits. It is ready sooner or later."""

    def __init__(self, results: int) -> None:
        super().__init__(f"a value of {results} results is still being computed")
        self.results = results


@contextmanager
def limit_wait(seconds: float) -> Iterator[None]:
    """Raise `StillComputing` where the values of large runs are not ready within this time."""
    before = _DEADLINE.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _DEADLINE.reset(before)


class ValueCache:
    """The values used last, up to a number of results that they were computed from."""

    def __init__(self, max_results: int) -> None:
        self._max_results = max_results
        self._kept: OrderedDict[tuple[Any, ...], tuple[int, Future[Any]]] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[Any, ...], build: Callable[[], _Value], *, results: int) -> _Value:
        """Return the kept value of this key, or build it. Raises what `build` raises."""
        with self._lock:
            kept = self._kept.get(key)
            future: Future[_Value] = Future() if kept is None else kept[1]
            if kept is None:
                self._kept[key] = (results, future)
                self._total += results
                while self._total > self._max_results and len(self._kept) > 1:
                    self._total -= self._kept.popitem(last=False)[1][0]
            self._kept.move_to_end(key)
        if kept is None:
            # A daemon: a viewer that is stopped does not wait for it.
            threading.Thread(
                target=self._build, args=(key, future, build), name="assay-compute", daemon=True
            ).start()
        deadline = _DEADLINE.get() if results > _QUICK_RESULTS else None
        try:
            return future.result(None if deadline is None else max(deadline - time.monotonic(), 0))
        except TimeoutError:
            if future.done():
                raise  # by `build` itself
            raise StillComputing(results) from None

    def _build(
        self, key: tuple[Any, ...], future: "Future[_Value]", build: Callable[[], _Value]
    ) -> None:
        try:
            future.set_result(build())
        except BaseException as error:
            # Not kept: the next request may be luckier, with a store that is no longer locked.
            with self._lock:
                if (kept := self._kept.pop(key, None)) is not None:
                    self._total -= kept[0]
            future.set_exception(error)


def build_run_key(store: Store, row: RunRow) -> tuple[Any, ...]:
    """Return a key that changes whenever the results of a run do."""
    totals = row.totals
    recorded = (totals.recorded, totals.attempts, totals.score_sum)
    return (store.where, row.id, row.spec.created_at, row.status, *recorded)
