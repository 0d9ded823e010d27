"""Schema versions: from every older one to the newest, once, and never from a newer one."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from assay.errors import StoreError
from assay.store import Store, StoreSettings, TableQuery
from assay.store.database import Database, open_postgresql, open_sqlite
from assay.store.insert_rows import (
    ATTEMPT_COLUMNS,
    RESULT_COLUMNS,
    build_failure_row,
    build_result_row,
    encode_body,
)
from assay.store.migrations import MIGRATIONS, migrate
from store_runs import broken, key_of, scored, spec


def opened(where: str) -> Database:
    from pathlib import Path

    opener = open_postgresql(where, StoreSettings()) if "://" in where else None
    return opener or open_sqlite(Path(where), StoreSettings())


@pytest.fixture
def database(where: str) -> Iterator[Database]:
    made = opened(where)
    yield made
    made.close()


STEPS = (
    *MIGRATIONS,
    "ALTER TABLE assay_run ADD COLUMN one TEXT",
    "ALTER TABLE assay_run ADD COLUMN two TEXT",
)


def columns(database: Database) -> set[str]:
    query = "SELECT name FROM pragma_table_info('assay_run')"
    if database.is_postgresql:
        query = "SELECT column_name FROM information_schema.columns WHERE table_name = 'assay_run'"
    with database.read_transaction() as transaction:
        return set(transaction.execute(query).scalars())


@pytest.mark.parametrize("older", range(len(STEPS) + 1))
def test_every_older_version_becomes_the_newest(database: Database, older: int) -> None:
    assert migrate(database, STEPS[:older]) == older

    assert migrate(database, STEPS) == len(STEPS)

    assert {"one", "two"} <= columns(database)
    assert migrate(database, STEPS) == len(STEPS)


def test_a_store_of_a_newer_assay_is_refused(database: Database) -> None:
    migrate(database, STEPS)

    with pytest.raises(
        StoreError, match=rf"newer assay: its schema is version {len(STEPS)}.*up to 1"
    ):
        migrate(database, STEPS[:1])


def test_opening_a_store_of_a_newer_assay_is_refused(where: str) -> None:
    database = opened(where)
    migrate(database, STEPS)
    database.close()

    with pytest.raises(StoreError, match="hint: upgrade assay"):
        Store.open(where)


def test_a_step_that_fails_leaves_the_version_before_it(database: Database) -> None:
    half = "CREATE TABLE assay_half (x BIGINT); CREATE TABLE assay_run (x BIGINT)"

    with pytest.raises(StoreError, match="already exists"):
        migrate(database, (*STEPS[:2], half))

    with database.read_transaction() as transaction:
        assert not transaction.has_table("assay_half")
    assert migrate(database, STEPS) == len(STEPS)


def write_first_version(database: Database) -> None:
    """Write a run with a result and a failed sample as the first version of the schema has them."""
    run = Store(database).start_run(spec())
    result, failure = scored(0), broken(1)
    done = build_result_row(key_of(result), result, 0)
    failed = build_failure_row(key_of(failure), failure, 0)
    rows: dict[str, tuple[list[str], tuple[object, ...]]] = {
        "result": (["result_no", *RESULT_COLUMNS], (2**40, 1, *done.values)),
        "body": (["result_no", "codec", "blob"], (2**40, *encode_body(done.body))),
        "attempt": (ATTEMPT_COLUMNS, (1, *failed.values, *encode_body(failed.body))),
    }
    with database.write_transaction() as transaction:
        for table, (names, values) in rows.items():
            marks = ", ".join("?" * len(names))
            query = f"INSERT INTO assay_{table} ({', '.join(names)}) VALUES ({marks})"
            transaction.execute(query, *values)
        transaction.execute("UPDATE assay_tally SET recorded = 1, attempts = 1")
    run.finish("interrupted")


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
def test_a_store_of_any_version_keeps_its_runs_and_takes_steps(where: str, version: int) -> None:
    older = opened(where)
    migrate(older, MIGRATIONS[:version])
    write_first_version(older)
    older.close()

    with Store.open(where) as store:
        found = store.run("run-1")
        assert [row.sample_id for row in found.results()] == ["s0", "s1"]
        assert [row.label for row in found.table().read_page(TableQuery()).rows] == [
            "question 0",
            "question 1",
        ]
        assert (found.status, found.steps()) == ("interrupted", [])
        store.resume_run("run-1", spec()).record_step(1, {"loss": 0.5})
        assert [row.metrics for row in found.steps()] == [{"loss": 0.5}]


def test_many_may_open_a_new_store_at_once(where: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(lambda _: Store.open(where), range(8)))

    assert [store.runs() for store in stores] == [[]] * 8
    for store in stores:
        store.close()


def test_a_database_that_lacks_characters_is_refused_before_a_run(postgresql_server: str) -> None:
    with psycopg.connect(postgresql_server, autocommit=True) as connection:
        connection.execute(
            "CREATE DATABASE few TEMPLATE template0 ENCODING 'LATIN1' LOCALE_PROVIDER libc "
            "LC_COLLATE 'C' LC_CTYPE 'C'"
        )

    with pytest.raises(
        StoreError, match="encoded in LATIN1, which cannot represent every character"
    ):
        Store.open(postgresql_server.replace("/postgres?", "/few?"))


def test_the_lease_of_a_running_process_survives_the_migration_to_shards(where: str) -> None:
    older = opened(where)
    migrate(older, MIGRATIONS[:4])
    running = Store(older).start_run(spec())

    with Store.open(where) as store:
        holder = store.run("run-1").row().holder
        assert holder is not None
        assert holder.shard is None

    running.finish("completed")
    older.close()
    with Store.open(where) as store:
        assert store.run("run-1").status == "completed"
