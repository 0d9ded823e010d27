"""`rescore`: another scorer over recorded rollouts, without calling a model."""

import asyncio
from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.providers import ClientSettings
from assay.runner import EvalConfig, Progress, Shard, Stop, evaluate
from assay.runner.rescore_run import RescoreOptions, rescore, rescore_shard
from assay.store import Store
from assay.types import Endpoint, Sample

ROWS = [{"id": f"r{n}", "question": f"Say {n}"} for n in range(4)]


def recorded(store: Path, *replies: object, repeats: int = 1) -> str:
    def fussy(sample: Sample) -> float:
        if sample.id == "r2":
            raise ValueError("cannot judge this")
        return 0.0

    endpoint = Endpoint(
        provider="mock", model="script", extra_params={"replies": list(replies), "loop": True}
    )
    config = EvalConfig(
        endpoint=endpoint,
        score_fn=fussy,
        repeats=repeats,
        concurrency=1,
        client=ClientSettings(max_retries=0),
    )
    return asyncio.run(evaluate(ROWS, config, store=store)).run_id


def is_yes(sample: Sample) -> bool:
    return sample.response == "yes"


def test_the_same_rollouts_get_new_results_in_a_run_of_their_own(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    old = recorded(store, "yes")

    report = asyncio.run(rescore(old, lambda sample: sample.response == "yes", store=store))

    assert report.run_id != old
    assert report.mean == 1.0
    assert report.summary.judged_samples == 4
    with Store.open(store) as opened:
        assert opened.run(old).totals.failed == 1
        assert [sample.reward for sample in opened.run(old).samples()] == [0.0, 0.0, None, 0.0]


def test_repeats_are_kept_apart(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    old = recorded(store, "yes", "no", repeats=2)

    report = asyncio.run(rescore(old, lambda sample: sample.response == "yes", store=store))

    assert report.summary.results == 8
    assert report.mean == 0.5
    with Store.open(store) as opened:
        assert opened.run(report.run_id).spec.total == 4


def test_shards_score_the_rollouts_of_a_run_between_them(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    old = recorded(store, "yes", "no", repeats=2)

    with Store.open(store) as opened:
        for number in (1, 2):
            work = rescore_shard(
                old,
                is_yes,
                Shard("again", number, 2),
                store=opened,
                options=RescoreOptions(),
                stop=Stop(),
            )
            asyncio.run(work)

        row = opened.run("again").row()
    assert (row.status, row.totals.recorded, row.totals.mean) == ("completed", 8, 0.5)


def test_a_run_with_missing_repeats_is_not_scored_in_shards(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    old = recorded(store, "yes", {"error": {"status": 400}}, repeats=2)

    with Store.open(store) as opened, pytest.raises(ConfigError, match="leave out --workers"):
        asyncio.run(
            rescore_shard(
                old,
                is_yes,
                Shard("again", 1, 2),
                store=opened,
                options=RescoreOptions(),
                stop=Stop(),
            )
        )


def test_a_rollout_that_broke_is_not_scored(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    old = recorded(store, "yes", {"error": {"status": 400}})

    report = asyncio.run(rescore(old, lambda sample: 1.0, store=store))

    assert report.summary.samples == 2


def test_a_run_without_rollouts_cannot_be_rescored(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    old = recorded(store, {"error": {"status": 400}})

    with pytest.raises(ConfigError, match="has no rollouts to score"):
        asyncio.run(rescore(old, lambda sample: 1.0, store=store))


def test_a_run_that_is_deleted_while_it_is_rescored_is_named(tmp_path: Path) -> None:
    samples = [{"id": f"r{n}", "question": "Yes?"} for n in range(60)]
    config = EvalConfig(score_fn=is_yes, agent=lambda sample: "yes")

    async def delete_and_score(sample: Sample) -> float:
        with Store.open(tmp_path / "a.db") as store:
            if any(row.id == old for row in store.runs()):
                store.delete_run(old)
        return 1.0

    old = asyncio.run(evaluate(samples, config, store=tmp_path / "a.db")).run_id
    options = RescoreOptions(concurrency=1)

    with pytest.raises(ConfigError, match="sample 'r50' was deleted before it was scored again"):
        asyncio.run(rescore(old, delete_and_score, store=tmp_path / "a.db", options=options))

    with Store.open(tmp_path / "a.db") as store:
        assert (store.run().status, store.run().totals.recorded) == ("failed", 50)


def test_failed_rollouts_are_kept_as_failures_where_asked(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    old = recorded(store, "yes", {"error": {"status": 400}})

    options = RescoreOptions(keep_failed=True)
    report = asyncio.run(rescore(old, lambda sample: 1.0, store=store, options=options))

    assert report.summary.samples == 4
    assert report.summary.judged_samples == 2


def test_a_limit_counts_samples_with_all_their_repeats(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    old = recorded(store, "yes", repeats=2)
    totals: list[int | None] = []

    def watch(progress: Progress) -> None:
        totals.append(progress.total)

    options = RescoreOptions(max_samples=3)
    report = asyncio.run(
        rescore(old, lambda sample: 1.0, store=store, options=options, watch=watch)
    )

    assert report.summary.results == 6
    assert set(totals) == {6}


def test_a_stopped_rescoring_goes_on_without_scoring_twice(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    old = recorded(store, "yes")
    stop = Stop()
    scored: list[str] = []

    def score(sample: Sample) -> float:
        scored.append(sample.id)
        if sample.id == "r1":
            stop.request()
        return 1.0

    options = RescoreOptions(concurrency=1)
    stopped = asyncio.run(rescore(old, score, store=store, options=options, stop=stop))
    options = RescoreOptions(resume=stopped.run_id)
    report = asyncio.run(rescore(old, score, store=store, options=options))

    assert (stopped.interrupted, stopped.summary.results) == (True, 2)
    assert (report.interrupted, report.summary.results) == (False, 4)
    assert sorted(scored) == ["r0", "r1", "r2", "r3"]


def test_another_scorer_does_not_go_on_with_a_rescoring(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    old = recorded(store, "yes")
    begun = asyncio.run(rescore(old, lambda sample: 1.0, store=store))

    def other(sample: Sample) -> float:
        return 0.0

    with pytest.raises(ConfigError, match="score_fn"):
        asyncio.run(rescore(old, other, store=store, options=RescoreOptions(resume=begun.run_id)))
