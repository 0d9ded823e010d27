"""The writer: batches, acknowledges after the commit, and is loud when it cannot write."""

import asyncio
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import psycopg
import pytest

from assay.errors import AssayError, ConfigError, StoreError, WireError
from assay.store import Run, Store, StoreSettings, Writer, WriterSettings
from assay.store.database import Database, DriverConnection
from assay.store.insert_rows import InsertRow, build_result_row
from assay.types import Sample
from misbehaving import PATIENCE_S
from store_runs import QUICK, broken, key_of, record, scored, spec

RECORDING = """
import asyncio, sys
from store_runs import key_of, scored, spec
from assay.store import Store

where, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
step = 1 if last > first else -1

async def main():
    store = Store.open(where)
    run = store.resume_run("run-1", spec(), take_over=True)
    async with run.writer() as writer:
        async def one(index):
            fresh = await writer.record(key_of(scored(index)), scored(index))
            print(index, fresh, flush=True)
        todo = list(range(first, last, step))
        for start in range(0, len(todo), 10):
            await asyncio.gather(*map(one, todo[start:start + 10]))
    print("end", flush=True)

asyncio.run(main())
"""


def recording(where: str, first: int, last: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", RECORDING, where, str(first), str(last)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")},
    )


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(where: str) -> None:
    with Store.open(where) as store:
        store.start_run(spec()).finish("interrupted")
    process = recording(where, 0, 100_000)
    assert process.stdout is not None
    acknowledged = [process.stdout.readline() for _ in range(300)]

    process.send_signal(signal.SIGKILL)
    acknowledged += process.stdout.readlines()
    process.wait()
    process.stdout.close()

    whole = {int(line.split()[0]) for line in acknowledged if line.endswith(" True\n")}
    assert len(whole) >= 300
    with Store.open(where) as store:
        # The dead process holds nothing: no need to wait, nor to take over.
        run = store.resume_run("run-1", spec())
        found = [one.index for one in run.samples()]
        assert whole <= set(found)
        assert len(found) == len(set(found)) == run.totals.recorded
        done = run.read_done_keys()
        assert all(key_of(scored(index)) in done for index in whole)
    if "://" not in where:
        with closing(sqlite3.connect(where)) as connection, connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


def test_two_processes_on_one_run_record_each_sample_once(where: str) -> None:
    with Store.open(where) as store:
        store.start_run(spec()).finish("interrupted")
    # From both ends, so that they meet and then collide on every key.
    processes = [recording(where, 0, 150), recording(where, 149, -1)]

    lines = [process.communicate(timeout=300)[0].splitlines() for process in processes]

    assert [process.returncode for process in processes] == [0, 0]
    assert all(said[-1] == "end" for said in lines)
    fresh = [line for said in lines for line in said if line.endswith("True")]
    assert len(fresh) == 150
    with Store.open(where) as store:
        rows = list(store.run("run-1").results())
        assert [row.index for row in rows] == list(range(150))
        assert store.run("run-1").totals.recorded == 150


def fails_at_once(run: Run, after: Callable[[], None], *, says: str) -> None:
    """Record one sample, do `after`, and see every later call refused with the same words."""

    async def work() -> None:
        writer = run.writer(QUICK)
        assert await writer.record(key_of(scored(0)), scored(0))
        after()
        pending = [writer.record(key_of(scored(i)), scored(i)) for i in range(1, 40)]
        outcomes = await asyncio.gather(*pending, return_exceptions=True)
        assert any(isinstance(outcome, StoreError) for outcome in outcomes)
        refused = [o for o in outcomes if o is not True]
        assert all(isinstance(outcome, StoreError) for outcome in refused)
        for call in (writer.record("another", scored(50)), writer.close(), writer.close()):
            with pytest.raises(StoreError, match=says) as loud:
                await asyncio.wait_for(call, PATIENCE_S)
            assert loud.value.where
            assert loud.value.hint

    asyncio.run(work())


def prepare_connections(database: Database, prepare: Callable[[DriverConnection], object]) -> None:
    """Call `prepare` with the connection of every later transaction."""
    acquire = database._acquire

    def prepared() -> DriverConnection:
        connection = acquire()
        prepare(connection)
        return connection

    database._acquire = prepared  # type: ignore[method-assign]  # stands in for a broken database


def test_a_full_disk_stops_the_run_loudly(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store:
        run = store.start_run(spec())

        def fill() -> None:
            def limited(connection: DriverConnection) -> None:
                pages = connection.execute("PRAGMA page_count").fetchone()[0]
                connection.execute(f"PRAGMA max_page_count = {pages}")

            prepare_connections(store._database, limited)

        fails_at_once(run, fill, says="the disk is full")

    with Store.open(tmp_path / "assay.db") as store:
        kept = [row.index for row in store.run("run-1").results()]
        assert kept[0] == 0
        resumed = store.resume_run("run-1", spec())
        record(resumed, [scored(index) for index in range(40)])
        assert resumed.totals.recorded == 40


def test_a_locked_store_stops_the_run_loudly(tmp_path: Path) -> None:
    path = tmp_path / "assay.db"
    other = sqlite3.connect(path, isolation_level=None)
    with Store.open(path, settings=StoreSettings(lock_timeout_s=0.1)) as store:
        run = store.start_run(spec())

        def lock() -> None:
            other.execute("BEGIN IMMEDIATE")

        fails_at_once(run, lock, says="locked by another process")

        other.close()
        assert [row.index for row in run.results()] == [0]


READ_ONLY = """
import asyncio, os, sys
from pathlib import Path
from store_runs import key_of, scored, spec
from assay.store import Store

async def main():
    store = Store.open(sys.argv[1])
    run = store.start_run(spec())
    async with run.writer() as writer:
        await writer.record(key_of(scored(0)), scored(0))
    for path in Path(sys.argv[1]).parent.iterdir():
        path.chmod(0o444)
    Path(sys.argv[1]).parent.chmod(0o555)
    store.close()
    if os.geteuid() == 0:
        os.setuid(65534)  # nothing is read-only for root
    try:
        store = Store.open(sys.argv[1])
        store.start_run(spec("run-2"))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")

asyncio.run(main())
"""


def test_a_read_only_store_says_so(open_folder: Path) -> None:
    folder = open_folder / "read-only"
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(folder / "assay.db")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")},
    )
    folder.chmod(0o755)

    assert done.stdout.startswith("StoreError: "), done.stdout + done.stderr
    assert "read-only" in done.stdout or "cannot be opened" in done.stdout
    assert "hint:" in done.stdout


def test_a_store_that_turns_read_only_stops_the_run_loudly(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store:
        run = store.start_run(spec())

        def turn() -> None:
            prepare_connections(
                store._database, lambda connection: connection.execute("PRAGMA query_only = ON")
            )

        fails_at_once(run, turn, says="read-only")

    with Store.open(tmp_path / "assay.db") as store:
        assert [row.index for row in store.run("run-1").results()] == [0]


def test_a_lost_connection_stops_the_run_loudly(postgresql_url: str) -> None:
    with Store.open(postgresql_url) as store:
        run = store.start_run(spec())

        def cut(connection: DriverConnection) -> None:
            # After the check that an idle connection still works.
            (number,) = connection.execute("SELECT pg_backend_pid()").fetchone()
            with psycopg.connect(postgresql_url, autocommit=True) as other:
                other.execute(f"SELECT pg_terminate_backend({number}, 5000)")

        fails_at_once(run, lambda: prepare_connections(store._database, cut), says="connection")
        del store._database._acquire  # the one of the instance

        assert [row.index for row in run.results()] == [0]


class Recorder:
    """Stands in for the database: keeps the batches, and waits or fails when told to."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.beats = 0
        self.closed = 0
        self.go = threading.Event()
        self.go.set()
        self.error: Exception | None = None

    def write(self, entries: Sequence[InsertRow]) -> list[bool]:
        self.go.wait(10)
        if self.error is not None:
            raise self.error
        self.batches.append([entry.key for entry in entries])
        return [True] * len(entries)

    def beat(self) -> None:
        self.beats += 1
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.closed += 1

    def writer(self, settings: WriterSettings = QUICK) -> Writer:
        return Writer(
            self.write, renew=self.beat, closed=self.close, settings=settings, where="here"
        )


async def write_many(writer: Writer, count: int) -> None:
    await asyncio.gather(*(writer.record(f"key {i}", scored(i)) for i in range(count)))


def test_a_batch_has_at_most_so_many_samples() -> None:
    recorder = Recorder()

    async def work() -> None:
        async with recorder.writer(WriterSettings(batch_samples=200)) as writer:
            await write_many(writer, 1000)

    asyncio.run(work())

    sizes = [len(batch) for batch in recorder.batches]
    assert sum(sizes) == 1000
    assert max(sizes) <= 200
    assert len(sizes) < 50


def test_a_lone_sample_does_not_wait_for_others() -> None:
    recorder = Recorder()
    patient = WriterSettings(batch_samples=200, flush_s=60.0, quiet_s=0.001)

    async def work() -> None:
        async with recorder.writer(patient) as writer:
            await asyncio.wait_for(writer.record("key", scored(0)), 180)

    asyncio.run(work())

    assert recorder.batches == [["key"]]


def test_samples_that_nobody_waits_for_are_written_together() -> None:
    recorder = Recorder()
    patient = WriterSettings(flush_s=60.0, quiet_s=0.001)
    settled: list[object] = []

    async def work() -> None:
        async with recorder.writer(patient) as writer:
            writer.submit([], settled.append)
            for keys in ("a", "bc"):
                writer.submit([build_result_row(key, scored(0), 0) for key in keys], settled.append)
                await asyncio.sleep(0.02)
            assert recorder.batches == []
            await asyncio.wait_for(writer.flush(), 180)
            assert settled == [[True], [True, True]]
            await writer.flush()

    asyncio.run(work())

    assert recorder.batches == [["a", "b", "c"]]


def test_samples_that_nobody_waits_for_are_written_in_time() -> None:
    recorder = Recorder()

    async def work() -> None:
        async with recorder.writer(WriterSettings(flush_s=0.02)) as writer:
            written = asyncio.Event()
            writer.submit([build_result_row("key", scored(0), 0)], lambda _: written.set())
            await asyncio.wait_for(written.wait(), 180)

    asyncio.run(work())

    assert recorder.batches == [["key"]]


def test_samples_that_keep_coming_are_written_in_time() -> None:
    recorder = Recorder()
    short = WriterSettings(batch_samples=10**6, flush_s=0.02, quiet_s=0.005)

    async def work() -> None:
        async with recorder.writer(short) as writer:
            started = [asyncio.ensure_future(writer.record("first", scored(0)))]
            while not started[0].done():
                started.append(asyncio.ensure_future(writer.record("next", scored(1))))
                await asyncio.sleep(0.001)
            await asyncio.gather(*started)

    asyncio.run(asyncio.wait_for(work(), 180))

    assert recorder.batches


def test_nothing_is_acknowledged_before_it_is_written() -> None:
    recorder = Recorder()
    recorder.go.clear()

    async def work() -> None:
        async with recorder.writer() as writer:
            waiting = asyncio.ensure_future(writer.record("key", scored(0)))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            recorder.go.set()
            assert await waiting is True

    asyncio.run(work())


def test_so_many_samples_may_wait_and_no_more() -> None:
    recorder = Recorder()
    recorder.go.clear()

    async def work() -> None:
        async with recorder.writer(WriterSettings(waiting_samples=5, batch_samples=2)) as writer:
            everything = asyncio.ensure_future(write_many(writer, 20))
            await asyncio.sleep(0.05)
            assert writer._submitted == 5
            recorder.go.set()
            await everything

    asyncio.run(work())

    assert sum(map(len, recorder.batches)) == 20


def test_so_many_bytes_may_wait_and_no_more() -> None:
    recorder = Recorder()
    recorder.go.clear()
    large = Sample(id="large", prompt="x" * 1000)

    async def work() -> None:
        patient = WriterSettings(waiting_bytes=2500, flush_s=60.0)
        async with recorder.writer(patient) as writer:
            entries = [build_result_row(f"{n}", large, 0) for n in range(3)]
            for entry in entries:
                assert not writer.is_full
                writer.submit([entry], lambda _: None)
            # Nobody adds to a batch that is so large: it is written before its time.
            waiting = asyncio.ensure_future(writer.wait_for_room())
            await asyncio.sleep(0.05)
            assert not waiting.done()
            recorder.go.set()
            await asyncio.wait_for(waiting, 180)
            assert not writer.is_full

    asyncio.run(work())

    assert recorder.batches == [["0", "1", "2"]]


def test_those_who_wait_for_room_are_told_of_the_error_too() -> None:
    recorder = Recorder()
    recorder.go.clear()
    recorder.error = ValueError("broken")

    async def work() -> list[BaseException | bool]:
        writer = recorder.writer(WriterSettings(waiting_samples=2))
        calls = [asyncio.ensure_future(writer.record(f"{i}", scored(i))) for i in range(6)]
        await asyncio.sleep(0.05)
        recorder.go.set()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        with pytest.raises(StoreError):
            await writer.close()
        return outcomes

    outcomes = asyncio.run(asyncio.wait_for(work(), 180))

    assert [str(outcome) for outcome in outcomes] == ["here: ValueError: broken"] * 6
    assert len(set(map(id, outcomes))) == 6


def test_a_cancelled_task_does_not_disturb_the_others() -> None:
    recorder = Recorder()
    recorder.go.clear()

    async def work() -> None:
        async with recorder.writer() as writer:
            calls = [asyncio.ensure_future(writer.record(f"{i}", scored(i))) for i in range(3)]
            await asyncio.sleep(0.02)
            calls[1].cancel()
            recorder.go.set()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [bool, asyncio.CancelledError, bool]

    asyncio.run(work())


def test_a_sample_that_cannot_be_written_fails_alone(store: Store) -> None:
    bad = Sample(id="bad", metadata={"x": float("inf")})

    async def work() -> list[BaseException | bool]:
        async with store.start_run(spec()).writer(QUICK) as writer:
            calls = [writer.record(key_of(one), one) for one in (scored(0), bad, scored(1))]
            return await asyncio.gather(*calls, return_exceptions=True)

    outcomes = asyncio.run(work())

    assert [type(outcome) for outcome in outcomes] == [bool, WireError, bool]


def test_what_the_sample_was_when_it_was_recorded_is_written(store: Store) -> None:
    run = store.start_run(spec())

    async def work() -> None:
        async with run.writer(QUICK) as writer:
            one = scored(0)
            waiting = asyncio.ensure_future(writer.record(key_of(one), one))
            await asyncio.sleep(0)
            one.metadata["later"] = True
            await waiting

    asyncio.run(work())

    assert next(run.samples()).metadata == {}


def test_closing_writes_what_waits_and_later_calls_are_refused() -> None:
    recorder = Recorder()

    async def work() -> None:
        writer = recorder.writer(WriterSettings(flush_s=5, quiet_s=0.01))
        waiting = asyncio.ensure_future(writer.record("key", scored(0)))
        await asyncio.sleep(0)
        await writer.close()
        assert await waiting is True
        await writer.close()
        with pytest.raises(StoreError, match="the writer is closed"):
            await writer.record("other", scored(1))

    asyncio.run(work())

    assert recorder.closed >= 1
    assert "assay-writer" not in [thread.name for thread in threading.enumerate()]


def test_a_writer_belongs_to_one_loop() -> None:
    recorder = Recorder()

    async def made() -> Writer:
        writer = recorder.writer()
        await writer.record("key", scored(0))
        return writer

    async def elsewhere(writer: Writer) -> None:
        with pytest.raises(ConfigError, match="one event loop"):
            await writer.record("other", scored(1))
        await writer.close()

    asyncio.run(elsewhere(asyncio.run(made())))


def test_a_loop_that_ended_does_not_keep_samples_from_being_written() -> None:
    recorder = Recorder()
    recorder.go.clear()

    async def leave() -> Writer:
        writer = recorder.writer()
        task = asyncio.ensure_future(writer.record("key", scored(0)))
        await asyncio.sleep(0.02)
        task.cancel()
        return writer

    writer = asyncio.run(leave())
    recorder.go.set()
    asyncio.run(writer.close())

    assert recorder.batches == [["key"]]


def test_the_writer_says_that_it_is_alive_busy_or_not() -> None:
    recorder = Recorder()

    async def work() -> None:
        async with recorder.writer(WriterSettings(heartbeat_s=0.01, quiet_s=0.001)) as writer:
            while not recorder.beats:
                await asyncio.sleep(0.001)
            idle = recorder.beats
            for index in itertools.count():
                await writer.record(f"{index}", scored(index))
                if recorder.beats > idle:
                    break

    asyncio.run(asyncio.wait_for(work(), 180))


def test_a_heartbeat_that_cannot_be_written_stops_the_run() -> None:
    recorder = Recorder()
    recorder.error = StoreError("gone", where="here", hint="look")

    async def work() -> None:
        writer = recorder.writer(WriterSettings(heartbeat_s=0.01))
        await asyncio.sleep(0.05)
        with pytest.raises(StoreError, match="gone"):
            await writer.record("key", scored(0))
        with pytest.raises(StoreError, match="gone"):
            await writer.close()

    asyncio.run(work())


def test_a_failure_waits_for_its_commit_too(store: Store) -> None:
    run = store.start_run(spec())

    async def work() -> int:
        async with run.writer(QUICK) as writer:
            await writer.record_failure(key_of(broken(0)), broken(0))
            return len(list(store.run("run-1").attempts()))

    assert asyncio.run(work()) == 1


@pytest.mark.parametrize("name", [each.name for each in fields(WriterSettings)])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_settings_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(AssayError, match=f"{name} must be above 0"):
        WriterSettings(**{name: value})  # type: ignore[arg-type]  # wrong on purpose
