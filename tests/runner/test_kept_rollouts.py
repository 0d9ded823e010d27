"""Rollouts that were paid for: a scorer that fails costs none of them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.errors import AccessDenied, ConfigError, RunStopped
from assay.providers import ModelClient
from assay.runner import EvalConfig, EvalReport, RescoreOptions, Resume, Stop, rescore
from assay.store import RetriedAttempts, Store
from assay.types import Endpoint, Message, Sample, Trajectory
from misbehaving import Exchange, MisbehavingServer
from runner_runs import NO_RETRIES, rows, run


@pytest.fixture
def server() -> Iterator[MisbehavingServer]:
    with MisbehavingServer() as serving:
        yield serving


class Judge:
    """A scorer that raises for some samples, for a reason outside of its code."""

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)

    def __call__(self, sample: Sample) -> float:
        if sample.id in self.broken:
            raise ConnectionError("the judge is down")
        return float(sample.response == sample.ground_truth)


def all_raise(sample: Sample) -> float:
    raise KeyError("no such column")


def half_raise(sample: Sample) -> float:
    if sample.id in ("r1", "r3"):
        raise KeyError("no such column")
    return 0.25


def repaired(sample: Sample) -> float:
    return 0.75


def config(server: MisbehavingServer, score_fn: Any, **settings: Any) -> EvalConfig:
    endpoint = Endpoint(provider="openai", model="m", api_base=server.url, api_key="k")
    return EvalConfig(endpoint=endpoint, score_fn=score_fn, **{"client": NO_RETRIES, **settings})


def scores(report: EvalReport) -> list[float | None]:
    return [sample.reward for sample in report.samples]


def test_a_resumed_run_scores_the_rollouts_whose_scorer_failed(
    store: Path, server: MisbehavingServer
) -> None:
    judge = Judge(*(f"r{n}" for n in range(5)))
    first = run(rows(5), config(server, judge), store=store)
    assert first.summary.failed == {"scorer": 5}
    judge.broken = {"r4"}

    second = run(rows(5), config(server, judge), store=store, resume="latest")
    judge.broken.clear()
    third = run(rows(5), config(server, judge), store=store, resume="latest")

    assert second.summary.failed == {"scorer": 1}
    assert scores(third) == [1.0] * 5
    assert len(server.calls) == 5
    assert all(sample.trajectory and sample.trajectory.calls for sample in third.samples)
    with Store.open(store) as opened:
        assert opened.run().totals.recorded == 5
        assert opened.run().totals.failed == 0


def test_what_a_rollout_cost_is_counted_once_though_its_scorer_failed(
    store: Path, server: MisbehavingServer
) -> None:
    judge = Judge("r0")
    run(rows(2), config(server, judge), store=store)
    judge.broken.clear()
    run(rows(2), config(server, judge), store=store, resume="latest")

    with Store.open(store) as opened:
        retried = opened.run().read_retries()

    assert retried == RetriedAttempts(attempts=1, cost_usd=0.0, cost_known=1)


def test_a_scorer_that_was_repaired_is_taken_when_none_was_scored_before(
    store: Path, server: MisbehavingServer
) -> None:
    started = run(rows(5), config(server, all_raise), store=store)

    resumed = run(rows(5), config(server, repaired), store=store, resume="latest")

    assert resumed.run_id == started.run_id
    assert scores(resumed) == [0.75] * 5
    assert len(server.calls) == 5
    assert resumed.spec.config_fingerprint == config(server, repaired).fingerprint()
    again = run(rows(6), config(server, repaired), store=store, resume="latest")
    assert len(server.calls) == 6
    assert again.summary.judged_samples == 6
    with pytest.raises(ConfigError, match="the configuration differs from the one"):
        run(rows(5), config(server, all_raise), store=store, resume="latest")


def test_a_rollout_of_the_users_function_without_a_model_is_kept_as_well(store: Path) -> None:
    asked: list[str] = []

    async def answer(client: ModelClient | None, sample: Sample) -> Trajectory:
        asked.append(sample.id)
        return Trajectory(messages=[*sample.messages, Message(role="assistant", content="Hi")])

    run(rows(5), EvalConfig(score_fn=all_raise, rollout_fn=answer), store=store)
    repairing = EvalConfig(score_fn=repaired, rollout_fn=answer)

    resumed = run(rows(5), repairing, store=store, resume="latest")

    assert scores(resumed) == [0.75] * 5
    assert len(asked) == 5
    again = EvalConfig(score_fn=half_raise, rollout_fn=answer)
    run(rows(5), again, store=store, resume=Resume(rescore=True))
    assert len(asked) == 5
    others = [{**row, "question": "Else?"} for row in rows(5)]
    with pytest.raises(ConfigError, match="now gives other messages"):
        run(others, repairing, store=store, resume=resumed.run_id)


def test_a_repaired_scorer_is_refused_beside_the_scores_of_the_old_one(
    store: Path, server: MisbehavingServer
) -> None:
    run(rows(5), config(server, half_raise), store=store)

    with pytest.raises(ConfigError) as refused:
        run(rows(5), config(server, repaired), store=store, resume="latest")

    assert "score_fn" in str(refused.value)
    assert "without model calls" in str(refused.value)
    assert "--rescore" in str(refused.value)
    assert len(server.calls) == 5


def test_rescoring_starts_a_new_run_that_makes_only_the_missing_rollouts(
    store: Path, server: MisbehavingServer
) -> None:
    async def refuses_r2(exchange: Exchange) -> None:
        await (exchange.answer(500) if exchange.call.sample == "Say 2" else exchange.echo())

    server.react = refuses_r2
    old = run(rows(5), config(server, half_raise), store=store)
    assert old.summary.failed == {"endpoint": 1, "scorer": 2}
    calls = len(server.calls)
    server.react = Exchange.echo

    new = run(
        rows(6), config(server, repaired), store=store, resume=Resume(old.run_id, rescore=True)
    )

    assert new.run_id != old.run_id
    assert new.spec.reuses == old.run_id
    assert scores(new) == [0.75] * 6
    assert server.asked(calls) == {"Say 2": 1, "Say 5": 1}
    with Store.open(store) as opened:
        assert opened.run(old.run_id).totals.recorded == 2


def test_a_rescoring_that_stops_or_fails_loses_no_rollout(
    store: Path, server: MisbehavingServer
) -> None:
    old = run(rows(5), config(server, half_raise), store=store)
    stop = Stop()
    stop.request()
    again = Resume(old.run_id, rescore=True)
    judge = Judge("r0", "r1")
    new = run(rows(5), config(server, judge), store=store, resume=again, stop=stop)
    assert new.interrupted

    failing = run(rows(5), config(server, judge), store=store, resume=new.run_id)
    judge.broken.clear()
    whole = run(rows(5), config(server, judge), store=store, resume=new.run_id)

    assert failing.summary.failed == {"scorer": 2}
    assert scores(whole) == [1.0] * 5
    assert len(server.calls) == 5


def test_a_rescoring_of_other_rollouts_is_refused(store: Path, server: MisbehavingServer) -> None:
    old = run(rows(2), config(server, half_raise), store=store)
    again = Resume(old.run_id, rescore=True)

    with pytest.raises(ConfigError, match="seed: None -> 7"):
        run(rows(2), config(server, repaired, seed=7), store=store, resume=again)
    with pytest.raises(
        ConfigError, match="a configuration without an endpoint has no rollouts to reuse"
    ):
        run(rows(2), EvalConfig(score_fn=repaired), store=store, resume=again)

    assert len(server.calls) == 2
    with Store.open(store) as opened:
        assert len(opened.runs()) == 1


@pytest.mark.parametrize("rescore", [False, True])
def test_a_rollout_of_another_prompt_is_not_scored_as_if_it_were_of_this_one(
    store: Path, server: MisbehavingServer, tmp_path: Path, rescore: bool
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("Be brief.")

    def prepare(sample: Sample) -> list[Message]:
        return [Message(role="system", content=file.read_text()), *sample.messages]

    old = run(rows(2), config(server, all_raise, prepare_messages=prepare), store=store)
    file.write_text("Be verbose.")

    with pytest.raises(ConfigError, match="the prompt of sample 'r0' changed"):
        run(
            rows(2),
            config(server, repaired, prepare_messages=prepare),
            store=store,
            resume=Resume(old.run_id, rescore=rescore),
        )


def test_repeats_are_each_scored_with_their_own_rollout(
    store: Path, server: MisbehavingServer
) -> None:
    async def numbered(exchange: Exchange) -> None:
        await exchange.say(f"{exchange.call.sample} #{exchange.call.number}")

    server.react = numbered
    judge = Judge("r0", "r1")
    first = run(rows(2), config(server, judge, repeats=3), store=store)
    judge.broken.clear()

    second = run(rows(2), config(server, judge, repeats=3), store=store, resume="latest")

    assert len(server.calls) == 6
    said = [(sample.rollout_id, sample.response) for sample in first.samples]
    assert [(sample.rollout_id, sample.response) for sample in second.samples] == said


def test_a_scorer_finds_what_preparing_left_in_the_sample(
    store: Path, server: MisbehavingServer
) -> None:
    judge = Judge("r0")

    def prepare(sample: Sample) -> list[Message]:
        sample.metadata["asked"] = "politely"
        return sample.messages

    seen: list[Any] = []

    def score(sample: Sample) -> float:
        seen.append((sample.metadata["asked"], sample.failure, sample.score))
        return judge(sample)

    evaluation = config(server, score, prepare_messages=prepare)
    run(rows(1), evaluation, store=store)
    judge.broken.clear()
    run(rows(1), evaluation, store=store, resume="latest")

    assert seen == [("politely", None, None)] * 2


def test_a_judge_that_refuses_the_key_costs_no_rollout(
    store: Path, server: MisbehavingServer
) -> None:
    judge = Judge()

    def score(sample: Sample) -> float:
        if not judge.broken:
            raise AccessDenied("401: no such key", status=401)
        return 1.0

    evaluation = config(server, score, concurrency=1)
    with pytest.raises(AccessDenied, match="no such key"):
        run(rows(3), evaluation, store=store)
    assert len(server.calls) == 1
    judge.broken.add("nobody")

    assert scores(run(rows(3), evaluation, store=store, resume="latest")) == [1.0] * 3
    assert len(server.calls) == 3


def test_scores_beside_a_judge_that_refuses_the_key_are_kept(store: Path) -> None:
    asked: list[str] = []
    scored: set[str] = set()
    refused = asyncio.Event()

    async def answer(sample: Sample) -> str:
        asked.append(sample.id)
        return "Hi"

    async def score(sample: Sample) -> float:
        scored.add(sample.id)
        while not refused.is_set():
            if sample.id == "r0" and len(scored) == 5:
                refused.set()
                raise AccessDenied("401: no such key", status=401)
            await asyncio.sleep(0)
        return 1.0

    evaluation = EvalConfig(agent=answer, score_fn=score)
    with pytest.raises(AccessDenied, match="no such key"):
        run(rows(5), evaluation, store=store)

    assert scores(run(rows(5), evaluation, store=store, resume="latest")) == [1.0] * 5
    assert sorted(asked) == [f"r{n}" for n in range(5)]


def test_a_run_that_was_stopped_for_its_scorer_is_completed_without_another_rollout(
    store: Path, server: MisbehavingServer
) -> None:
    with pytest.raises(RunStopped, match="its rollouts are kept"):
        run(rows(30), config(server, all_raise), store=store)
    assert len(server.calls) < 30

    report = run(rows(30), config(server, repaired), store=store, resume="latest")

    assert scores(report) == [0.75] * 30
    assert len(server.calls) == 30


def test_a_rollout_that_waits_for_its_score_when_the_run_is_given_up_is_kept(
    store: Path, server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.runner.early_stop._MAX_PROBES", 30)
    monkeypatch.setattr("assay.runner.early_stop._MAX_EQUAL_FAILURES", 31)
    down, asked = True, set[str]()

    async def judge(sample: Sample) -> float:
        if not down:
            return 0.5
        asked.add(sample.id)
        if int(sample.id.removeprefix("r")) >= 25:
            await asyncio.Event().wait()
        while len(asked) < 30:
            await asyncio.sleep(0)
        raise ConnectionError("the judge is down")

    evaluation = config(server, judge)
    with pytest.raises(RunStopped):
        run(rows(30), evaluation, store=store)
    assert len(server.calls) == 30
    down = False

    assert scores(run(rows(30), evaluation, store=store, resume="latest")) == [0.5] * 30
    assert len(server.calls) == 30


def test_a_rollout_that_waits_for_its_score_when_the_user_stops_the_run_is_kept(
    store: Path, server: MisbehavingServer
) -> None:
    stop, hangs = Stop(grace_s=0), True

    async def judge(sample: Sample) -> float:
        if hangs:
            stop.request()
            await asyncio.Event().wait()
        return 0.5

    evaluation = config(server, judge, concurrency=1, fail_on_error=True)
    assert run(rows(2), evaluation, store=store, stop=stop).interrupted
    with Store.open(store) as opened:
        (attempt,) = opened.run().attempts()
    assert (attempt.boundary, attempt.sample_id) == ("scorer", "r0")
    hangs = False

    assert scores(run(rows(2), evaluation, store=store, resume="latest")) == [0.5] * 2
    assert len(server.calls) == 2


def test_a_failed_agent_is_scored_as_failed_when_its_scorer_failed_first(store: Path) -> None:
    judge_is_down = True

    def fails(sample: Sample) -> str:
        raise ValueError("no map")

    def score(sample: Sample) -> float:
        if judge_is_down:
            raise ConnectionError("the judge is down")
        return 1.0 if sample.failure is None else 0.0

    failing = EvalConfig(agent=fails, score_fn=score, score_failures=True)
    run(rows(3), failing, store=store)
    judge_is_down = False

    resumed = run(rows(3), failing, store=store, resume="latest")

    options = RescoreOptions(score_failures=True)
    again = asyncio.run(rescore(resumed.run_id, score, store=store, options=options))
    rescored = asyncio.run(rescore(again.run_id, repaired, store=store))
    assert scores(resumed) == scores(again) == [0.0] * 3
    assert rescored.summary.failed == {"agent": 3}
