"""Values that were computed from whole runs, kept while the runs do not change."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from assay.store import RunRow, Store

_Value = TypeVar("_Value")


class ValueCache:
    """The values used last, up to a number of results that they were computed from."""

    def __init__(self, max_results: int) -> None:
        self._max_results = max_results
        self._kept: OrderedDict[tuple[Any, ...], tuple[int, Any]] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[Any, ...], build: Callable[[], _Value], *, results: int) -> _Value:
        """Return the kept value of this key, or build it."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                found: _Value = self._kept[key][1]
                return found
        # Not under the lock: other pages must not wait. Two requests may build the same value.
        value = build()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = (results, value)
                self._total += results
            while self._total > self._max_results and len(self._kept) > 1:
                self._total -= self._kept.popitem(last=False)[1][0]
        return value


def build_run_key(store: Store, row: RunRow) -> tuple[Any, ...]:
    """Return a key that changes whenever the results of a run do."""
    totals = row.totals
    recorded = (totals.recorded, totals.attempts, totals.score_sum)
    return (store.where, row.id, row.spec.created_at, row.status, *recorded)
