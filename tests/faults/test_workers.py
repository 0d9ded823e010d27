"""Several processes on one run: killed, interrupted, refused, and limited together."""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.store import Store
from misbehaving import PATIENCE_S, Exchange, Gate, MisbehavingServer
from processes import Evaluation, Recorded, assay, names, write_rows

Start = Callable[..., Evaluation]
ALL = names(300)

EVALUATION = """
from assay.runner import EvalConfig
from assay.types import Endpoint


def score(sample):
    return sample.response == sample.ground_truth


config = EvalConfig(
    endpoint=Endpoint(provider="openai", model="m", api_base={url!r}, api_key="k"),
    score_fn=score,
    concurrency=20,
)
dataset = "data.jsonl"
"""


@pytest.fixture
def folder(tmp_path: Path, server: MisbehavingServer) -> Path:
    write_rows(tmp_path / "data.jsonl", ALL)
    (tmp_path / "evaluation.py").write_text(EVALUATION.format(url=server.url))
    return tmp_path


def find_workers(parent: int) -> list[int]:
    """The ids of the living child processes of a process."""
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(each) for each in found]


def count_recorded(store: Path) -> int:
    try:
        with Store.open(store, create=False) as opened:
            return opened.run().totals.recorded
    except Exception:
        return 0  # the store or its run does not exist yet


def wait_for_recorded(store: Path, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while count_recorded(store) < count:
        assert time.monotonic() < deadline, "too few samples were recorded"
        time.sleep(0.01)


async def takes_a_moment(exchange: Exchange) -> None:
    await asyncio.sleep(0.05)
    await exchange.echo()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_killed_worker_loses_only_the_samples_in_flight(
    seed: int, folder: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    chance = random.Random(seed)
    answered = chance.randrange(1, 200)
    gate = Gate(server, answered=answered)
    command = start(assay("eval", "evaluation.py", "--workers", 2, "--store", store))
    wait_for_recorded(store, answered)
    server.wait_until(lambda: server.at_once == 20)

    os.kill(chance.choice(find_workers(command.pid)), signal.SIGKILL)
    command.wait_for_stderr("was ended by signal 9; restarting it")
    gate.open()

    assert command.ended() == 0, command.stderr
    assert Recorded(store).results == ALL
    assert Recorded(store).status == "completed"
    # Those in flight at the worker: its half of the 20.
    assert (server.asked() - Counter(ALL)).total() == 10


def test_a_worker_that_is_killed_each_time_ends_the_run_with_a_way_to_resume(
    folder: Path, store: Path, start: Start
) -> None:
    text = (folder / "evaluation.py").read_text()
    kills = text.replace(
        "    return", "    if sample.id == 'r7':\n        os.kill(os.getpid(), 9)\n    return"
    )
    (folder / "evaluation.py").write_text(f"import os\n{kills}")

    command = start(assay("eval", "evaluation.py", "--workers", 2, "--store", store))

    assert command.ended() == 3
    assert "was ended by signal 9, 4 times" in command.stderr
    assert "--workers 2 --resume" in command.stderr


def test_ctrl_c_ends_all_workers_after_their_samples_and_the_run_is_resumed(
    folder: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    gate = Gate(server, answered=60)
    command = start(assay("eval", "evaluation.py", "--workers", 2, "--store", store))
    server.wait_until(lambda: server.at_once == 20)

    command.send(signal.SIGINT)
    command.wait_for_stderr("stopping: ")
    gate.open()

    assert command.ended() == 130, command.stderr
    assert command.stderr.count("stopping: samples in flight have 30 s to end") == 1
    recorded = Recorded(store)
    assert recorded.status == "interrupted"
    # Nothing was cut off: each call has its result.
    assert server.asked() == Counter(recorded.results)
    resumed = start(
        assay("eval", "evaluation.py", "--workers", 3, "--store", store, "--resume", "latest")
    )
    assert resumed.ended() == 0, resumed.stderr
    assert server.asked() == Counter(ALL)
    assert Recorded(store).results == ALL


def test_ctrl_c_while_the_workers_start_ends_them_without_a_run_or_a_traceback(
    folder: Path, store: Path, start: Start
) -> None:
    waits = "import sys, time\nif 'assay.cli.eval_worker' in sys.modules:\n    time.sleep(60)\n"
    text = (folder / "evaluation.py").read_text()
    (folder / "evaluation.py").write_text(waits + text)
    command = start(assay("eval", "evaluation.py", "--workers", 2, "--store", store))
    deadline = time.monotonic() + PATIENCE_S
    while len(find_workers(command.pid)) < 2:
        assert time.monotonic() < deadline, "no workers were started"
        time.sleep(0.001)

    # At once: the interpreters of the workers are still starting.
    command.send(signal.SIGINT)

    assert command.ended() == 130, command.stderr
    assert command.stderr.splitlines() == [
        "stopping: samples in flight have 30 s to end; press Ctrl-C again to stop now",
        "interrupted before the run was started; nothing was recorded",
    ]


def test_a_second_ctrl_c_stops_all_workers_now(
    folder: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    Gate(server, answered=40)
    command = start(assay("eval", "evaluation.py", "--workers", 2, "--store", store))
    server.wait_until(lambda: server.at_once == 20)

    command.send(signal.SIGINT)
    command.wait_for_stderr("stopping: ")
    command.send(signal.SIGINT)

    assert command.ended() == 130, command.stderr
    server.wait_until(lambda: server.open == 0)
    assert Recorded(store).status == "interrupted"


def test_workers_end_with_their_command(
    folder: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    gate = Gate(server, answered=60)
    command = start(assay("eval", "evaluation.py", "--workers", 2, "--store", store))
    server.wait_until(lambda: server.at_once == 20)
    assert len(find_workers(command.pid)) == 2

    command.kill()
    # Each call in flight ends; a worker that went on would make others.
    gate.open()

    server.wait_until(lambda: server.open == 0)
    resumed = start(assay("eval", "evaluation.py", "--resume", "--take-over", "--store", store))
    assert resumed.ended() == 0, resumed.stderr
    assert Recorded(store).results == ALL


def change_evaluation(folder: Path, old: str, new: str) -> None:
    path = folder / "evaluation.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ("concurrency=20", ("--concurrency", 50)),
        ("concurrency=400, client=assay.ClientSettings(concurrency=50)", ()),
    ],
)
def test_the_concurrency_is_the_limit_of_all_workers_together(
    setting: str,
    option: tuple[object, ...],
    folder: Path,
    store: Path,
    server: MisbehavingServer,
    start: Start,
) -> None:
    change_evaluation(folder, "concurrency=20", setting)
    change_evaluation(folder, "\nfrom", "\nimport assay.providers as assay\nfrom")
    most = 0

    async def count(exchange: Exchange) -> None:
        nonlocal most
        most = max(most, server.at_once)
        # Held until the limit is reached: the workers must use it, and not exceed it.
        while server.at_once < 50 and len(server.calls) < 200 and not exchange.is_gone:
            await asyncio.sleep(0.005)
        await takes_a_moment(exchange)

    server.react = count
    command = start(assay("eval", "evaluation.py", "--workers", 4, *option, "--store", store))

    assert command.ended() == 0, command.stderr
    assert most == 50


def test_a_refusal_of_one_worker_lowers_the_limit_of_all(
    folder: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    write_rows(folder / "data.jsonl", names(600))
    change_evaluation(folder, "concurrency=20", "concurrency=400")
    in_flight: list[int] = []
    refused = False

    async def refuse_one(exchange: Exchange) -> None:
        nonlocal refused
        in_flight.append(server.at_once)
        # Held until all workers are there: they start with 20 together.
        while not refused and server.at_once < 20 and not exchange.is_gone:
            await asyncio.sleep(0.005)
        if not refused:
            refused = True
            await exchange.answer(429, {"error": {"message": "slow down"}})
        else:
            await takes_a_moment(exchange)

    server.react = refuse_one
    command = start(assay("eval", "evaluation.py", "--workers", 4, "--store", store))

    assert command.ended() == 0, command.stderr
    # All of them are at half or less of what they had, and do not grow for a while. Had one worker
    # alone learned from the refusal, the others would have doubled.
    lowest = min(max(in_flight[first : first + 40]) for first in range(100, 400))
    assert lowest <= 20
    assert Recorded(store).results == names(600)


def test_workers_adapt_together_to_a_server_that_refuses_above_50(
    folder: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    write_rows(folder / "data.jsonl", names(500))
    change_evaluation(folder, "concurrency=20", "concurrency=400")
    refused = most = 0

    async def bear_50(exchange: Exchange) -> None:
        nonlocal refused, most
        most = max(most, server.at_once)
        if server.at_once > 50:
            refused += 1
            await exchange.answer(429, {"error": {"message": "slow down"}}, Retry_After="0.1")
        else:
            # Long beside the delays of a busy machine: a limiter does not grow while answers take
            # twice as long as before.
            await asyncio.sleep(0.3)
            await exchange.echo()

    server.react = bear_50
    command = start(assay("eval", "evaluation.py", "--workers", 4, "--store", store))

    assert command.ended() == 0, command.stderr
    assert Recorded(store).results == names(500)
    assert most > 50
    # How many at first depends on how quickly this machine hears of the first refusal. Workers that
    # did not adapt would be refused several times for each sample.
    assert refused < 500, refused


@pytest.mark.parametrize("limit", ["100", "0.4"])
def test_failures_of_all_workers_count_towards_the_limit_of_the_run(
    limit: str, folder: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    change_evaluation(folder, "    return", "    assert int(sample.id[1:]) % 2, 'even'\n    return")

    command = start(
        assay(
            *("eval", "evaluation.py", "--workers", 4, "--fail-on-error", limit),
            *("--store", store),
        )
    )

    # Half of the 300 fail: in no worker alone as many as that.
    assert command.ended() == 3
    assert f"the run was stopped by fail_on_error={limit}" in command.stderr
    assert Recorded(store).status == "failed"


@pytest.mark.parametrize("limit", [50, 100])
def test_a_limit_on_cost_is_as_exact_as_in_one_process(
    limit: int, folder: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    # Each call has five and two tokens, and costs a dollar.
    prices = {"models": {"openai:m": {"input": 100_000, "output": 250_000}}}
    (folder / "prices.json").write_text(json.dumps(prices))
    priced = "concurrency=20, client=assay.ClientSettings(prices='prices.json')"
    change_evaluation(folder, "concurrency=20", priced)
    change_evaluation(folder, "\nfrom", "\nimport assay.providers as assay\nfrom")
    server.react = takes_a_moment

    def evaluate(*options: object) -> Evaluation:
        command = start(assay("eval", "evaluation.py", "--store", store, *options))
        command.ended()
        return command

    stopped = evaluate("--workers", 4, "--max-cost-usd", limit)
    assert stopped.ended() == 3
    assert f"max_cost_usd={limit}: the model calls of this run cost ${limit}.0000" in stopped.stderr
    assert len(server.calls) == limit
    assert len(Recorded(store).results) == limit

    # The limit is that of the run, also when it is resumed.
    resumed = evaluate("--workers", 2, "--max-cost-usd", 2 * limit, "--resume", "latest")
    assert resumed.ended() == 3
    assert len(server.calls) == 2 * limit
    whole = evaluate("--workers", 2, "--max-cost-usd", 1000, "--resume", "latest")
    assert whole.ended() == 0, whole.stderr
    assert server.asked() == Counter(ALL)


def test_a_refused_key_ends_all_workers_with_one_message(
    folder: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(401, {"error": {"message": "no such key"}})

    server.react = refuse
    command = start(assay("eval", "evaluation.py", "--workers", 2, "--store", store))

    assert command.ended() == 3
    assert command.stderr.count("no such key") == 1
    assert len(server.calls) <= 40
    assert Recorded(store).status == "failed"


def test_a_wrong_configuration_is_refused_once_and_nothing_is_called(
    folder: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    (folder / "data.jsonl").write_text("not JSON\n")

    command = start(assay("eval", "evaluation.py", "--workers", 3, "--store", store))

    assert command.ended() == 2
    assert command.stderr.count("data.jsonl:1") == 1
    assert not server.calls


def test_shards_in_processes_of_their_own_finish_one_run(
    folder: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    server.react = takes_a_moment

    def shard(number: int) -> Evaluation:
        words = ("eval", "evaluation.py", "--run", "nightly", "--shard", f"{number}/3")
        return start(assay(*words, "--store", store))

    shards = [shard(number) for number in (1, 2, 3)]
    wait_for_recorded(store, 60)
    waiting = start(assay("runs", "wait", "nightly", "--timeout-s", 300, "--store", store))
    shards[1].kill()
    again = shard(2)

    assert [each.ended() for each in (shards[0], shards[2], again)] == [0, 0, 0], again.stderr
    assert waiting.ended() == 0, waiting.stderr
    assert "samples       300, 300 judged" in waiting.stdout
    assert Recorded(store).results == ALL
