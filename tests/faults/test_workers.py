"""Several processes on one run: killed, interrupted, refused, and limited together."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.store import Store
from misbehaving import PATIENCE_S, Exchange, MisbehavingServer
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


class Gate:
    """Answers so many calls; the others wait until it is opened."""

    def __init__(self, server: MisbehavingServer, *, answered: int) -> None:
        self._left = answered
        self._is_open = False
        server.react = self._react

    def open(self) -> None:
        self._is_open = True

    async def _react(self, exchange: Exchange) -> None:
        self._left -= 1
        waits = self._left < 0
        while waits and not self._is_open:
            if exchange.is_gone:
                return
            await asyncio.sleep(0.005)
        await exchange.echo()


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


def test_the_concurrency_is_the_limit_of_all_workers_together(
    folder: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    most = 0

    async def count(exchange: Exchange) -> None:
        nonlocal most
        most = max(most, server.at_once)
        await takes_a_moment(exchange)

    server.react = count
    command = start(
        assay(
            *("eval", "evaluation.py", "--workers", 4, "--concurrency", 10),
            *("--max-samples", 120, "--store", store),
        )
    )

    assert command.ended() == 0, command.stderr
    assert 4 <= most <= 10


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
    waiting = start(assay("runs", "wait", "nightly", "--timeout", 300, "--store", store))
    shards[1].kill()
    again = shard(2)

    assert [each.ended() for each in (shards[0], shards[2], again)] == [0, 0, 0], again.stderr
    assert waiting.ended() == 0, waiting.stderr
    assert "samples       300, 300 judged" in waiting.stdout
    assert Recorded(store).results == ALL
