"""Databases: how SQLite is set up, what a PostgreSQL URL may show, and who may use them."""

import sqlite3
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError, StoreError
from assay.store import Store, StoreSettings
from assay.store import database as module
from assay.store.database import open_sqlite
from assay.store.migrations import MIGRATIONS
from store_runs import record, scored, spec


@pytest.mark.parametrize(("synchronous", "number"), [("normal", 1), ("full", 2)])
def test_sqlite_writes_ahead_and_syncs_as_asked(
    tmp_path: Path, synchronous: str, number: int
) -> None:
    settings = StoreSettings(synchronous=synchronous)  # type: ignore[arg-type]  # one of two words
    database = open_sqlite(tmp_path / "assay.db", settings)

    with database.read_transaction() as transaction:
        found = [
            transaction.execute(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        ]
    database.close()

    assert found == ["wal", number, 30_000]


def test_a_transaction_that_raises_leaves_nothing(store: Store) -> None:
    database = store._database

    def interrupted() -> None:
        with database.write_transaction() as transaction:
            transaction.execute("DELETE FROM assay_schema_version")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    with database.read_transaction() as transaction:
        found = transaction.execute("SELECT version FROM assay_schema_version").scalar()
    assert found == len(MIGRATIONS)


def test_a_reader_is_not_kept_waiting_by_a_writer(store: Store) -> None:
    with store._database.write_transaction() as transaction:
        transaction.execute("DELETE FROM assay_tally")

        assert store.runs() == []


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MIN_SQLITE_VERSION", (99, 0, 0))

    with pytest.raises(ConfigError, match="too old for a store"):
        Store.open(tmp_path / "assay.db")


def test_a_file_locked_while_it_is_made_is_waited_for_and_then_told(tmp_path: Path) -> None:
    path = tmp_path / "assay.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")

    with pytest.raises(StoreError, match="locked by another process"):
        Store.open(path, settings=StoreSettings(lock_timeout_s=0.05))

    other.execute("COMMIT")
    other.close()
    Store.open(path).close()


URLS = [
    "postgresql://user:canary-pw@127.0.0.1:1/db",
    "postgres://user:canary-pw@127.0.0.1:1/db?sslpassword=canary-ssl",
    "postgresql+psycopg://127.0.0.1:1/db?user=u&password=canary-query",
    "postgresql://user:canary-pw@127.0.0.1:notaport/db",
    "postgresql://user:canary-pw@127.0.0.1:1/db?made_up=canary-value",
    "postgresql://user:pw@canary@127.0.0.1:1/db",
    "postgresql://user:pw@h/canary@127.0.0.1:1/db",
]


@pytest.mark.parametrize("url", URLS)
def test_a_password_is_in_no_message_and_no_traceback(url: str) -> None:
    with pytest.raises((StoreError, ConfigError)) as told:
        Store.open(url)

    shown = "".join(traceback.format_exception(told.value)) + repr(told.value)
    assert "canary" not in shown
    assert told.value.message


def test_a_connection_that_cannot_be_made_is_told_with_the_reason(postgresql_server: str) -> None:
    url = postgresql_server.replace("/postgres?", "/no_such_database?")

    with pytest.raises(StoreError, match='"no_such_database" does not exist') as told:
        Store.open(url)

    assert told.value.message.startswith("the connection to the server failed")
    assert told.value.where == "postgresql://local/no_such_database"
    assert "user, password and database" in str(told.value.hint)


def test_a_lock_of_another_session_is_waited_for_so_long(postgresql_server: str) -> None:
    import psycopg

    with (
        Store.open(postgresql_server, settings=StoreSettings(lock_timeout_s=0.1)) as store,
        psycopg.connect(postgresql_server) as other,
    ):
        other.execute("LOCK TABLE assay_run IN ACCESS EXCLUSIVE MODE")

        with pytest.raises(StoreError, match="locked by another session"):
            store.runs()


def test_a_server_that_is_gone_without_a_word_is_not_waited_for_hours(postgresql_url: str) -> None:
    def parameters(url: str) -> dict[str, str]:
        with Store.open(url) as store, store._database.read_transaction() as transaction:
            driver: Any = transaction._connection
            found: dict[str, str] = driver.info.get_parameters()
            return found

    found = parameters(postgresql_url)
    own = parameters(f"{postgresql_url}&tcp_user_timeout=7000")

    assert found["tcp_user_timeout"] == "60000"
    assert found["keepalives_idle"] == "30"
    assert own["tcp_user_timeout"] == "7000"


def test_a_number_or_text_that_no_database_holds_is_told(store: Store) -> None:
    database = store._database

    def read(value: object) -> None:
        with database.read_transaction() as transaction:
            transaction.execute("SELECT * FROM assay_run WHERE id = ?", value)

    with pytest.raises(StoreError, match="text with a lone surrogate"):
        read("\ud800")
    if not database.is_postgresql:
        with pytest.raises(StoreError, match="does not fit into 64 bits"):
            read(10**30)


def test_a_deleted_file_is_not_created_again(tmp_path: Path) -> None:
    database = open_sqlite(tmp_path / "assay.db", StoreSettings())

    # The connection of the first transaction is in use, so that the second one needs another.
    with database.read_transaction():
        (tmp_path / "assay.db").unlink()
        with (
            pytest.raises(StoreError, match="deleted while it was open"),
            database.read_transaction(),
        ):
            pass

    database.close()
    assert not (tmp_path / "assay.db").exists()


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_to_a_file_that_was_deleted_or_replaced(
    tmp_path: Path, replaced: bool
) -> None:
    path = tmp_path / "assay.db"
    store = Store.open(path)
    run = store.start_run(spec())
    record(run, [scored(0)])

    for file in tmp_path.iterdir():
        # Moved, so that the new file cannot get the number of the old one.
        file.rename(file.with_suffix(f"{file.suffix}.old"))
    if replaced:
        Store.open(path).close()

    problem = "replaced by another file" if replaced else "deleted"
    with pytest.raises(StoreError, match=f"the store was {problem} .*while it was open"):
        record(run, [scored(1)])
    with pytest.raises(StoreError, match=problem):
        store.runs()
    store.close()
    assert path.exists() == replaced
    if replaced:
        with Store.open(path) as other:
            assert other.runs() == []


def test_the_driver_prints_no_warnings_of_its_own(postgresql_url: str) -> None:
    code = (
        "import logging, sys\n"
        "from assay.store import Store\n"
        "for _ in range(2):\n"
        "    Store.open(sys.argv[1]).close()\n"
        "logging.getLogger('psycopg').warning('error ignored: the connection is lost')\n"
        "assert len(logging.getLogger('psycopg').handlers) == 1\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, postgresql_url], capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")
