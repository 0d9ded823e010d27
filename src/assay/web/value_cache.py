"""Values that were computed from whole runs, kept while the runs do not change.

A value of large runs takes seconds. It is computed in a thread of its own, so that a page can be
answered before it is ready, and several requests for it wait for the same computation.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import astuple, dataclass
from itertools import count
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from assay.store import RunRow, Store

_Value = TypeVar("_Value")
# Fewer are read at once on any machine that is not overloaded.
_QUICK_RESULTS = 20_000
# Values of few results are small, but not nothing.
_MAX_VALUES = 1000
# More computations at once only delay each other. A cache never computes inside another one.
_COMPUTING = threading.BoundedSemaphore(2)
_DEADLINE: ContextVar[float | None] = ContextVar("deadline", default=None)
_STORE_NUMBERS: WeakKeyDictionary[Store, int] = WeakKeyDictionary()
_NEXT_STORE_NUMBER = count()


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


class RunsKey(NamedTuple):
    """The key of a value of some runs. A cache keeps the value of their last state only."""

    runs: Hashable
    state: Hashable
    """Changes whenever the results of one of the runs do."""


@dataclass(frozen=True)
class _KeptValue:
    state: Hashable
    cost: int
    future: Future[Any]


class ValueCache:
    """The values used last, up to a number of results that they consist of."""

    def __init__(self, max_results: int) -> None:
        self._max_results = max_results
        self._kept: OrderedDict[Hashable, _KeptValue] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def get(
        self,
        key: tuple[Any, ...],
        build: Callable[[], _Value],
        *,
        results: int,
        cost: int | None = None,
    ) -> _Value:
        """Return the kept value of this key, or build it. Raises what `build` raises.

        `results` are the results that `build` reads; `cost` (default: the same) those that the
        value keeps in memory.
        """
        place, state = key if isinstance(key, RunsKey) else (key, None)
        with self._lock:
            kept = self._kept.get(place)
            if kept is None or kept.state != state:
                self._drop(place)
                kept = _KeptValue(state, results if cost is None else cost, Future())
                self._kept[place] = kept
                self._total += kept.cost
                self._make_room()
                # A daemon: a viewer that is stopped does not wait for it.
                threading.Thread(
                    target=self._build,
                    args=(place, kept, build),
                    name="assay-compute",
                    daemon=True,
                ).start()
            self._kept.move_to_end(place)
        future: Future[_Value] = kept.future
        deadline = _DEADLINE.get() if results > _QUICK_RESULTS else None
        try:
            return future.result(None if deadline is None else max(deadline - time.monotonic(), 0))
        except TimeoutError:
            if future.done():
                # Ready since, or `build` itself has failed with such an error.
                return future.result()
            raise StillComputing(results) from None

    def _build(self, place: Hashable, kept: _KeptValue, build: Callable[[], _Value]) -> None:
        try:
            with _COMPUTING:
                value = build()
        except BaseException as error:
            # Not kept: the next request may be luckier, with a store that is no longer locked.
            with self._lock:
                if self._kept.get(place) is kept:
                    self._drop(place)
            kept.future.set_exception(error)
        else:
            kept.future.set_result(value)

    def _make_room(self) -> None:
        while len(self._kept) > 1 and (
            self._total > self._max_results or len(self._kept) > _MAX_VALUES
        ):
            self._drop(next(iter(self._kept)))

    def _drop(self, place: Hashable) -> None:
        kept = self._kept.pop(place, None)
        if kept is not None:
            self._total -= kept.cost


def build_run_key(store: Store, *rows: RunRow) -> RunsKey:
    """Return the key of a value of runs."""
    return RunsKey(
        (number_store(store), *(row.id for row in rows)),
        # A run may be deleted, and another one recorded with its id.
        tuple(
            (row.spec.created_at, row.finished_at, row.status, *astuple(row.totals)) for row in rows
        ),
    )


def number_store(store: Store) -> int:
    """Return a number that no other open store has: two may be called the same."""
    return _STORE_NUMBERS.setdefault(store, next(_NEXT_STORE_NUMBER))
