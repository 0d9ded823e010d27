"""Runs in which nothing can succeed, and limits of a run: they stop early and say why."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay.errors import (
    AccessDenied,
    ConfigError,
    GatewayFault,
    ReplayDifference,
    RunStopped,
    ScorerFault,
)
from assay.providers import ClientSettings
from assay.runner import EvalConfig, EvalReport, evaluate
from assay.runner.early_stop import EarlyStop, exceeds
from assay.scorers import judge
from assay.store import Store
from assay.types import Boundary, Endpoint, Failure, Sample
from assay.types.redaction import Redactor
from misbehaving import refused_port
from model_server import OK, Behaviour, ModelServer, answers
from runner_runs import ECHO, NO_RETRIES, right, rows, run, scripted

MANY = 500
POLITE = {
    "name": "polite",
    "description": "The answer is polite.",
    "criteria": [{"name": "polite", "description": "It is polite."}],
}


def stopped(dataset: Any, config: EvalConfig, **options: Any) -> RunStopped:
    with pytest.raises(RunStopped) as caught:
        run(dataset, config, **options)
    return caught.value


def served(config: dict[str, Any], *behaviours: Behaviour, store: Path) -> tuple[Exception, int]:
    """What stopped a run against a local server, and how many requests that took."""

    async def scenario() -> tuple[Exception, int]:
        async with ModelServer(*behaviours) as server:
            endpoint = server.endpoint()
            with pytest.raises(RunStopped) as caught:
                await evaluate(rows(MANY), EvalConfig(endpoint=endpoint, **config), store=store)
            return caught.value, len(server.asked)

    return asyncio.run(scenario())


def attempts(store: Path) -> int:
    with Store.open(store, create=False) as opened:
        return len(list(opened.run().attempts()))


@pytest.mark.parametrize("concurrency", [1, 100])
@pytest.mark.parametrize("status", [400, 404, 422, 500])
def test_a_model_that_refuses_every_call_ends_the_run_after_a_few(
    store: Path, status: int, concurrency: int
) -> None:
    refusal = answers({"error": {"message": "the model `ghost` does not exist"}}, status)
    settings = {"score_fn": right, "concurrency": concurrency, "client": NO_RETRIES}

    error, requests = served(settings, refusal, store=store)

    assert requests <= 15
    assert f"HTTP {status}: the model `ghost` does not exist" in str(error)
    assert "none of the first" in str(error)
    assert "hint:" in str(error)
    assert attempts(store) == requests


def test_what_was_stopped_is_recorded_and_can_be_resumed(store: Path) -> None:
    async def scenario() -> EvalReport:
        async with ModelServer(answers({}, 404)) as server:
            config = EvalConfig(endpoint=server.endpoint(), score_fn=lambda sample: 1.0)
            with pytest.raises(RunStopped):
                await evaluate(rows(30), config, store=store)
            server.behave(OK)
            return await evaluate(rows(30), config, store=store, resume="latest")

    report = asyncio.run(scenario())

    assert report.summary.judged_samples == 30
    assert report.summary.failed == {}


def test_a_refused_connection_ends_the_run_before_everything_was_tried(store: Path) -> None:
    with refused_port() as port:
        address = f"http://127.0.0.1:{port}/v1"
        endpoint = Endpoint(provider="vllm", model="m", api_base=address)
        config = EvalConfig(endpoint=endpoint, score_fn=right, client=NO_RETRIES)

        error = stopped(rows(MANY), config, store=store)

    assert "Connection refused" in str(error)
    assert attempts(store) <= 15


@pytest.mark.parametrize("concurrency", [1, 100])
def test_a_scorer_that_always_raises_ends_the_run_after_a_few_calls(
    store: Path, concurrency: int
) -> None:
    def score(sample: Sample) -> float:
        return float(sample.input["answr"])

    error, requests = served({"score_fn": score, "concurrency": concurrency}, OK, store=store)

    assert requests <= 15
    assert "KeyError: 'answr'" in str(error)
    assert "test_early_stop.py, line " in str(error)
    assert "scorer" in str(error)


def test_failures_that_differ_end_the_run_a_little_later(store: Path) -> None:
    def score(sample: Sample) -> float:
        raise ValueError(sample.id)

    error = stopped(rows(MANY), EvalConfig(endpoint=ECHO, score_fn=score), store=store)

    assert "ValueError: r" in str(error)
    assert 20 <= attempts(store) <= 40


@pytest.mark.parametrize("broken", ["prepare_messages", "environment"])
def test_code_that_never_gets_to_a_call_ends_the_run(store: Path, broken: str) -> None:
    def fail(sample: Sample) -> Any:
        raise LookupError("no such column")

    config = EvalConfig(endpoint=ECHO, score_fn=right, **{broken: fail})  # type: ignore[arg-type]

    assert "LookupError: no such column" in str(stopped(rows(MANY), config, store=store))


def test_a_run_that_ends_with_its_failures_is_not_cut_short(store: Path) -> None:
    def score(sample: Sample) -> float:
        raise ValueError("always")

    report = run(rows(5), EvalConfig(endpoint=ECHO, score_fn=score), store=store)

    assert report.summary.failed == {"scorer": 5}


def test_failures_beside_a_success_stop_nothing(store: Path) -> None:
    def score(sample: Sample) -> float:
        if sample.id != "r0":
            raise ValueError("always")
        return 1.0

    report = run(rows(100), EvalConfig(endpoint=ECHO, score_fn=score), store=store)

    assert (report.summary.judged_samples, report.summary.failed) == (1, {"scorer": 99})


def test_a_slow_success_among_fast_failures_is_waited_for(store: Path) -> None:
    async def score(sample: Sample) -> float:
        if sample.id == "r9":
            await asyncio.sleep(0.05)
            return 1.0
        if int(sample.id[1:]) < 9:
            await asyncio.sleep(0)
            raise ValueError("bad input")
        return 1.0

    report = run(rows(100), EvalConfig(endpoint=ECHO, score_fn=score), store=store)

    assert report.summary.failed == {"scorer": 9}


def test_the_samples_left_of_a_run_may_all_fail_on_their_own_account(store: Path) -> None:
    def score(sample: Sample) -> float:
        if int(sample.id[1:]) % 2:
            raise ValueError("odd")
        return 1.0

    config = EvalConfig(endpoint=ECHO, score_fn=score)
    run(rows(40), config, store=store)

    report = run(rows(40), config, store=store, resume="latest")

    assert report.summary.failed == {"scorer": 20}


def test_samples_in_flight_are_not_waited_for_after_many_equal_failures(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.runner.early_stop._PROBE_S", 0.0)

    async def score(sample: Sample) -> float:
        await asyncio.sleep(0.05)
        if int(sample.id[1:]) < 30:
            raise ValueError("always")
        await asyncio.Event().wait()
        raise AssertionError

    error = stopped(rows(100), EvalConfig(endpoint=ECHO, score_fn=score), store=store)

    assert "ValueError: always" in str(error)
    with Store.open(store) as opened:
        kinds = Counter(attempt.kind for attempt in opened.run().attempts())
    assert kinds["ValueError"] <= 30
    # Their rollouts are paid for, and kept to be scored when the run is resumed.
    assert set(kinds) == {"ValueError", "RunStopped"}


def test_samples_that_take_their_time_do_not_wait_for_each_other_for_long(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.runner.early_stop._PROBE_S", 0.01)
    together = asyncio.Event()
    started: list[str] = []

    async def score(sample: Sample) -> float:
        started.append(sample.id)
        if len(started) == 30:
            together.set()
        await together.wait()
        return 1.0

    report = run(rows(30), EvalConfig(endpoint=ECHO, score_fn=score), store=store)

    assert report.summary.judged_samples == 30


@pytest.mark.parametrize(
    ("failed", "limit", "total", "expected"),
    [
        (5, None, 10, False),
        (5, False, 10, False),
        (0, True, 10, False),
        (1, True, 10, True),
        (1, 1, 10, False),
        (2, 1, 10, True),
        (3, 3, None, False),
        (4, 3, None, True),
        (1, 0.1, 10, False),
        (2, 0.1, 10, True),
        (1, 0.05, 10, True),
        (9, 0.1, None, False),
    ],
)
def test_more_failures_than_allowed(
    failed: int, limit: float | None, total: int | None, expected: bool
) -> None:
    assert exceeds(failed, limit, total) is expected


def fails_at(*ids: str) -> Any:
    def score(sample: Sample) -> float:
        if sample.id in ids:
            raise ValueError(f"broken {sample.id}")
        return 1.0

    return score


@pytest.mark.parametrize(("limit", "ended"), [(True, 3), (1, 5), (0.02, 6)])
def test_a_run_stops_once_more_samples_failed_than_allowed(
    store: Path, limit: float, ended: int
) -> None:
    config = EvalConfig(
        endpoint=ECHO, score_fn=fails_at("r2", "r4", "r5"), concurrency=1, fail_on_error=limit
    )

    error = stopped(rows(100), config, store=store)

    assert f"fail_on_error={limit}" in str(error)
    assert f"broken r{ended - 1}" in str(error)
    with Store.open(store, create=False) as opened:
        assert len(list(opened.run().results())) == ended
        assert opened.run().status == "failed"


@pytest.mark.parametrize("limit", [None, False, 3, 0.03])
def test_a_run_with_few_enough_failures_completes(store: Path, limit: float | None) -> None:
    config = EvalConfig(
        endpoint=ECHO, score_fn=fails_at("r2", "r4", "r5"), concurrency=1, fail_on_error=limit
    )

    assert run(rows(100), config, store=store).summary.failed == {"scorer": 3}


def test_a_failure_of_the_last_sample_counts_as_well(store: Path) -> None:
    config = EvalConfig(endpoint=ECHO, score_fn=fails_at("r2"), fail_on_error=True)

    assert "1 of 3 samples failed" in str(stopped(rows(3), config, store=store))


def test_a_share_of_a_stream_is_known_at_its_end(store: Path) -> None:
    config = EvalConfig(endpoint=ECHO, score_fn=fails_at("r0"), fail_on_error=0.2)

    error = stopped(iter(rows(4)), config, store=store)

    assert "1 of 4 samples failed" in str(error)


@pytest.mark.parametrize("value", [0, -1, 1.0, 1.5, 0.0, "0.1", float("nan")])
def test_a_limit_of_failures_that_makes_no_sense_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="fail_on_error="):
        EvalConfig(endpoint=ECHO, score_fn=right, fail_on_error=value)


@pytest.mark.parametrize("value", [0, -1.0, True, "1", float("nan"), float("inf")])
def test_a_limit_of_costs_that_makes_no_sense_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="max_cost_usd="):
        EvalConfig(endpoint=ECHO, score_fn=right, max_cost_usd=value)


@pytest.fixture
def priced(tmp_path: Path) -> ClientSettings:
    """An echo of two words costs a dollar."""
    table = tmp_path / "prices.json"
    price = {"input": 0, "output": 500_000}
    table.write_text(json.dumps({"models": {"mock:echo": price, "mock:script": price}}))
    return ClientSettings(prices=table)


@pytest.mark.parametrize(("concurrency", "most"), [(1, 5), (100, 14)])
def test_no_sample_is_started_once_the_money_is_spent(
    store: Path, priced: ClientSettings, concurrency: int, most: int
) -> None:
    config = EvalConfig(
        endpoint=ECHO, score_fn=right, client=priced, max_cost_usd=5, concurrency=concurrency
    )

    error = stopped(rows(100), config, store=store)

    assert "max_cost_usd=5" in str(error)
    with Store.open(store, create=False) as opened:
        assert 5 <= opened.run().totals.recorded <= most


def test_what_failed_samples_cost_counts_as_well(store: Path, priced: ClientSettings) -> None:
    config = EvalConfig(
        endpoint=ECHO,
        score_fn=fails_at("r1", "r2", "r3"),
        client=priced,
        max_cost_usd=5,
        concurrency=1,
    )

    stopped(rows(100), config, store=store)

    assert attempts(store) == 3
    with Store.open(store, create=False) as opened:
        assert opened.run().totals.recorded == 2


def test_a_resumed_run_counts_what_it_had_cost(store: Path, priced: ClientSettings) -> None:
    def limited(dollars: float) -> EvalConfig:
        return EvalConfig(
            endpoint=ECHO, score_fn=right, client=priced, concurrency=1, max_cost_usd=dollars
        )

    stopped(rows(10), limited(3), store=store)
    stopped(rows(10), limited(3), store=store, resume="latest")
    stopped(rows(10), limited(5), store=store, resume="latest")

    with Store.open(store, create=False) as opened:
        assert opened.run().totals.recorded == 5


def test_a_rollout_that_is_scored_again_is_paid_for_once(
    store: Path, priced: ClientSettings
) -> None:
    broken = [True]

    def score(sample: Sample) -> float:
        if broken and sample.id != "r0":
            raise ValueError(sample.id)
        return 1.0

    config = EvalConfig(endpoint=ECHO, score_fn=score, client=priced, concurrency=1, max_cost_usd=5)
    run(rows(4), config, store=store)
    broken.clear()

    assert run(rows(4), config, store=store, resume="latest").summary.judged_samples == 4


def test_a_run_that_costs_just_the_limit_completes(store: Path, priced: ClientSettings) -> None:
    config = EvalConfig(endpoint=ECHO, score_fn=right, client=priced, max_cost_usd=5)

    assert run(rows(5), config, store=store).summary.judged_samples == 5


def test_a_limit_for_a_model_without_a_price_is_refused_before_the_first_call(store: Path) -> None:
    config = EvalConfig(endpoint=ECHO, score_fn=right, max_cost_usd=1)

    with pytest.raises(ConfigError, match="the price of 'mock:echo' is unknown"):
        run(rows(1), config, store=store)

    assert not store.exists()


def test_a_cost_that_turns_unknown_ends_the_run(store: Path, tmp_path: Path) -> None:
    table = tmp_path / "prices.json"
    table.write_text(
        json.dumps({"models": {"mock:echo": {"input": 1, "output": 1, "input_limit": 3}}})
    )
    dataset = [{"id": str(n), "question": "word " * n, "answer": ""} for n in range(1, 9)]
    config = EvalConfig(
        endpoint=ECHO,
        score_fn=right,
        client=ClientSettings(prices=table),
        max_cost_usd=1,
        concurrency=1,
    )

    error = stopped(dataset, config, store=store)

    assert "the cost of a model call is unknown" in str(error)
    with Store.open(store, create=False) as opened:
        assert opened.run().totals.recorded == 4


def test_a_limit_is_refused_for_a_run_whose_cost_is_unknown(
    store: Path, priced: ClientSettings
) -> None:
    run(rows(2), EvalConfig(endpoint=ECHO, score_fn=right), store=store)
    config = EvalConfig(endpoint=ECHO, score_fn=right, client=priced, max_cost_usd=5)

    with pytest.raises(ConfigError, match="the cost of 2 recorded samples is unknown"):
        run(rows(4), config, store=store, resume="latest")


def test_the_limits_are_not_part_of_the_fingerprint() -> None:
    plain = EvalConfig(endpoint=ECHO, score_fn=right)
    limited = EvalConfig(endpoint=ECHO, score_fn=right, fail_on_error=0.1, max_cost_usd=3)

    assert plain.fingerprint() == limited.fingerprint()


def test_a_refused_key_still_ends_the_run_at_once(store: Path) -> None:
    denied = scripted({"error": {"status": 401}}, loop=True)

    with pytest.raises(Exception, match="HTTP 401"):
        run(rows(50), EvalConfig(endpoint=denied, score_fn=right), store=store)

    assert attempts(store) == 0


def test_a_judge_that_refuses_the_key_ends_the_run_at_once_and_keeps_the_rollouts(
    store: Path,
) -> None:
    denied = scripted({"error": {"status": 401}}, loop=True)
    config = EvalConfig(endpoint=ECHO, score_fn=judge(POLITE, denied), concurrency=4)

    with pytest.raises(AccessDenied, match="HTTP 401"):
        run(rows(MANY), config, store=store)

    kept = attempts(store)
    assert 1 <= kept <= 8


def test_a_judge_that_forbids_one_input_does_not_end_the_run(store: Path) -> None:
    """A provider's filter answers 403 for the text that it does not like."""

    def forbid_some(sample: Sample) -> float:
        if sample.id in ("r0", "r1"):
            raise AccessDenied("the content is not allowed", status=403)
        return 1.0

    config = EvalConfig(endpoint=ECHO, score_fn=forbid_some, concurrency=1)
    report = run(rows(20), config, store=store)

    assert (report.summary.judged_samples, report.summary.failed) == (18, {"scorer": 2})


def test_a_judge_that_forbids_everything_ends_the_run(store: Path) -> None:
    def forbid(sample: Sample) -> float:
        raise AccessDenied("the account is blocked", status=403)

    with pytest.raises(AccessDenied, match="the account is blocked"):
        run(rows(MANY), EvalConfig(endpoint=ECHO, score_fn=forbid, concurrency=1), store=store)

    assert attempts(store) == 5


def test_the_reason_on_screen_shows_no_secret_that_a_scorer_quotes(store: Path) -> None:
    key = "quoted-77-key-88"

    def quoting(sample: Sample) -> float:
        raise ScorerFault(f"the judge refused {key}", where=f"key {key}", hint=f"renew {key}")

    held = Redactor([key])
    told = str(stopped(rows(30), EvalConfig(endpoint=ECHO, score_fn=quoting), store=store))

    assert key not in told
    assert "the judge refused [redacted]" in told
    del held


def test_a_gateway_that_always_fails_ends_the_run_with_a_hint() -> None:
    early = EarlyStop()
    error = GatewayFault("the gateway stopped")

    for _ in range(5):
        early.fail(error, Failure.of(error, Boundary.GATEWAY))

    assert early.is_hopeless
    assert early.build_hopeless_error().hint is not None


def test_differences_from_a_recording_never_end_a_run() -> None:
    early = EarlyStop()
    error = ReplayDifference("call 1 differs")

    for _ in range(30):
        assert early.fail(error, Failure.of(error, Boundary.REPLAY)) is None

    assert not early.is_hopeless
