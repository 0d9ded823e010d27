"""Commands that are asked to end: by Ctrl-C, by a scheduler, once or twice."""

import asyncio
import json
import re
import shlex
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError, StoreError
from assay.types import Message, Sample
from misbehaving import Exchange, MisbehavingServer
from processes import Evaluation, Recorded, assay, names, write_rows

Start = Callable[..., Evaluation]
DONE, HELD, NEVER = names(20, "done"), names(5, "held"), names(50, "never")
ALL = [*DONE, *HELD, *NEVER]

FILE = """
from assay.runner import EvalConfig
from assay.types import Endpoint


def right(sample):
    return sample.response == sample.ground_truth


config = EvalConfig(
    endpoint=Endpoint(provider="openai", model="m", api_base="{url}", api_key="k-1"),
    score_fn=right,
    concurrency=5,
)
dataset = "data.jsonl"
"""


class Gate:
    """Lets the calls that are in flight when the signal comes wait until it is opened."""

    def __init__(self) -> None:
        self.is_open = threading.Event()

    async def react(self, exchange: Exchange) -> None:
        while exchange.call.sample in HELD and not self.is_open.is_set():
            if exchange.is_gone:
                return
            await asyncio.sleep(0.005)
        await exchange.echo()


@pytest.fixture
def gate(server: MisbehavingServer) -> Gate:
    gate = Gate()
    server.react = gate.react
    return gate


@pytest.fixture
def file(tmp_path: Path, server: MisbehavingServer) -> Path:
    write_rows(tmp_path / "data.jsonl", ALL)
    file = tmp_path / "capitals.py"
    file.write_text(FILE.format(url=server.url))
    return file


@pytest.fixture
def in_flight(
    file: Path, store: Path, server: MisbehavingServer, gate: Gate, start: Start
) -> Evaluation:
    """A command of which 20 samples are done, and 5 wait for their answers."""
    command = start(assay("eval", file, "--store", store, "--json"))
    server.wait_until(lambda: server.at_once == len(HELD) or command.has_ended)
    assert server.at_once == len(HELD), command.stderr
    return command


def asked_to_end(command: Evaluation, number: signal.Signals, answer: str) -> None:
    """Send a signal and wait for the command to say that it has understood."""
    command.send(number)
    command.wait_for_stderr(answer)


def resumed(command: Evaluation, server: MisbehavingServer, start: Start) -> Any:
    """Do what the command says to do next; what it prints."""
    server.react = Exchange.echo
    (words,) = re.findall(r"^\s*assay (eval .*--resume \S+)$", command.stderr, re.MULTILINE)
    again = start(assay(*shlex.split(words), "--json"))
    assert again.ended() == 0, again.stderr
    return json.loads(again.stdout)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_once_it_finishes_what_is_in_flight_and_says_how_to_go_on(
    in_flight: Evaluation,
    store: Path,
    server: MisbehavingServer,
    gate: Gate,
    number: signal.Signals,
) -> None:
    asked_to_end(in_flight, number, "stopping: samples in flight")
    gate.is_open.set()

    assert in_flight.ended() == 130
    report = json.loads(in_flight.stdout)
    assert report["interrupted"]
    assert report["summary"]["judged_samples"] == len(DONE) + len(HELD)
    assert report["failed"] == 0
    assert server.asked() == Counter([*DONE, *HELD])
    recorded = Recorded(store)
    assert recorded.results == [*DONE, *HELD]
    assert recorded.status == "interrupted"
    assert "--resume" in in_flight.stderr


def test_asked_twice_it_stops_at_once_and_leaves_no_trace_of_what_was_in_flight(
    in_flight: Evaluation, store: Path, server: MisbehavingServer, start: Start
) -> None:
    asked_to_end(in_flight, signal.SIGINT, "stopping: samples in flight")
    asked_to_end(in_flight, signal.SIGTERM, "stopping now")

    assert in_flight.ended() == 130
    recorded = Recorded(store)
    assert recorded.results == DONE
    assert recorded.attempts == {}
    assert recorded.status == "interrupted"
    calls = len(server.calls)
    assert resumed(in_flight, server, start)["summary"]["judged_samples"] == len(ALL)
    assert server.asked(calls) == Counter([*HELD, *NEVER])
    assert Recorded(store).results == ALL


STUCK = """
import sys
import time

from assay.runner import EvalConfig
from assay.types import Endpoint


def rows():
    for n in range(3):
        yield {"id": f"q{n}", "question": "?"}
    if "--resume" not in sys.argv:
        print("stuck", flush=True)
        time.sleep(600)


config = EvalConfig(
    endpoint=Endpoint(provider="mock", model="echo"), score_fn=lambda sample: 1.0, concurrency=1
)
dataset = rows()
"""


@pytest.mark.parametrize("times", [2, 3])
def test_it_ends_though_the_users_own_code_does_not_and_says_how_to_go_on(
    tmp_path: Path, store: Path, server: MisbehavingServer, start: Start, times: int
) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    command = start(assay("eval", tmp_path / "stuck.py", "--store", store))
    command.wait_for_stderr("stuck")
    # The third signal ends the process at once: what the writer has not taken up is made again.
    server.wait_until(lambda: Recorded(store).results == ["q0", "q1", "q2"])

    asked_to_end(command, signal.SIGINT, "stopping: samples in flight")
    for _ in range(times - 1):
        command.send(signal.SIGINT)

    assert command.ended() == 130
    recorded = Recorded(store)
    assert recorded.results == ["q0", "q1", "q2"]
    assert recorded.status == "interrupted"
    assert resumed(command, server, start)["summary"]["judged_samples"] == 3


def test_asked_twice_it_does_not_wait_for_a_store_that_is_locked(
    in_flight: Evaluation, store: Path, server: MisbehavingServer, gate: Gate
) -> None:
    server.wait_until(lambda: Recorded(store).results == DONE)
    other = sqlite3.connect(store, isolation_level=None, timeout=30)
    other.execute("BEGIN IMMEDIATE")
    gate.is_open.set()

    asked_to_end(in_flight, signal.SIGINT, "stopping: samples in flight")
    asked_to_end(in_flight, signal.SIGINT, "stopping now")

    # Waiting for the lock would take longer than this test does.
    assert in_flight.ended() == 130
    assert "--resume" in in_flight.stderr
    other.close()
    assert Recorded(store).results == DONE


def test_when_the_grace_time_is_over_what_is_still_in_flight_is_ended(
    file: Path, store: Path, server: MisbehavingServer, gate: Gate, start: Start
) -> None:
    command = start(assay("eval", file, "--store", store, "--json", "--grace-s", "0.2"))
    server.wait_until(lambda: server.at_once == len(HELD) or command.has_ended)

    asked_to_end(command, signal.SIGTERM, "stopping: samples in flight")

    assert command.ended() == 130, command.stderr
    assert Recorded(store).results == DONE


def test_an_interrupted_check_is_no_pass_and_its_resumed_command_writes_the_whole_file(
    tmp_path: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    answer = Message(role="assistant", content="yes")
    rows = (Sample(id=f"s{n}", messages=[answer]).to_json() for n in range(8_000))
    (tmp_path / "s.jsonl").write_text("".join(f"{row}\n" for row in rows))
    (tmp_path / "checks.yaml").write_text("checks: [{name: polite, matches: 'yes'}]\n")
    words = ("s.jsonl", "--checks", "checks.yaml", "-o", "out.jsonl", "--store", store)
    command = start(assay("check", *words, "--json"))

    def has_begun() -> bool:
        # There is no store, and no run in it, until the command has made them.
        with suppress(StoreError, ConfigError):
            return bool(Recorded(store).results)
        return command.has_ended

    server.wait_until(has_begun)
    asked_to_end(command, signal.SIGINT, "stopping: samples in flight")

    assert command.ended() == 130
    assert json.loads(command.stdout)["exit_status"] == 130
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) < 8_000
    (again,) = re.findall(r"^ *assay (check .*--resume \S+)$", command.stderr, re.MULTILINE)
    assert start(assay(*shlex.split(again))).ended() == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 8_000


def test_a_refused_key_is_one_message_and_a_status_of_its_own(
    file: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    async def refuses(exchange: Exchange) -> None:
        await exchange.answer(401, {"error": {"message": "no such key"}})

    server.react = refuses

    command = start(assay("eval", file, "--store", store, "--quiet"))

    assert command.ended() == 3
    assert command.stderr.count("no such key") == 1
    assert "Traceback" not in command.stderr
    assert len(server.calls) <= 5
