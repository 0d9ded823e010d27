"""What an evaluation gives back: numbers at once, samples when they are asked for."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import overload

from assay.datasets import SkippedRows
from assay.stats import RunSummary, summarise_recorded
from assay.store import Run, RunSpec, Store
from assay.types import Sample


class RunSamples:
    """The samples of a run in dataset order, read from the store while they are looked at.

    Failed ones are among them, with their `failure`.
    """

    def __init__(self, store: Store | str | Path | None, run_id: str, count: int) -> None:
        self._store = store
        self._run_id = run_id
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sample]:
        if isinstance(self._store, Store):
            yield from self._store.run(self._run_id).samples()
            return
        with Store.open(self._store, create=False) as store:
            yield from store.run(self._run_id).samples()

    @overload
    def __getitem__(self, place: int) -> Sample: ...
    @overload
    def __getitem__(self, place: slice) -> list[Sample]: ...
    def __getitem__(self, place: int | slice) -> Sample | list[Sample]:
        if isinstance(place, slice):
            wanted = range(self._count)[place]
            if not wanted:
                return []
            first, last = min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1])
            passed = enumerate(islice(self, first, last + 1), first)
            chosen = [sample for number, sample in passed if number in wanted]
            return chosen if wanted.step > 0 else chosen[::-1]
        number = range(self._count)[place]
        return next(islice(self, number, None))


@dataclass(frozen=True)
class EvalReport:
    """A finished or interrupted run."""

    run_id: str
    spec: RunSpec
    """What was run: configuration and dataset, with their fingerprints."""

    store: str
    """Where the run is kept; without user and password."""

    summary: RunSummary
    samples: RunSamples
    interrupted: bool = False
    skipped: SkippedRows | None = None
    """The dataset's bad rows, where they were to be skipped."""

    @property
    def mean(self) -> float | None:
        """The mean score of the judged samples, repeats averaged first."""
        return self.summary.score.interval.mean


def build_eval_report(
    run: Run, store: Store, *, reopen: Store | str | Path | None, interrupted: bool
) -> EvalReport:
    """Read a run's numbers; its samples stay where they are."""
    summary = summarise_recorded(run.results(), run.spec.config)
    return EvalReport(
        run_id=run.id,
        spec=run.spec,
        store=store.where,
        summary=summary,
        samples=RunSamples(reopen, run.id, summary.results),
        interrupted=interrupted,
    )
