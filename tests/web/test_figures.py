"""Statistics of runs are read again only when something was added."""

from pathlib import Path

import pytest

from assay.runner import read_summary
from assay.stats import RunSummary
from assay.store import Run, Store
from assay.web import figures
from assay.web.figures import FigureCache
from store_runs import record, scored, spec


def test_statistics_are_read_once_until_something_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count: list[str] = []

    def read(run: Run) -> RunSummary:
        count.append(run.id)
        return read_summary(run)

    monkeypatch.setattr(figures, "read_summary", read)
    cache = FigureCache()
    with Store.open(tmp_path / "assay.db") as store:
        run = store.start_run(spec())
        record(run, [scored(0)])

        first = cache.read_summary(run, is_live=False)
        assert cache.read_summary(run, is_live=False) is first
        record(run, [scored(1, 0.0)])
        second = cache.read_summary(run, is_live=False)

    assert (first.samples, second.samples) == (1, 2)
    assert len(count) == 2


def test_statistics_of_a_run_in_progress_may_be_a_moment_old(tmp_path: Path) -> None:
    cache = FigureCache()
    with Store.open(tmp_path / "assay.db") as store:
        run = store.start_run(spec())
        record(run, [scored(0)])
        first = cache.read_summary(run, is_live=True)
        record(run, [scored(1)])

        assert cache.read_summary(run, is_live=True) is first
        assert cache.read_summary(run, is_live=False).samples == 2


def test_statistics_of_a_deleted_run_are_not_those_of_its_successor(tmp_path: Path) -> None:
    cache, found = FigureCache(), []
    with Store.open(tmp_path / "assay.db") as store:
        for minute, score in enumerate((0.0, 1.0)):
            run = store.start_run(spec(created_at=f"2026-01-01T00:0{minute}:00+00:00"))
            record(run, [scored(0, score)])
            run.finish("completed")
            found.append(cache.read_summary(run, is_live=False).score.interval.mean)
            compared = cache.compare(run, run, results=2)
            assert compared is not None
            found.append(compared.mean_b)
            store.delete_run("run-1")

    assert found == [0.0, 0.0, 1.0, 1.0]


def test_few_statistics_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "_MAX_KEPT", 2)
    cache = FigureCache()
    with Store.open(tmp_path / "assay.db") as store:
        for number in range(4):
            cache.read_summary(store.start_run(spec(f"run-{number}")), is_live=False)

    assert len(cache._kept) == 2


def test_large_runs_are_not_compared_here(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store:
        run = store.start_run(spec())

        assert FigureCache().compare(run, run, results=10**6) is None
