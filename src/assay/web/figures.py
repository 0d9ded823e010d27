"""Statistics of runs, kept while nothing is added to the run: a large one takes seconds to read."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from assay.runner import read_summary
from assay.stats import Comparison, RunSummary, compare
from assay.store import Run

_MAX_KEPT = 64
# A run in progress changes all the time: its statistics are read again after this many times the
# seconds that reading them took.
_REST_FACTOR = 20
_SHORTEST_REST_S = 1.0
# Comparing reads all results of both runs; for larger ones the page of comparisons does it.
_MAX_COMPARED_RESULTS = 5000


@dataclass(frozen=True)
class _Kept:
    revision: str
    value: object
    read_at: float
    took_s: float


class FigureCache:
    """The last statistics of some runs. Usable from any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._reading = threading.Lock()

    def read_summary(self, run: Run, *, is_live: bool) -> RunSummary:
        """Return the statistics of a run; of one in progress they may be some seconds old."""
        key = _build_cache_key(run)
        revision = run.read_revision()
        if (found := self._find(key, revision, is_live=is_live)) is not None:
            assert isinstance(found, RunSummary)
            return found
        # One at a time: several open pages must not read the same million rows at once.
        with self._reading:
            if (found := self._find(key, revision, is_live=is_live)) is None:
                found = self._keep(key, revision, lambda: read_summary(run))
        assert isinstance(found, RunSummary)
        return found

    def compare(self, a: Run, b: Run, *, results: int) -> Comparison | None:
        """Compare two finished runs by sample; None if they are large.

        Raises `ConfigError` for runs on different scales.
        """
        if results > _MAX_COMPARED_RESULTS:
            return None
        key, revision = _build_cache_key(a, b), f"{a.read_revision()} {b.read_revision()}"
        found = self._find(key, revision, is_live=False)
        if found is None:
            found = self._keep(key, revision, lambda: compare(a, b, limit=0))
        assert isinstance(found, Comparison)
        return found

    def _find(self, key: tuple[str, ...], revision: str, *, is_live: bool) -> object | None:
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._kept.move_to_end(key)
        rest = max(_SHORTEST_REST_S, _REST_FACTOR * kept.took_s)
        is_fresh = is_live and time.monotonic() - kept.read_at < rest
        return kept.value if kept.revision == revision or is_fresh else None

    def _keep(self, key: tuple[str, ...], revision: str, read: Callable[[], object]) -> object:
        started = time.monotonic()
        value = read()
        ended = time.monotonic()
        with self._lock:
            self._kept[key] = _Kept(revision, value, ended, ended - started)
            self._kept.move_to_end(key)
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return value


def _build_cache_key(*runs: Run) -> tuple[str, ...]:
    # A run may be deleted, and another one recorded with its id.
    return tuple(part for run in runs for part in (run.id, run.spec.created_at))
