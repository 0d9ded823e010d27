"""A store that cannot be written stops the run loudly and keeps what it has."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.errors import StoreError
from assay.runner import EvalConfig, evaluate
from assay.types import Endpoint
from misbehaving import Exchange, MisbehavingServer
from processes import Evaluation, Recorded, names, program, write_rows

Start = Callable[..., Evaluation]
ALL = names(200)


async def takes_a_moment(exchange: Exchange) -> None:
    if exchange.call.sample == "silent":
        await exchange.keep_silent()
    await asyncio.sleep(0.005)
    await exchange.echo()


@pytest.fixture
def options(tmp_path: Path, store: Path, server: MisbehavingServer) -> dict[str, Any]:
    server.react = takes_a_moment
    # Nobody waits for the answer that never comes once there is no place to keep it.
    return {
        "dataset": write_rows(tmp_path / "data.jsonl", ["silent", *ALL]),
        "store": store,
        "endpoint": {"provider": "openai", "model": "m", "api_base": server.url},
        "config": {"concurrency": 5},
    }


def resumes(options: dict[str, Any], server: MisbehavingServer, start: Start) -> None:
    """Assert that the run can be completed, once the store can be written again."""
    kept, calls = Recorded(options["store"]).results, len(server.calls)
    server.react = Exchange.echo
    again = start(program(**options, resume={}))

    assert again.ended() == 0, again.stderr
    assert set(server.asked(calls)) == {"silent", *ALL} - set(kept)
    assert Recorded(options["store"]).results == ["silent", *ALL]


@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        ("no page is left", "the disk is full: database or disk is full"),
        ("no file may grow", "the disk reports an error: disk I/O error"),
        ("read-only", "the store is read-only: attempt to write a readonly database"),
    ],
)
def test_a_store_that_takes_no_more_stops_the_run_and_keeps_what_it_acknowledged(
    options: dict[str, Any], server: MisbehavingServer, start: Start, breaks: str, words: str
) -> None:
    run = start(program(**options, breaks=breaks, breaks_after=50))

    assert run.ended() == 3, run.stderr
    assert run.error["kind"] == "StoreError"
    assert words in run.error["text"]
    assert "everything acknowledged before is kept" in run.error["text"]
    assert len(run.kept) >= 50
    assert run.said("report") == []
    assert run.said("left") == [[]]
    assert sorted(Recorded(options["store"]).results) == sorted(run.kept)
    if breaks == "no page is left":
        resumes(options, server, start)


def test_a_store_that_stays_locked_stops_the_run_and_keeps_what_it_acknowledged(
    options: dict[str, Any], store: Path, server: MisbehavingServer, start: Start
) -> None:
    locked = threading.Event()

    async def waits_for_the_lock(exchange: Exchange) -> None:
        while len(server.calls) > 50 and not locked.is_set():
            await asyncio.sleep(0.005)
        await takes_a_moment(exchange)

    server.react = waits_for_the_lock
    run = start(program(**options, store_settings={"lock_timeout_s": 0.3}))
    run.wait_until(lambda it: it.stdout.count("kept") >= 20)
    other = sqlite3.connect(store, isolation_level=None, timeout=30)
    other.execute("BEGIN IMMEDIATE")
    locked.set()

    assert run.ended() == 3, run.stderr
    assert run.error["kind"] == "StoreError"
    assert "the store is locked by another process" in run.error["text"]
    other.execute("ROLLBACK")
    other.close()
    recorded = Recorded(store)
    assert sorted(recorded.results) == sorted(run.kept)
    assert recorded.status == "interrupted"
    resumes(options, server, start)


def test_a_store_that_cannot_be_made_is_refused_before_the_first_call(
    tmp_path: Path, server: MisbehavingServer
) -> None:
    (tmp_path / "file").touch()
    endpoint = Endpoint(provider="openai", model="m", api_base=server.url)
    config = EvalConfig(endpoint=endpoint, score_fn=lambda sample: 1.0)

    with pytest.raises(StoreError, match="the store's folder cannot be created"):
        asyncio.run(evaluate([{"question": "a"}], config, store=tmp_path / "file" / "assay.db"))

    assert server.calls == []
