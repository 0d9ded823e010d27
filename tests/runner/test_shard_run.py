"""`run_shard`: parts of one run, in any order, at once and again."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.datasets import SampleStream, load_samples
from assay.errors import ConfigError, RunStopped
from assay.providers import ClientSettings
from assay.runner import EvalConfig, Shard, ShardReport, run_shard
from assay.runner.peers import Peers
from assay.runner.shared_budget import BudgetLedger, SharedBudget
from assay.store import Store
from assay.types import Sample
from runner_runs import ECHO, NO_RETRIES, right, rows, run, scripted

CONFIG = EvalConfig(endpoint=ECHO, score_fn=right)


def shard(number: int, count: int, store: Path, dataset: Any = None, **options: Any) -> ShardReport:
    config = options.pop("config", CONFIG)
    part = Shard("nightly", number, count, **options)
    return asyncio.run(run_shard(dataset or rows(20), config, part, store=store))


def test_shards_in_any_order_and_again_record_every_sample_once(store: Path) -> None:
    third = shard(3, 3, store)
    assert third.run.status == "interrupted"
    first, again, second = (shard(number, 3, store) for number in (1, 3, 2))

    assert third.done + first.done + second.done == 20
    assert (again.done, again.failed) == (0, 0)
    assert second.run.status == "completed"
    assert second.run.totals.recorded == 20
    with Store.open(store) as opened:
        found = [row.sample_id for row in opened.run("nightly").results()]
    assert found == [f"r{number}" for number in range(20)]


def test_shards_at_once_leave_one_complete_run(store: Path) -> None:
    async def work() -> list[ShardReport]:
        parts = [Shard("nightly", number, 4) for number in (1, 2, 3, 4, 4)]
        return await asyncio.gather(
            *(run_shard(rows(40), CONFIG, part, store=store) for part in parts)
        )

    ended = asyncio.run(work())

    assert sum(report.done for report in ended) == 40
    with Store.open(store) as opened:
        row = opened.run("nightly").row()
    assert (row.status, row.totals.recorded) == ("completed", 40)


def test_another_number_of_shards_finishes_the_same_run(store: Path) -> None:
    shard(1, 7, store)

    assert shard(1, 1, store).run.status == "completed"


def test_a_stream_of_unknown_length_is_counted_by_the_shard_that_reads_it(store: Path) -> None:
    def stream() -> Iterator[dict[str, Any]]:
        yield from rows(9)

    shard(1, 2, store, stream())
    ended = shard(2, 2, store, stream())

    assert (ended.run.spec.total, ended.run.status) == (9, "completed")


def test_repeats_of_a_sample_are_in_one_shard(store: Path) -> None:
    config = replace(CONFIG, repeats=3)
    ended = [shard(number, 2, store, config=config) for number in (1, 2)]

    assert [report.done % 3 for report in ended] == [0, 0]
    assert ended[1].run.status == "completed"


def test_a_failed_sample_is_done_again_by_its_shard_only(store: Path) -> None:
    def raises_once(sample: Sample) -> bool:
        if sample.id == "r3" and not passed:
            passed.append(True)
            raise ValueError("first time")
        return True

    passed: list[bool] = []
    config = replace(CONFIG, score_fn=raises_once)
    ended = [shard(number, 2, store, config=config) for number in (1, 2)]
    assert sorted(report.failed for report in ended) == [0, 1]
    assert ended[1].run.status == "completed"
    owner = 1 if ended[0].failed else 2

    assert shard(3 - owner, 2, store, config=config).done == 0
    again = shard(owner, 2, store, config=config)
    assert (again.done, again.run.totals.failed, again.run.status) == (1, 0, "completed")


def test_another_configuration_does_not_join_the_run(store: Path) -> None:
    shard(1, 2, store)

    with pytest.raises(ConfigError, match="the configuration differs"):
        shard(2, 2, store, config=replace(CONFIG, endpoint=scripted("hello")))


def test_a_changed_dataset_does_not_join_the_run_unless_it_is_allowed(
    store: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data.csv"
    data.write_text("id,question,answer\n1,a,a\n2,b,b\n")
    shard(1, 2, store, data)
    data.write_text("id,question,answer\n1,a,a\n2,b,b\n3,c,c\n")

    with pytest.raises(ConfigError, match="the dataset changed"):
        shard(2, 2, store, data)
    assert shard(2, 2, store, data, allow_changed_dataset=True).run.spec.total == 3


def test_a_shard_with_another_number_of_samples_does_not_join_the_run(store: Path) -> None:
    shard(1, 2, store, config=replace(CONFIG, max_samples=10))

    with pytest.raises(ConfigError, match="run has 10 samples, but this shard would read 20"):
        shard(2, 2, store)

    assert shard(2, 2, store, config=replace(CONFIG, max_samples=10)).run.status == "completed"
    again = shard(1, 2, store, allow_changed_dataset=True)
    assert again.done
    assert (again.run.spec.total, again.run.status) == (20, "interrupted")
    # The workers of one command extend a run, as one process does.
    more = shard(1, 1, store, rows(30), is_worker=True)
    assert (more.run.spec.total, more.run.totals.recorded) == (30, 30)


def test_a_worker_does_not_check_again_what_its_command_has_checked(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any, **options: Any) -> None:
        raise AssertionError("the samples were counted")

    monkeypatch.setattr("assay.runner.evaluation._count_samples", refuse)

    assert shard(1, 1, store, is_worker=True, total=20).run.status == "completed"
    with pytest.raises(AssertionError, match="the samples were counted"):
        shard(1, 1, store)


def test_a_shard_that_reads_another_number_of_a_stream_says_so_at_its_end(store: Path) -> None:
    shard(1, 2, store, iter(rows(9)))

    with pytest.raises(ConfigError, match=r"shard 2/2 read 8 samples .* another shard read 9"):
        shard(2, 2, store, iter(rows(8)))


def test_shards_over_rows_of_which_some_are_skipped_complete_the_run(store: Path) -> None:
    def stream() -> SampleStream:
        return load_samples([*rows(9), {"nothing": "of use"}], on_bad_row="skip")

    shard(1, 2, store, stream())
    ended = shard(2, 2, store, stream())

    assert (ended.run.spec.total, ended.run.status) == (9, "completed")


def test_a_shard_in_which_nothing_succeeds_stops_unless_another_succeeds(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def score(sample: Sample) -> bool:
        if Shard("", 1, 2).has(sample.id):
            raise ValueError("always")
        return True

    config = replace(CONFIG, score_fn=score, concurrency=4, client=NO_RETRIES)

    async def work() -> list[ShardReport]:
        parts = [Shard("both", number, 2) for number in (2, 1)]
        return await asyncio.gather(
            *(run_shard(rows(100), config, part, store=store) for part in parts)
        )

    monkeypatch.setattr("assay.runner.early_stop._PEERS_S", 60.0)
    good, bad = asyncio.run(work())
    assert (good.failed, bad.done, good.done + bad.failed) == (0, 0, 100)

    monkeypatch.setattr("assay.runner.early_stop._PEERS_S", 0.0)
    with pytest.raises(RunStopped, match=r"none of the first \d samples succeeded"):
        shard(1, 2, store, rows(100), config=config)


def test_shards_in_which_nothing_succeeds_stop_together(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def score(sample: Sample) -> bool:
        raise ValueError("always")

    async def work() -> list[ShardReport | BaseException]:
        config = replace(CONFIG, score_fn=score, concurrency=4, client=NO_RETRIES)
        parts = [Shard("both", number, 2) for number in (1, 2)]
        return await asyncio.gather(
            *(run_shard(rows(100), config, part, store=store) for part in parts),
            return_exceptions=True,
        )

    # Long before this is over: the failures of the other one confirm its own.
    monkeypatch.setattr("assay.runner.early_stop._PEERS_S", 600.0)
    ended = asyncio.run(work())

    assert all(isinstance(each, RunStopped) for each in ended)
    with Store.open(store) as opened:
        assert opened.run("both").totals.attempts < 30


def test_peers_count_what_others_recorded_and_not_their_own(store: Path) -> None:
    shard(1, 2, store)
    with Store.open(store) as opened:
        peers = Peers(opened.run("nightly"), count=2)
        assert not peers.has_success()

        shard(2, 2, store)

        assert peers.has_success()
        peers._before_usd, peers._recorded_usd, peers.own_usd = 1.0, 4.0, 1.0
        assert peers.spent_usd == 2.0
        peers.own_usd = 4.0
        assert peers.spent_usd == 0.0


def test_the_failures_of_other_shards_count_towards_the_limit(store: Path) -> None:
    def refuse(sample: Sample) -> float:
        assert int(sample.id[1:]) % 2, "even"
        return 1.0

    config = replace(CONFIG, score_fn=refuse, concurrency=1)
    failed = shard(1, 2, store, config=config).failed
    assert failed > 2
    limited = replace(config, fail_on_error=failed + 1)

    with pytest.raises(RunStopped, match=rf"fail_on_error={failed + 1}: {failed + 2} of 20"):
        shard(2, 2, store, config=limited, failed_before=0)

    # Those of an earlier execution do not count.
    assert shard(2, 2, store, config=limited).failed


def test_the_cost_of_other_shards_counts_towards_the_limit(store: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text('{"models": {"mock:echo": {"input": 1000, "output": 1000}}}')
    client = ClientSettings(prices=prices)
    paid = replace(CONFIG, client=client, concurrency=1)
    whole = run(rows(20), paid, store=store).summary.cost_usd.value
    assert whole
    limited = replace(paid, max_cost_usd=whole * 0.75)

    first = shard(1, 2, store, config=limited)
    assert first.done
    with pytest.raises(RunStopped, match="max_cost_usd"):
        shard(2, 2, store, config=limited)

    with Store.open(store) as opened:
        totals = opened.run("nightly").totals
    assert totals.cost_usd is not None
    assert 0.7 * whole < totals.cost_usd < 0.9 * whole


@pytest.mark.parametrize("spent", [0.0, 2.0])
def test_a_worker_ends_when_all_its_samples_failed_or_the_budget_is_spent(
    spent: float, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text('{"models": {"mock:echo": {"input": 1, "output": 1}}}')

    def fail(sample: Sample) -> float:
        raise ValueError(sample.id)

    budget = SharedBudget()
    ledger = BudgetLedger(1.0, spent, send=lambda worker, message: budget.receive(message))
    budget.open(lambda message: ledger.receive(1, message))
    monkeypatch.setattr("assay.runner.peers.BUDGET", budget)
    # Without the end of probing after a while, which would wake tasks that wait for their turn.
    monkeypatch.setattr("assay.runner.early_stop._PROBE_S", 60.0)
    client = ClientSettings(prices=prices)
    config = replace(CONFIG, score_fn=fail, client=client, max_cost_usd=1.0, concurrency=20)
    part = Shard("nightly", 1, 1, is_worker=True)

    async def execute() -> ShardReport:
        async with asyncio.timeout(10):
            return await run_shard(rows(3), config, part, store=store)

    if spent:
        with pytest.raises(RunStopped, match="max_cost_usd"):
            asyncio.run(execute())
    else:
        assert asyncio.run(execute()).failed == 3
    assert not ledger._in_flight.total()
