"""Opening a store, starting and resuming runs, and finding them again."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from assay.errors import ConfigError, MissingExtra, StoreError
from assay.store import RunSpec, Store, StoreSettings
from assay.types import Endpoint, ModelCall, Sample, Trajectory, Usage
from assay.web import ViewServer
from commands import call_main
from page_requests import ask
from store_runs import broken, key_of, record, scored, spec


def test_the_default_store_is_in_a_folder_that_git_ignores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with Store.open() as store:
        assert store.where == str(tmp_path / ".assay" / "assay.db")

    assert (tmp_path / ".assay" / ".gitignore").read_text() == "*\n"


def test_another_folder_is_left_as_it_is(tmp_path: Path) -> None:
    with Store.open(tmp_path / "results" / "mine.db"):
        pass
    with Store.open(tmp_path / "results") as by_folder:
        assert by_folder.where.endswith("assay.db")
    with Store.open(f"sqlite:///{tmp_path}/url.db"):
        pass

    assert not (tmp_path / "results" / ".gitignore").exists()
    assert (tmp_path / "url.db").exists()


def test_looking_for_a_store_makes_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the store does not exist"):
        Store.open(tmp_path / "x" / "assay.db", create=False)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", [":memory:", "", "mysql://host/db", "http://host"])
def test_what_cannot_be_a_store_is_refused(where: str) -> None:
    with pytest.raises(ConfigError):
        Store.open(where)


def test_a_file_that_is_no_store_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be taken for one\n" * 20)

    with pytest.raises(StoreError, match="the file is not a store"):
        Store.open(path)

    assert path.read_text().startswith("not a database")


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreError, match="folder cannot be created"):
        Store.open(tmp_path / "file" / "assay.db")


@pytest.mark.parametrize(
    "settings", [{"synchronous": "off"}, {"lock_timeout_s": 0}, {"lock_timeout_s": float("nan")}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        StoreSettings(**settings)  # type: ignore[arg-type]  # wrong on purpose


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(MissingExtra, match=r"assay-eval\[postgres\]"):
        Store.open("postgresql://host/db")


def test_a_new_run_can_be_found_by_id_by_prefix_and_as_the_latest(store: Store) -> None:
    store.start_run(spec("alpha-1"))
    store.start_run(spec("beta-1"))

    assert store.run("alpha-1").id == "alpha-1"
    assert store.run("alp").id == "alpha-1"
    assert store.run("latest").id == "beta-1"
    assert store.run().spec == store.run("beta").spec
    assert [row.id for row in store.runs()] == ["beta-1", "alpha-1"]
    assert [row.id for row in store.runs(limit=1)] == ["beta-1"]


def test_a_whole_id_wins_over_a_longer_one_it_begins(store: Store) -> None:
    store.start_run(spec("a"))
    store.start_run(spec("ab"))

    assert store.run("a").id == "a"


def test_a_run_that_is_not_there_or_not_one_is_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="the store contains no runs"):
        store.run("latest")
    for number in range(7):
        store.start_run(spec(f"run-{number}"))

    with pytest.raises(ConfigError, match=r"'run' is the prefix of several run ids: .*, …"):
        store.run("run")
    with pytest.raises(
        ConfigError, match=r"run '%' does not exist\n  hint: the newest runs are 'run-6'"
    ):
        store.run("%")


def test_an_empty_id_is_no_beginning_of_one(store: Store) -> None:
    store.start_run(spec("only"))

    with pytest.raises(ConfigError, match="the run id is empty"):
        store.run("")


def test_an_id_is_used_once(store: Store) -> None:
    store.start_run(spec("run-1"))

    with pytest.raises(ConfigError, match="run 'run-1' already exists"):
        store.start_run(spec("run-1"))


def test_a_specification_comes_back_as_it_was(store: Store) -> None:
    given = spec(config={"a": [1, None, "ü\0"], "b": {"c": 0.5}}, total=None, repeats=4)

    store.start_run(given)

    assert store.run("run-1").spec == given


@pytest.mark.parametrize(
    "changes",
    [
        {"run_id": ""},
        {"run_id": "a\0b"},
        {"run_id": "latest"},
        {"run_id": "x" * 201},
        {"repeats": 0},
        {"total": -1},
        {"config": {"a": object()}},
    ],
)
def test_a_specification_that_makes_no_sense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        spec(**changes)  # type: ignore[arg-type]  # wrong on purpose


def test_a_resumed_run_goes_on_where_it_stopped(store: Store) -> None:
    run = store.start_run(spec())
    record(run, [scored(0), broken(1)])
    run.finish("interrupted")

    resumed = store.resume_run("run-1", spec())
    done = resumed.read_done_keys()

    assert key_of(scored(0)) in done
    assert key_of(broken(1)) not in done
    assert resumed.status == "running"
    assert record(resumed, [scored(0), scored(1), scored(2)]) == [False, True, True]
    assert [row.sample_id for row in resumed.results()] == ["s0", "s1", "s2"]


def test_another_configuration_is_refused_with_what_differs(store: Store) -> None:
    store.start_run(spec()).finish("interrupted")
    other = spec(
        config={"endpoint": {"model": "m2", "temperature": 0.0}, "limit": 5},
        config_fingerprint="c2",
    )

    with pytest.raises(ConfigError) as refused:
        store.resume_run("run-1", other, allow_changed_dataset=True, take_over=True)

    assert "endpoint.model: 'm1' -> 'm2'" in str(refused.value)
    assert "limit: missing -> 5" in str(refused.value)
    assert "temperature" not in str(refused.value)
    assert store.run("run-1").status == "interrupted"


def test_another_number_of_repeats_is_refused(store: Store) -> None:
    store.start_run(spec()).finish("interrupted")

    with pytest.raises(ConfigError, match="started with repeats=1, not 2"):
        store.resume_run("run-1", spec(repeats=2))


@pytest.mark.parametrize("fingerprint", ["d2", None])
def test_a_changed_dataset_is_refused_unless_samples_are_matched_by_id(
    store: Store, fingerprint: str | None
) -> None:
    run = store.start_run(spec())
    record(run, [scored(0)])
    run.finish("interrupted")
    changed = spec(dataset="new.jsonl", dataset_fingerprint=fingerprint, total=9)

    with pytest.raises(ConfigError, match=r"dataset changed[^§]*--allow-changed-dataset[^§]*by id"):
        store.resume_run("run-1", changed)
    resumed = store.resume_run("run-1", changed, allow_changed_dataset=True)

    assert (resumed.spec.dataset, resumed.spec.total) == ("new.jsonl", 9)
    assert store.runs()[0].dataset_changed
    # The sample stands at another place now, and is known by its id all the same.
    assert record(resumed, [scored(5, id="s0")]) == [False]


def test_a_run_found_for_reading_cannot_be_recorded_into(store: Store) -> None:
    store.start_run(spec())

    with pytest.raises(ConfigError, match="was opened read-only"):
        store.run("run-1").writer()
    with pytest.raises(ConfigError, match="was opened read-only"):
        store.run("run-1").finish("completed")


def test_a_closed_store_says_so(where: str) -> None:
    store = Store.open(where)
    store.close()

    with pytest.raises(StoreError, match="the store is closed"):
        store.runs()


def test_an_endpoint_in_a_configuration_is_stored_without_its_key(tmp_path: Path) -> None:
    endpoint = Endpoint(provider="openai", model="m", api_key="canary-key-1")

    with Store.open(tmp_path / "assay.db") as store:
        store.start_run(spec(config={"endpoint": endpoint}))
        found = [path for path in tmp_path.iterdir() if b"canary" in path.read_bytes()]

    assert found == []


FORKED = """
import os, sys
from assay.store import Store
store = Store.open(sys.argv[1])
store.runs()
child = os.fork()
if child == 0:
    try:
        store.runs()
    except Exception as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(store.runs())
"""


def test_a_forked_process_is_told_to_open_its_own_store(tmp_path: Path) -> None:
    # In a fresh interpreter: this one may have threads, which do not survive a fork either.
    command = [sys.executable, "-c", FORKED, str(tmp_path / "assay.db")]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)

    assert "connections do not survive a fork" in done.stdout
    assert done.stdout.endswith("[]\n")


def test_the_moment_of_a_specification_is_set_when_it_is_made() -> None:
    made = RunSpec("r", "n", {}, "c", "d")

    assert made.created_at.startswith("20")
    assert made.created_at.endswith("+00:00")


def test_an_absurd_number_of_tokens_costs_nobody_the_batch(store: Store) -> None:
    run = store.start_run(spec())
    absurd = ModelCall(usage=Usage(input_tokens=10**20, output_tokens=1), latency_s=0.1)
    one = Sample(id="s0", prompt="q", trajectory=Trajectory(calls=[absurd], duration=0.1))

    assert record(run, [one, scored(1)]) == [True, True]

    assert run.totals.tokens_known == 0
    (stored,) = (each for each in run.samples() if each.id == "s0")
    assert stored.trajectory is not None
    assert stored.trajectory.calls == [absurd]


def test_text_that_is_no_utf_8_is_looked_for_and_stored_all_the_same(store: Store) -> None:
    run = store.start_run(spec(name="n\udcff\0", dataset="d\udcff.jsonl"))
    run.finish("interrupted")
    moved = spec(dataset="e\udcff.jsonl", dataset_fingerprint="d2")

    with pytest.raises(ConfigError, match="run 'x\ufffd' does not exist"):
        store.run("x\udcff")
    assert (run.spec.name, run.spec.dataset) == ("n\ufffd\ufffd", "d\ufffd.jsonl")
    assert store.run().spec == run.spec
    resumed = store.resume_run("run-1", moved, allow_changed_dataset=True)
    assert resumed.spec.dataset == "e\ufffd.jsonl"


def test_looking_for_a_store_leaves_other_databases_as_they_are(tmp_path: Path) -> None:
    foreign, empty = tmp_path / "foreign.sqlite", tmp_path / "empty.txt"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    empty.touch()
    before = {path: path.read_bytes() for path in (foreign, empty)}

    for path in before:
        with pytest.raises(StoreError, match="the file is not a store"):
            Store.open(path, create=False)

    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_looking_for_a_store_makes_no_tables(postgresql_url: str) -> None:
    with pytest.raises(StoreError, match="the database contains no store"):
        Store.open(postgresql_url, create=False)

    with psycopg.connect(postgresql_url) as connection:
        found = connection.execute("SELECT to_regclass('assay_schema_version')").fetchone()
    assert found == (None,)
    Store.open(postgresql_url).close()
    Store.open(postgresql_url, create=False).close()


@pytest.mark.parametrize("slashes", [":", ":/"])
def test_a_url_without_its_slashes_is_not_taken_for_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slashes: str
) -> None:
    monkeypatch.chdir(tmp_path)
    where = f"postgresql{slashes}/me:canary@127.0.0.1:1/db".replace("//", "/")

    for given in (where, Path("postgresql://me:canary@127.0.0.1:1/db")):
        with pytest.raises(ConfigError, match="starts with postgresql://") as told:
            Store.open(given)
        assert "canary" not in str(told.value)

    assert list(tmp_path.iterdir()) == []


def test_a_deleted_run_is_gone_with_all_its_rows(store: Store) -> None:
    kept, gone = store.start_run(spec("kept")), store.start_run(spec("gone"))
    record(gone, [scored(0), scored(1), broken(2)])
    record(kept, [scored(0)])
    gone.record_step(1, {"loss": 0.5})
    gone.finish("completed")

    assert store.delete_run("gone") == 2

    assert [row.id for row in store.runs()] == ["kept"]
    assert [row.sample_id for row in kept.results()] == ["s0"]
    again = store.start_run(spec("gone"))
    assert (list(again.results()), again.steps()) == ([], [])


def test_a_run_that_a_live_process_works_on_is_not_deleted(store: Store) -> None:
    run = store.start_run(spec("busy"))

    with pytest.raises(ConfigError, match="run 'busy' cannot be deleted: it is in use by process"):
        store.delete_run("busy")

    assert run.status == "running"


def test_only_a_file_is_compacted_and_backed_up(store: Store, tmp_path: Path) -> None:
    if store.where.startswith("postgresql"):
        with pytest.raises(ConfigError, match="frees the space of deleted runs by itself"):
            store.compact()
        with pytest.raises(ConfigError, match="pg_dump"):
            store.backup(tmp_path / "copy.db")
        assert not (tmp_path / "copy.db").exists()
    else:
        store.compact()
        store.backup(tmp_path / "copy.db")
        with Store.open(tmp_path / "copy.db", create=False) as copy:
            assert copy.runs() == []


def test_a_run_without_a_result_takes_another_scorer_and_keeps_its_keys(store: Store) -> None:
    first = spec(config={"endpoint": {"model": "m1"}, "score_fn": "a"}, config_fingerprint="c1")
    other = spec(config={"endpoint": {"model": "m1"}, "score_fn": "b"}, config_fingerprint="c2")
    third = replace(other, config={**other.config, "score_fn": "c"}, config_fingerprint="c3")
    run = store.start_run(first)
    record(run, [broken(0)])
    run.finish("completed")

    with pytest.raises(ConfigError, match="score_fn: 'a' -> 'b'"):
        store.resume_run("run-1", other)
    resumed = store.resume_run("run-1", other, allow_changed_scorer=True)
    resumed.finish("completed")
    resumed = store.resume_run("run-1", third, allow_changed_scorer=True)

    assert resumed.spec.config_fingerprint == "c3"
    assert resumed.spec.config == third.config
    assert resumed.key_fingerprint == "c1"
    record(resumed, [scored(0)])
    assert resumed.totals.failed == 0
    resumed.finish("completed")
    with pytest.raises(ConfigError, match=r"score_fn: 'c' -> 'b'[^§]*without model calls"):
        store.resume_run("run-1", other, allow_changed_scorer=True)


def test_another_scorer_is_no_excuse_for_another_model(store: Store) -> None:
    store.start_run(spec(config={"endpoint": "m1", "score_fn": "a"})).finish("completed")
    other = spec(config={"endpoint": "m2", "score_fn": "b"}, config_fingerprint="c2")

    with pytest.raises(ConfigError, match=r"endpoint: 'm1' -> 'm2'[^§]*start a new run"):
        store.resume_run("run-1", other, allow_changed_scorer=True)


def test_earlier_runs_are_those_of_the_same_name_on_the_same_dataset(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        for run_id, changes in (
            ("one", {}),
            ("renamed", {"name": "another"}),
            ("moved", {"dataset": "elsewhere"}),
            ("two", {}),
            ("three", {}),
            ("later", {}),
        ):
            store.start_run(spec(run_id, **changes))

        assert store.earlier_runs("three") == ["two", "one"]
        assert store.earlier_runs("one") == []


def test_a_revision_changes_with_whatever_happens_to_a_run(store: Store) -> None:
    seen = [store.read_revision()]
    run = store.start_run(spec())
    seen.append(store.read_revision())
    own = [run.read_revision()]
    record(run, [scored(0), broken(1)])
    seen.append(store.read_revision())
    own.append(run.read_revision())
    run.finish("completed")
    seen.append(store.read_revision())
    own.append(run.read_revision())
    store.delete_run(run.id)
    seen.append(store.read_revision())

    assert len(set(seen)) == len(seen) - 1
    assert seen[0] == seen[-1]
    assert len(set(own)) == 3
    assert run.read_revision() == "deleted"


def test_kept_summaries_are_read_for_many_runs_at_once(store: Store) -> None:
    for run_id in ("a", "b", "c"):
        run = store.start_run(spec(run_id))
        run.keep_summary(f'"{run_id}"', run.totals)
    record(store.resume_run("c", spec("c"), take_over=True), [scored(0)])

    assert store.read_summaries(["a", "c", "unknown"]) == {"a": '"a"'}
    assert store.read_summaries([]) == {}


def test_a_role_that_may_only_read_sees_runs_and_pages_and_writes_nothing(
    postgresql_url: str, postgresql_server: str, tmp_path: Path
) -> None:
    schema = postgresql_url.rpartition("%3D")[2]
    role = f"reader_{schema}"
    with Store.open(postgresql_url) as store:
        run = store.start_run(spec())
        record(run, [scored(0), scored(1)])
        run.finish("completed")
    with psycopg.connect(postgresql_server, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")

    reading = postgresql_url.replace("//postgres", f"//{role}")
    with Store.open(reading, create=False) as reader:
        assert [row.totals.recorded for row in reader.runs()] == [2]
        with ViewServer(reader) as viewer:
            for path in ("/", "/api/runs", "/run/run-1"):
                assert ask(viewer, path)[0] == 200
        for words in (["runs"], ["show", "run-1"], ["compare", "run-1", "run-1"]):
            done = call_main(tmp_path, *words, ASSAY_STORE=reading)
            assert (done.returncode, done.stderr) == (0, "")
        for write in (lambda: reader.start_run(spec("run-2")), lambda: reader.delete_run("run-1")):
            with pytest.raises(StoreError, match="permission denied"):
                write()
