"""The report of an evaluation: figures at once, samples read from the store on demand."""

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
    """The samples of a run in dataset order, read from the store during iteration.

    Failed samples are included, with their `failure`.
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
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            wanted = range(self._count)[index]
            if not wanted:
                return []
            # The store reads forwards only: read the covered range once, then reverse.
            first, last = min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1])
            passed = enumerate(islice(self, first, last + 1), first)
            chosen = [sample for number, sample in passed if number in wanted]
            return chosen if wanted.step > 0 else chosen[::-1]
        number = range(self._count)[index]
        return next(islice(self, number, None))


@dataclass(frozen=True)
class EvalReport:
    """A finished or interrupted run."""

    run_id: str
    spec: RunSpec
    """Configuration and dataset of the run, with their fingerprints."""

    store: str
    """Address of the store, without user and password."""

    summary: RunSummary
    samples: RunSamples
    interrupted: bool = False
    skipped: SkippedRows | None = None
    """Invalid rows of the dataset, if they were skipped."""

    @property
    def mean(self) -> float | None:
        """The mean score of the scored samples, with repeats averaged first."""
        return self.summary.score.interval.mean


def build_eval_report(
    run: Run, store: Store, *, reopen: Store | str | Path | None, interrupted: bool
) -> EvalReport:
    """Read the figures of a run; its samples stay in the store."""
    summary = summarise_recorded(run.results(), run.spec.config)
    return EvalReport(
        run_id=run.id,
        spec=run.spec,
        store=store.where,
        summary=summary,
        samples=RunSamples(reopen, run.id, summary.results),
        interrupted=interrupted,
    )
