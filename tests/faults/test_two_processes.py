"""Two processes on one run: each sample has one result, and the second is told who has the run."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from misbehaving import Exchange, MisbehavingServer
from processes import Evaluation, Recorded, names, program, write_rows

Start = Callable[..., Evaluation]
AT_ONCE, HELD = names(20), names(30, "held")
ALL = [*AT_ONCE, *HELD]


class Gate:
    """Lets calls about some samples wait until it is opened."""

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
def options(tmp_path: Path, store: Path, server: MisbehavingServer) -> dict[str, Any]:
    return {
        "dataset": write_rows(tmp_path / "data.jsonl", ALL),
        "store": store,
        "endpoint": {"provider": "openai", "model": "m", "api_base": server.url},
        "client": {"concurrency": 50},
        "config": {"concurrency": 50},
    }


def waits_at_gate(evaluation: Evaluation, server: MisbehavingServer, count: int) -> None:
    """Return when all samples that can be done are, and calls about the others wait."""
    evaluation.wait_until(lambda it: it.stdout.count("kept") >= len(AT_ONCE))
    server.wait_until(lambda: server.at_once == count)


def test_the_second_is_told_who_has_the_run_and_may_work_beside_it_on_request(
    options: dict[str, Any], store: Path, server: MisbehavingServer, gate: Gate, start: Start
) -> None:
    first = start(program(**options))
    waits_at_gate(first, server, len(HELD))
    calls = len(server.calls)

    refused = start(program(**options, resume={}))
    assert refused.ended() == 3
    assert refused.error["kind"] == "ConfigError"
    assert f"is in use by process {first.pid} on " in refused.error["text"]
    assert len(server.calls) == calls

    beside = start(program(**options, resume={"take_over": True}))
    server.wait_until(lambda: server.at_once == 2 * len(HELD))
    gate.is_open.set()

    assert first.ended() == 0, first.stderr
    assert beside.ended() == 0, beside.stderr
    assert server.asked(calls) == Counter(HELD)
    # Both asked; the store took one answer for each.
    assert Counter([*first.kept, *beside.kept]) == Counter(ALL)
    whole = Recorded(store)
    assert whole.results == ALL
    assert whole.status == "completed"


def test_of_two_that_resume_at_once_one_works_and_the_other_is_told(
    options: dict[str, Any], store: Path, server: MisbehavingServer, gate: Gate, start: Start
) -> None:
    dead = start(program(**options))
    waits_at_gate(dead, server, len(HELD))
    dead.kill()
    server.wait_until(lambda: server.open == 0)
    calls = len(server.calls)

    both = [start(program(**options, resume={})), start(program(**options, resume={}))]
    server.wait_until(lambda: any(one.said("error") for one in both))
    server.wait_until(lambda: server.at_once == len(HELD))
    gate.is_open.set()

    assert sorted(one.ended() for one in both) == [0, 3]
    worked, told = sorted(both, key=lambda one: one.ended())
    assert f"is in use by process {worked.pid} on " in told.error["text"]
    assert server.asked(calls) == Counter(HELD)
    assert Recorded(store).results == ALL
