"""Copies of runs: whole, once, and between both databases."""

from itertools import pairwise
from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.store import CopyProgress, Run, SampleLabel, Store, TableQuery, copy_run
from assay.store.lease import STALE_AFTER_S, Lease
from assay.types import AgentSession, Endpoint, Message
from make import asked, said
from store_runs import broken, key_of, record, scored, spec


def fill(store: Store, count: int = 3) -> None:
    run = store.start_run(spec(total=count))
    record(run, [scored(index, score=index / 4) for index in range(count - 1)])
    record(run, [broken(count - 1), scored(0)])
    run.record_step(1, {"loss": 0.5})
    run.write_label(SampleLabel(key=key_of(scored(0)), verdict="fail", author="ann"))
    store.save_session(session("run-1/s0", asked("hi"), said("hello")))
    store.save_session(session("run-10/s0", asked("of another run")))
    run.finish("completed")


def session(session_id: str, *messages: Message) -> AgentSession:
    endpoint = Endpoint(provider="openai", model="m1")
    return AgentSession(id=session_id, endpoint=endpoint, messages=list(messages))


def describe(store: Store) -> object:
    run = store.run("run-1")
    row = run.row()
    return (
        row.spec,
        row.status,
        row.finished_at,
        row.totals,
        [sample.model_dump() for sample in run.samples()],
        [(each.key, each.message) for each in run.attempts()],
        [each.metrics for each in run.steps()],
        [(each.key, each.verdict, each.author) for each in run.labels()],
        [each.label for each in run.table().read_page(TableQuery()).rows],
        store.load_session("run-1/s0"),
    )


def test_a_copy_is_the_same_run(store: Store, tmp_path: Path) -> None:
    fill(store)

    with Store.open(tmp_path / "copy.db") as other, Store.open(tmp_path / "back.db") as back:
        done = copy_run(store, other, "run-1")
        assert (done.results, done.attempts, done.steps, done.labels) == (2, 1, 1, 1)
        assert done.sessions == 1
        assert describe(other) == describe(store)
        assert not other.has_session("run-10/s0")
        copy_run(other, back, "run-1")
        assert describe(back) == describe(store)


def test_a_run_of_a_file_is_copied_to_a_server(where: str, tmp_path: Path) -> None:
    with Store.open(tmp_path / "source.db") as source, Store.open(where) as store:
        fill(source)
        copy_run(source, store, "run-1")

        assert describe(store) == describe(source)


def test_a_copy_that_was_cut_short_is_resumed_and_nothing_is_copied_twice(
    store: Store, tmp_path: Path
) -> None:
    fill(store, 1200)

    class Cut(Exception):
        pass

    def cut(progress: CopyProgress) -> None:
        raise Cut

    with Store.open(tmp_path / "copy.db") as other:
        with pytest.raises(Cut):
            copy_run(store, other, "run-1", watch=cut)
        assert other.run("run-1").row().totals.recorded == 500
        assert other.run("run-1").status == "interrupted"

        again = copy_run(store, other, "run-1")
        assert (again.results, again.present) == (699, 500)
        assert describe(other) == describe(store)

        third = copy_run(store, other, "run-1")
        assert (third.results, third.attempts, third.steps, third.labels) == (0, 0, 0, 0)
        assert describe(other) == describe(store)


def test_a_copy_of_a_run_that_is_deleted_meanwhile_is_not_complete(
    store: Store, tmp_path: Path
) -> None:
    fill(store, 1200)
    stores = [store]

    def delete(progress: CopyProgress) -> None:
        while stores:
            stores.pop().delete_run("run-1")

    with Store.open(tmp_path / "copy.db") as other:
        with pytest.raises(ConfigError, match="run 'run-1' was deleted"):
            copy_run(store, other, "run-1", watch=delete)

        assert other.run("run-1").status == "interrupted"
        assert other.run("run-1").totals.recorded == 500


def test_a_copy_of_many_sessions_stays_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, renewals = Clock(), []
    monkeypatch.setattr("assay.store.run_copy.time", clock)
    monkeypatch.setattr(Lease, "renew", lambda lease: renewals.append(clock.now))
    with Store.open(tmp_path / "a.db") as store, Store.open(tmp_path / "b.db") as other:
        run = store.start_run(spec())
        for number in range(40):
            store.save_session(session(f"run-1/s{number}", asked("hi")))
        run.finish("completed")

        assert copy_run(store, other, "run-1").sessions == 40

    times = [0.0, *renewals, clock.now]
    gaps = [after - before for before, after in pairwise(times)]
    assert clock.now > STALE_AFTER_S
    assert max(gaps) < STALE_AFTER_S


class Clock:
    """Goes on by two seconds whenever it is read."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += 2
        return self.now


def test_a_copy_that_was_taken_over_keeps_the_status_of_its_new_process(
    store: Store, tmp_path: Path
) -> None:
    fill(store)
    with Store.open(tmp_path / "copy.db") as other:

        def take_over(progress: CopyProgress) -> None:
            taken.append(other.resume_run("run-1", spec(total=3), take_over=True))

        taken: list[Run] = []
        copy_run(store, other, "run-1", watch=take_over)

        assert other.run("run-1").status == "running"
        taken[0].finish("interrupted")
        assert other.run("run-1").status == "interrupted"


def test_a_copy_of_an_older_run_has_the_excerpts_of_its_bodies(
    store: Store, tmp_path: Path
) -> None:
    fill(store)
    shown = list(store.run("run-1").table().rows(TableQuery()))
    with store._database.write_transaction() as transaction:
        transaction.execute("DELETE FROM assay_excerpt")
        transaction.execute(
            "UPDATE assay_attempt SET label = NULL, answer = NULL, expected = NULL, fields = NULL"
        )

    with Store.open(tmp_path / "copy.db") as other:
        copy_run(store, other, "run-1")

        table = other.run("run-1").table()
        assert list(table.rows(TableQuery())) == shown
        assert table.has_excerpts()
        assert table.count_rows('"question 0"') == 1
        # A copy of an earlier version has empty ones.
        with other._database.write_transaction() as transaction:
            for column in ("label", "answer", "expected", "reason", "fields"):
                transaction.execute(f"UPDATE assay_excerpt SET {column} = ''")
        assert list(table.rows(TableQuery())) == shown


def test_another_run_with_the_same_id_is_not_overwritten(store: Store, tmp_path: Path) -> None:
    fill(store)

    with Store.open(tmp_path / "copy.db") as other:
        other.start_run(spec(config_fingerprint="c2")).finish("completed")
        with pytest.raises(ConfigError, match="they differ in config_fingerprint, created_at"):
            copy_run(store, other, "run-1")
        assert other.run("run-1").totals.recorded == 0


def test_the_copy_of_an_unfinished_run_is_brought_up_to_date(store: Store, tmp_path: Path) -> None:
    run = store.start_run(spec(total=None))
    record(run, [scored(0), broken(1)])
    run.record_step(1, {"loss": 0.5})
    run.record_step(2, {"loss": 0.4})
    store.save_session(session("run-1/s0", asked("hi")))
    with Store.open(tmp_path / "copy.db") as other:
        copy_run(store, other, "run-1")
        assert other.run("run-1").row().status == "interrupted"

        record(run, [scored(1), scored(2)])
        # A resumed training repeats the steps after its checkpoint.
        run.forget_steps(after=0)
        run.record_step(1, {"loss": 0.3})
        store.continue_session("run-1/s0", [said("hello")])
        run.record_total(3)
        run.finish("completed")
        done = copy_run(store, other, "run-1")

        assert (done.results, done.attempts, done.steps, done.sessions) == (2, 0, 1, 1)
        assert describe(other) == describe(store)
        assert other.run("run-1").row().spec.total == 3
        assert [each.step for each in other.run("run-1").steps()] == [1]


def test_a_copy_that_was_resumed_keeps_its_results_status_and_sessions(
    store: Store, tmp_path: Path
) -> None:
    first = store.start_run(given := spec(total=2))
    record(first, [scored(0)])
    store.save_session(session("run-1/s0", asked("hi")))
    first.finish("interrupted")
    with Store.open(tmp_path / "copy.db") as other:
        copy_run(store, other, "run-1")
        run = other.resume_run("run-1", given)
        record(run, [scored(1)])
        run.finish("completed")
        other.continue_session("run-1/s0", [said("hello")])

        copy_run(store, other, "run-1")

        row = other.run("run-1").row()
        assert (row.status, row.totals.recorded) == ("completed", 2)
        assert len(other.load_session("run-1/s0").messages) == 2
        # Back again, the first store learns the rest.
        copy_run(other, store, "run-1")
        assert store.run("run-1").row().status == "completed"
        assert store.run("run-1").totals.recorded == 2


def test_a_run_that_was_resumed_with_a_changed_dataset_is_the_same_run(
    store: Store, tmp_path: Path
) -> None:
    store.start_run(spec(total=1)).finish("interrupted")
    with Store.open(tmp_path / "copy.db") as other:
        copy_run(store, other, "run-1")
        changed = spec(dataset_fingerprint="d2")
        store.resume_run("run-1", changed, allow_changed_dataset=True).finish("completed")

        copy_run(store, other, "run-1")

        row = other.run("run-1").row()
        assert (row.dataset_changed, row.spec.dataset_fingerprint) == (True, "d2")


def test_the_last_label_of_a_sample_is_the_one_that_was_given_last(
    store: Store, tmp_path: Path
) -> None:
    fill(store)
    with Store.open(tmp_path / "copy.db") as other:
        copy_run(store, other, "run-1")
        key = key_of(scored(0))
        early = store.run("run-1").write_label(SampleLabel(key=key, verdict="fail", author="bo"))
        late = other.run("run-1").write_label(SampleLabel(key=key, verdict="pass", author="cy"))

        assert copy_run(store, other, "run-1").labels == 1

        assert other.run("run-1").find_labels([key])[key] == late
        found = [each.author for each in other.run("run-1").labels(history=True)]
        assert found == ["ann", early.author, late.author]


def test_a_copy_in_use_and_the_own_store_are_refused(store: Store, tmp_path: Path) -> None:
    fill(store)

    with pytest.raises(ConfigError, match="cannot be copied to its own store"):
        copy_run(store, store, "run-1")
    with Store.open(tmp_path / "copy.db") as other:
        copy_run(store, other, "run-1")
        run = other.resume_run("run-1", store.run("run-1").spec)
        with pytest.raises(ConfigError, match="the copy of run 'run-1' is in use by process"):
            copy_run(store, other, "run-1")
        run.finish("completed")


def test_a_copied_run_can_be_resumed(store: Store, tmp_path: Path) -> None:
    fill(store)

    with Store.open(tmp_path / "copy.db") as other:
        copy_run(store, other, "run-1")
        run = other.resume_run("run-1", spec())
        assert key_of(scored(0)) in run.read_done_keys()
        assert record(run, [scored(2)]) == [True]
        run.finish("completed")
        assert other.run("run-1").totals.recorded == 3
