"""Joined runs: comparisons, the order of samples, and pages by key."""

from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.stats import compare
from assay.store import Store
from assay.types import EvaluateResult, Sample, Status
from assay.web.pair_table import join_runs
from recorded_pages import RecordedPages, record_run


def graded(name: str, score: float | None) -> Sample:
    result = EvaluateResult(score=score) if score is not None else EvaluateResult(reason="unclear")
    return Sample(id=name, prompt=name, score=result, status=Status.COMPLETED)


def record_scores(store: Store, run: str, scores: dict[str, float | None]) -> None:
    record_run(store, run, [graded(*each) for each in scores.items()])


def test_samples_are_listed_by_their_change(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_scores(store, "a", {"x": 1.0, "y": 1.0, "z": 0.0, "same": 1.0, "gone": 1.0})
        record_scores(store, "b", {"x": 0.5, "y": 0.0, "z": 1.0, "same": 1.0, "new": 1.0})
        table = join_runs([store.run("a"), store.run("b")]).table

    assert table.list_samples("flipped", after=None, limit=9) == ["y", "x", "z"]
    assert table.list_samples("regressions", after=None, limit=9) == ["y", "x"]
    assert table.list_samples("improvements", after=None, limit=9) == ["z"]
    assert table.list_samples("same", after=None, limit=9) == ["same"]
    assert table.list_samples("missing", after=None, limit=9) == ["gone", "new"]
    assert table.count("all") == 6


def test_pages_follow_each_other_without_gaps(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        names = [f"n{index:02}" for index in range(25)]
        record_scores(store, "a", dict.fromkeys(names, 1.0))
        record_scores(store, "b", {name: (index % 5) / 5 for index, name in enumerate(names)})
        table = join_runs([store.run("a"), store.run("b")]).table

    listed: list[str] = []
    while page := table.list_samples("all", after=listed[-1] if listed else None, limit=4):
        listed += page

    assert sorted(listed) == names
    assert listed == table.list_samples("all", after=None, limit=100)


def test_unjudged_samples_count_as_missing(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_scores(store, "a", {"x": 1.0, "y": None})
        record_scores(store, "b", {"x": 1.0, "y": 1.0})
        table = join_runs([store.run("a"), store.run("b")]).table

    assert table.list_samples("missing", after=None, limit=9) == ["y"]
    assert table.find_scores("y") == [None, 1.0]


def test_the_comparisons_are_those_of_the_command(page_store: Store, pages: RecordedPages) -> None:
    runs = [page_store.run(pages.baseline), page_store.run(pages.changed)]

    joined = join_runs(runs)

    expected = compare(*runs, limit=10)
    assert joined.comparisons[0].comparison == expected
    assert joined.comparisons[0].adjusted_p == expected.p_value


def test_p_values_of_several_runs_are_adjusted(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        names = [f"n{index}" for index in range(12)]
        record_scores(store, "a", dict.fromkeys(names, 1.0))
        for run in ("b", "c"):
            record_scores(store, run, dict.fromkeys(names, 0.0))
        joined = join_runs([store.run(run) for run in "abc"])

    for each in joined.comparisons:
        assert each.comparison.p_value is not None
        assert each.adjusted_p == 2 * each.comparison.p_value


def test_a_rise_is_a_regression_where_low_scores_are_good(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        for run, scores in {"a": (0.0, 1.0, 0.5), "b": (1.0, 0.0, 0.5)}.items():
            samples = [graded(f"n{index}", score) for index, score in enumerate(scores)]
            record_run(store, run, samples, config={"direction": "min"})
        joined = join_runs([store.run("a"), store.run("b")])

    assert joined.table.list_samples("regressions", after=None, limit=9) == ["n0"]
    assert joined.table.list_samples("improvements", after=None, limit=9) == ["n1"]
    assert [joined.table.find_change(f"n{index}") for index in range(3)] == [
        "worse",
        "better",
        "same",
    ]
    found = joined.comparisons[0].comparison
    assert found.direction == "min"
    assert [pair.sample_id for pair in found.regressions] == ["n0"]


def test_runs_in_which_different_scores_are_good_are_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", [graded("x", 1.0)], config={"direction": "min"})
        record_run(store, "b", [graded("x", 1.0)])
        with pytest.raises(ConfigError, match="low scores are good in the first run"):
            join_runs([store.run("a"), store.run("b")])
