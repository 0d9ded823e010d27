"""Who works on a run: one process at a time or its shards, unless told to work beside another."""

import asyncio
import gc
import socket
import subprocess
import sys
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.store import Store
from assay.store.lease import STALE_AFTER_S
from store_runs import QUICK, broken, key_of, record, scored, spec

HOLDING = """
import sys
from store_runs import spec
from assay.store import Store
run = Store.open(sys.argv[1]).start_run(spec())
print("held", flush=True)
sys.stdin.read()
"""


def change_lease(store: Store, **values: Any) -> None:
    changes = ", ".join(f"{name} = ?" for name in values)
    with store._database.write_transaction() as transaction:
        transaction.execute(f"UPDATE assay_lease SET {changes}", *values.values())


def test_a_second_process_is_told_who_holds_a_run(
    where: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(request.path.parents[1] / "support"))
    command = [sys.executable, "-c", HOLDING, where]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holding:
        assert holding.stdin is not None
        assert holding.stdout is not None
        assert holding.stdout.readline() == "held\n"
        with Store.open(where) as store:
            words = (
                rf"process {holding.pid} on {socket.gethostname()}, since 20.*\n.*--take-over.*"
                r"the model calls of up to 3 samples may be repeated"
            )
            with pytest.raises(ConfigError, match=words):
                store.resume_run("run-1", spec())
            holder = store.runs()[0].holder
            assert holder is not None
            assert holder.pid == holding.pid
            assert store.run("run-1").status == "running"

            taken = store.resume_run("run-1", spec(), take_over=True)
            assert record(taken, [scored(0)]) == [True]
            taken.finish("completed")
        holding.stdin.close()


def test_a_process_that_died_holds_nothing(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(where) as store:
        store.start_run(spec())
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        change_lease(store, pid=gone.pid)

        assert store.runs()[0].status == "interrupted"
        assert store.resume_run("run-1", spec()).status == "running"


def test_a_holder_elsewhere_is_believed_until_it_falls_silent(store: Store) -> None:
    store.start_run(spec())
    change_lease(store, host="another-machine", pid=1)

    with pytest.raises(ConfigError, match="process 1 on another-machine"):
        store.resume_run("run-1", spec())
    with store._database.read_transaction() as transaction:
        now = transaction.now()
    change_lease(store, heartbeat_at=now - STALE_AFTER_S - 1)
    assert store.runs()[0].status == "interrupted"
    # A clock that went back leaves a heartbeat in the future: no reason to wait for it.
    change_lease(store, heartbeat_at=now + STALE_AFTER_S + 60)

    assert store.resume_run("run-1", spec()).status == "running"


def test_the_heartbeat_keeps_the_run(store: Store) -> None:
    run = store.start_run(spec())
    change_lease(store, heartbeat_at=0.0)
    assert run.row().status == "interrupted"
    assert run._lease is not None

    run._lease.renew()

    assert run.status == "running"


def test_this_process_may_resume_what_it_no_longer_writes_to(store: Store) -> None:
    run = store.start_run(spec())
    writer = run.writer(QUICK)
    with pytest.raises(ConfigError, match="is in use by"):
        store.resume_run("run-1", spec())

    asyncio.run(writer.close())

    assert store.resume_run("run-1", spec()).status == "running"


def test_a_run_that_was_dropped_is_not_held(store: Store) -> None:
    run = store.start_run(spec())
    assert store.runs()[0].status == "running"

    del run
    gc.collect()

    assert store.runs()[0].status == "interrupted"


def test_the_one_taken_over_does_not_say_how_the_run_ended(store: Store) -> None:
    first = store.start_run(spec())
    second = store.resume_run("run-1", spec(), take_over=True)

    first.finish("failed")

    assert second.status == "running"
    assert first._lease is not None
    first._lease.renew()
    assert record(first, [scored(0)]) == [True]
    assert record(second, [scored(0)]) == [False]
    second.finish("completed")
    assert store.runs()[0].status == "completed"
    assert key_of(scored(0)) in second.read_done_keys()


@pytest.mark.parametrize(
    ("total", "words"), [(3, "up to 2 samples"), (None, "samples that are not recorded yet")]
)
def test_it_is_told_how_many_calls_may_be_repeated(
    store: Store, total: int | None, words: str
) -> None:
    record(store.start_run(spec(total=total)), [scored(0)])
    change_lease(store, host="elsewhere", token="of another process")

    with pytest.raises(ConfigError, match=f"the model calls of {words} may be repeated"):
        store.resume_run("run-1", spec(total=total))


def test_shards_hold_a_run_together_and_the_last_sample_completes_it(store: Store) -> None:
    first = store.join_run(spec(), shard="1/2")
    second = store.join_run(spec(), shard="2/2")

    assert (first.is_new, second.is_new) == (True, False)
    assert str(store.runs()[0].holder).endswith(" and 1 more")
    assert record(first, [scored(0), scored(2)]) == [True, True]
    first.finish("completed")
    assert store.run("run-1").status == "running"
    assert record(second, [scored(0), scored(1)]) == [False, True]
    second.finish("completed")
    assert store.run("run-1").status == "completed"
    assert store.run("run-1").totals.recorded == 3


def test_a_failed_sample_counts_as_executed_but_a_missing_one_does_not(store: Store) -> None:
    run = store.join_run(spec(), shard="1/2")
    record(run, [scored(0), broken(1)])
    run.finish("completed")
    assert store.run("run-1").status == "interrupted"

    run = store.join_run(spec(), shard="2/2")
    record(run, [scored(2)])
    run.finish("completed")
    assert store.run("run-1").status == "completed"


def test_the_last_shard_that_leaves_an_incomplete_run_gives_its_status(store: Store) -> None:
    first, second = (store.join_run(spec(), shard=f"{number}/2") for number in (1, 2))

    first.finish("failed")
    assert store.run("run-1").status == "running"
    second.finish("failed")
    assert store.run("run-1").status == "failed"


def test_a_shard_does_not_join_a_run_that_another_process_holds(store: Store) -> None:
    store.start_run(spec())
    change_lease(store, host="another-machine", pid=1)

    with pytest.raises(ConfigError, match="which does not execute a shard"):
        store.join_run(spec(), shard="1/2")


def test_a_run_in_shards_is_not_resumed_as_a_whole_while_one_is_alive(store: Store) -> None:
    shards = [store.join_run(spec(), shard=f"{number}/2") for number in (1, 2)]

    with pytest.raises(ConfigError, match=r"is in use by process .* and 1 more"):
        store.resume_run("run-1", spec())

    for shard in shards:
        shard.finish("interrupted")
    assert store.resume_run("run-1", spec()).status == "running"


def test_a_shard_with_another_configuration_or_dataset_is_refused(store: Store) -> None:
    store.join_run(spec(), shard="1/2")

    with pytest.raises(ConfigError, match="the configuration differs"):
        store.join_run(spec(config_fingerprint="c2"), shard="2/2")
    with pytest.raises(ConfigError, match="the dataset changed"):
        store.join_run(spec(dataset_fingerprint="d2"), shard="2/2")
    assert str(store.runs()[0].holder).count("more") == 0


def test_a_run_of_unknown_length_is_completed_after_its_total_was_recorded(store: Store) -> None:
    run = store.join_run(spec(total=None), shard="1/1")

    run.record_total(1)
    record(run, [scored(0)])
    run.finish("completed")

    row = store.run("run-1").row()
    assert (row.spec.total, row.status) == (1, "completed")
