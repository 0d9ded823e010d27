"""Runs that stop early, and going on with them."""

import asyncio
from pathlib import Path

import pytest

from assay.environments import BasicEnvironment, Step
from assay.errors import ConfigError, StoreError
from assay.runner import EvalConfig, EvalReport, Progress, Resume, Stop, evaluate
from assay.store import Store
from assay.types import Endpoint, Message, Sample
from misbehaving import PATIENCE_S
from runner_runs import ECHO, right, rows, run


def test_a_resumed_run_does_only_what_is_missing(store: Path) -> None:
    asked: list[str] = []

    def score(sample: Sample) -> bool:
        asked.append(sample.id)
        if len(asked) == 2:
            raise RuntimeError("once")
        return True

    config = EvalConfig(endpoint=ECHO, score_fn=score, concurrency=1)
    first = run(rows(5), config, store=store)
    assert first.summary.failed == {"scorer": 1}

    second = run(rows(5), config, store=store, resume=first.run_id)

    assert second.run_id == first.run_id
    assert asked == ["r0", "r1", "r2", "r3", "r4", "r1"]
    assert second.summary.judged_samples == 5
    assert second.summary.failed == {}


def test_the_progress_of_a_resumed_run_begins_with_what_it_had(store: Path) -> None:
    broken = ["r4"]

    def score(sample: Sample) -> float:
        if sample.id in broken:
            raise ValueError("not now")
        return float(sample.id == "r4")

    seen: list[Progress] = []
    config = EvalConfig(endpoint=ECHO, score_fn=score)
    run(rows(5), config, store=store)
    broken.clear()
    run(rows(5), config, store=store, resume="latest", watch=seen.append)

    (last,) = {id(progress): progress for progress in seen}.values()
    assert (last.already_done, last.done, last.mean) == (4, 1, 0.2)


def test_resuming_where_no_store_is_makes_none(store: Path) -> None:
    with pytest.raises(StoreError, match="the store does not exist"):
        run(rows(1), EvalConfig(endpoint=ECHO, score_fn=right), store=store, resume="latest")

    assert not store.exists()


def test_resuming_with_another_configuration_is_refused(store: Path) -> None:
    run(rows(1), EvalConfig(endpoint=ECHO, score_fn=right), store=store)
    other = Endpoint(provider="mock", model="echo", temperature=0.5)

    with pytest.raises(ConfigError, match="temperature"):
        run(rows(1), EvalConfig(endpoint=other, score_fn=right), store=store, resume="latest")
    with pytest.raises(ConfigError, match="score_fn"):
        run(rows(1), EvalConfig(endpoint=ECHO, score_fn=lambda s: 0), store=store, resume="latest")


def test_a_changed_dataset_is_refused_or_matched_by_id(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text('{"id":"a","question":"A","answer":"A"}\n{"id":"b","question":"B"}\n')
    config = EvalConfig(endpoint=ECHO, score_fn=lambda s: 1.0)
    run(file, config, store=store)
    file.write_text('{"id":"new","question":"N"}\n{"id":"a","question":"A","answer":"A"}\n')

    with pytest.raises(ConfigError, match="the dataset changed"):
        run(file, config, store=store, resume="latest")
    report = run(file, config, store=store, resume=Resume(allow_changed_dataset=True))

    assert sorted(sample.id for sample in report.samples) == ["a", "b", "new"]


def test_a_run_that_is_asked_to_stop_finishes_what_is_in_flight(store: Path) -> None:
    stop = Stop(grace_s=10)
    config = EvalConfig(
        endpoint=Endpoint(provider="mock", model="echo", extra_params={"latency_s": 0.01}),
        score_fn=right,
        concurrency=4,
    )

    def watch(progress: Progress) -> None:
        if progress.done == 6:
            stop.request()

    report = run(rows(200), config, store=store, watch=watch, stop=stop)

    assert report.interrupted
    assert 6 <= report.summary.results < 200
    assert report.summary.failed == {}
    with Store.open(store) as opened:
        assert opened.run().row().status == "interrupted"
    assert run(rows(200), config, store=store, resume="latest").summary.judged_samples == 200


def test_asked_twice_it_stops_at_once_and_records_no_half_rollout(store: Path) -> None:
    stop = Stop(grace_s=60)
    slow = Endpoint(provider="mock", model="echo", extra_params={"latency_s": 30})

    async def interrupted() -> EvalReport:
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, stop.request)
        loop.call_later(0.1, stop.request)
        return await evaluate(
            rows(10), EvalConfig(endpoint=slow, score_fn=right), store=store, stop=stop
        )

    report = asyncio.run(interrupted())

    assert report.interrupted
    assert report.summary.results == 0


def test_cancelling_leaves_a_run_that_can_be_resumed(store: Path) -> None:
    started = asyncio.Event()

    class Endless(BasicEnvironment):
        async def step(self, action: Message) -> Step:
            started.set()
            return await asyncio.Future()

    async def cancelled() -> None:
        config = EvalConfig(endpoint=ECHO, score_fn=right, environment=lambda sample: Endless())
        task = asyncio.create_task(evaluate(rows(3), config, store=store))
        await asyncio.wait_for(started.wait(), PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())

    with Store.open(store) as opened:
        assert opened.run().row().status == "interrupted"
        assert list(opened.run().results()) == []
