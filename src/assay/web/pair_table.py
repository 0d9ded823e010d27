"""Several runs joined by sample: their comparisons, and the samples in the order of the change."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from assay.stats import AdjustedComparison, adjust_p_values, compare, read_recorded_direction
from assay.store import ResultRow, Run, RunSpec

Show = Literal["flipped", "regressions", "improvements", "same", "missing", "all"]
"""Which samples of a comparison are listed."""

Change = Literal["worse", "better", "same", "missing"]
"""How a sample differs from the baseline; `worse` if it is so in any of several runs."""

_LISTED = 10
_NOISE = 1e-12
_NO_INDEX = -1
_WORSE, _BETTER, _SAME, _MISSING = range(4)
_CHANGES: tuple[Change, ...] = ("worse", "better", "same", "missing")


class ScoreColumn:
    """The scores of one run by the places of a `PairTable`: mean over judged repeats."""

    def __init__(self) -> None:
        self._sums = array("d")
        self._judged = array("l")
        self._recorded = bytearray()
        # The index of the dataset row: finds the sample in a large run at once.
        self._indexes = array("q")

    def add(self, place: int, row: ResultRow) -> None:
        """Add a result. Rows of failed and unjudged samples are recorded without a score."""
        if place >= len(self._judged):
            more = place + 1 - len(self._judged)
            self._sums.extend([0.0] * more)
            self._judged.extend([0] * more)
            self._recorded.extend(b"\0" * more)
            self._indexes.extend([_NO_INDEX] * more)
        self._recorded[place] = 1
        self._indexes[place] = _NO_INDEX if row.index is None else row.index
        if row.valid and row.score is not None:
            self._sums[place] += row.score
            self._judged[place] += 1

    def find_mean(self, place: int) -> float | None:
        if place >= len(self._judged) or not self._judged[place]:
            return None
        return self._sums[place] / self._judged[place]

    def has_sample(self, place: int) -> bool:
        return place < len(self._recorded) and bool(self._recorded[place])

    def find_index(self, place: int) -> int | None:
        if not self.has_sample(place) or self._indexes[place] == _NO_INDEX:
            return None
        return self._indexes[place]


_Key = tuple[int, float, int]
"""The order of samples: by kind of change, by its size, then as in the runs."""


class PairTable:
    """Samples of several runs, the first of which is the baseline."""

    def __init__(self, runs: int, *, low_is_good: bool = False) -> None:
        self.low_is_good = low_is_good
        self.ids: list[str] = []
        self._places: dict[str, int] = {}
        self.columns = [ScoreColumn() for _ in range(runs)]
        self._orders: dict[Show, list[_Key]] = {}

    def watch(self, run: int, rows: Iterable[ResultRow]) -> Iterator[ResultRow]:
        """Yield the results of a run, and add each to the table as it passes."""
        column, places = self.columns[run], self._places
        for row in rows:
            place = places.get(row.sample_id)
            if place is None:
                place = places[row.sample_id] = len(self.ids)
                self.ids.append(row.sample_id)
            column.add(place, row)
            yield row

    def list_samples(self, show: Show, *, after: str | None, limit: int) -> list[str]:
        """Return ids in the order of the change, after the sample `after`."""
        order = self._get_order(show)
        start = 0
        if after is not None and (place := self._places.get(after)) is not None:
            start = bisect_right(order, self._build_key(place))
        return [self.ids[place] for _, _, place in order[start : start + limit]]

    def count(self, show: Show) -> int:
        """Return the number of samples that would be listed."""
        return len(self._get_order(show))

    def find_index(self, run: int, sample_id: str) -> int | None:
        """Return the index of a sample in one run; None if it has none there."""
        return self.columns[run].find_index(self._places[sample_id])

    def has_sample(self, run: int, sample_id: str) -> bool:
        """Whether a run has the sample, judged or not."""
        return self.columns[run].has_sample(self._places[sample_id])

    def find_scores(self, sample_id: str) -> list[float | None]:
        """Return the mean score of a sample in each run."""
        place = self._places[sample_id]
        return [column.find_mean(place) for column in self.columns]

    def find_change(self, sample_id: str) -> Change:
        """Return how a sample differs from the baseline."""
        return _CHANGES[self._build_key(self._places[sample_id])[0]]

    def _get_order(self, show: Show) -> list[_Key]:
        if not self._orders:
            # All of them at once: a page counts each.
            every = sorted(map(self._build_key, range(len(self.ids))))
            self._orders = {
                "all": every,
                "regressions": [key for key in every if key[0] == _WORSE],
                "improvements": [key for key in every if self._is_better(key)],
                "flipped": [key for key in every if key[0] in (_WORSE, _BETTER)],
                "same": [key for key in every if key[0] == _SAME],
                "missing": [key for key in every if self._is_missing(key)],
            }
        return self._orders[show]

    def _is_better(self, key: _Key) -> bool:
        # Of several runs one may be worse than the baseline, and another one better.
        if len(self.columns) == 2 or key[0] != _WORSE:
            return key[0] == _BETTER
        return self._find_changes(key[2])[1] > _NOISE

    def _is_missing(self, key: _Key) -> bool:
        if len(self.columns) == 2 or key[0] in (_SAME, _MISSING):
            return key[0] == _MISSING
        return not self._find_changes(key[2])[2]

    def _find_changes(self, place: int) -> tuple[float, float, bool]:
        """Return the worst and the best change against the baseline, and if all runs have it."""
        baseline, *others = (column.find_mean(place) for column in self.columns)
        known = [each for each in others if each is not None]
        if baseline is None or not known:
            return 0.0, 0.0, False
        changes = [baseline - each if self.low_is_good else each - baseline for each in known]
        return min(changes), max(changes), len(known) == len(others)

    def _build_key(self, place: int) -> _Key:
        # Regressions first, the worst of them before all others; then improvements.
        worst, best, complete = self._find_changes(place)
        if worst < -_NOISE:
            return (_WORSE, worst, place)
        if best > _NOISE:
            return (_BETTER, -best, place)
        return (_SAME if complete else _MISSING, 0.0, place)


@dataclass(frozen=True)
class JoinedRuns:
    """The comparisons of runs with the first one, and their samples."""

    table: PairTable
    comparisons: tuple[AdjustedComparison, ...]


class _WatchedRun:
    """A run whose results are added to a table while they are compared."""

    def __init__(self, run: Run, table: PairTable, index: int) -> None:
        self._run, self._table, self._index = run, table, index

    @property
    def spec(self) -> RunSpec:
        return self._run.spec

    def results(self) -> Iterator[ResultRow]:
        return self._table.watch(self._index, self._run.results())

    def read_labels(self, sample_ids: Iterable[str]) -> dict[str, str]:
        return self._run.read_labels(sample_ids)


def join_runs(runs: Sequence[Run]) -> JoinedRuns:
    """Compare each run with the first, p-values adjusted for their number by Holm's method.

    Every run but the first is read once. Raises `ConfigError` for runs on different scales, and
    for a run in which low scores are good beside one in which high ones are.
    """
    first = runs[0]
    is_low_good = read_recorded_direction(first.spec.config) == "min"
    table = PairTable(len(runs), low_is_good=is_low_good)
    compared = [
        compare(
            _WatchedRun(first, table, 0) if index == 1 else first,
            _WatchedRun(other, table, index),
            limit=_LISTED,
        )
        for index, other in enumerate(runs[1:], start=1)
    ]
    # The p-value is None only without pairs, which cannot be significant.
    adjusted = adjust_p_values([1.0 if each.p_value is None else each.p_value for each in compared])
    return JoinedRuns(
        table,
        tuple(
            AdjustedComparison(comparison=each, adjusted_p=None if each.p_value is None else value)
            for each, value in zip(compared, adjusted, strict=True)
        ),
    )
