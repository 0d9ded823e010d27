"""One engine for one store: SQLite by path, PostgreSQL by URL. Its errors are `StoreError`s."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from assay.errors import ConfigError, MissingExtra, StoreError
from assay.types import Redactor

from .database_errors import to_store_error

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, CursorResult, Engine, Table
    from sqlalchemy.dialects import postgresql, sqlite

# The first version with RETURNING.
_MIN_SQLITE_VERSION = (3, 35, 0)

_WRITE_OPTION = "assay_writes"
VERSION_TABLE = "assay_schema_version"
"""The table that distinguishes a store from any other database."""

# libpq's timeouts for a dead server: seconds, the last one milliseconds. The defaults of the
# operating system are hours.
_CONNECTION_TIMEOUTS = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}


@dataclass(frozen=True)
class StoreSettings:
    """Durability, locking and permissions of a store."""

    synchronous: Literal["normal", "full"] = "normal"
    """SQLite only. Both survive a killed process; `full` also keeps the last commits when the
    power fails, and costs a disk sync a commit."""

    lock_timeout_s: float = 30.0
    """How long to wait for another process that is writing."""

    shared: bool = False
    """SQLite only. A new file may be read and written by its group (0660, its folder 0770);
    otherwise by its owner alone. An existing file keeps its permissions."""

    def __post_init__(self) -> None:
        if self.synchronous not in ("normal", "full"):
            raise ConfigError(f"synchronous must be 'normal' or 'full', not {self.synchronous!r}")
        if not 0 < self.lock_timeout_s <= 3600:
            raise ConfigError(
                f"lock_timeout_s must be above 0 and at most 3600, not {self.lock_timeout_s!r}"
            )


class Database:
    """Transactions on one store, from any thread of the process that opened it."""

    def __init__(self, engine: "Engine", where: str, secrets: tuple[str, ...] = ()) -> None:
        self.where = where
        """The path, or the URL without user and password: fit for messages."""

        self._engine = engine
        self._secrets = secrets
        # Kept alive with the store, so that no message shows the password meanwhile.
        self._redactor = Redactor(secrets)
        self._pid = os.getpid()
        self._closed = False

    @property
    def is_postgresql(self) -> bool:
        return self._engine.dialect.name == "postgresql"

    @property
    def placeholder(self) -> str:
        """The driver's placeholder for one value in a statement given as text."""
        return "%s" if self.is_postgresql else "?"

    @contextmanager
    def read_transaction(self) -> "Iterator[Connection]":
        """Open a transaction that only reads."""
        with self._open_transaction(writes=False) as connection:
            yield connection

    @contextmanager
    def write_transaction(self) -> "Iterator[Connection]":
        """Open a transaction that takes the write lock at its start: it cannot deadlock later."""
        with self._open_transaction(writes=True) as connection:
            yield connection

    def has_table(self, connection: "Connection", name: str) -> bool:
        query = (
            "SELECT to_regclass(?)"
            if self.is_postgresql
            else "SELECT name FROM sqlite_master WHERE name = ?"
        )
        return self.execute(connection, query, name).scalar() is not None

    @contextmanager
    def _open_transaction(self, *, writes: bool) -> "Iterator[Connection]":
        self._check_usable()
        try:
            with self._engine.connect() as connection:
                if writes:
                    connection = connection.execution_options(**{_WRITE_OPTION: True})
                with connection.begin():
                    yield connection
        except SQLAlchemyError as error:
            raise to_store_error(error, where=self.where, secrets=self._secrets) from None
        except UnicodeError:
            raise StoreError(
                "text with a lone surrogate cannot be stored or searched for",
                where=self.where,
            ) from None
        except OverflowError:
            raise StoreError("a number does not fit into 64 bits", where=self.where) from None

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreError("the store is closed", where=self.where)
        if os.getpid() != self._pid:
            raise StoreError(
                "the store was opened in another process, and connections do not survive a fork",
                where=self.where,
                hint="open the store in the process that uses it",
            )

    def execute(
        self, connection: "Connection", statement: str, *values: object
    ) -> "CursorResult[Any]":
        """Run a statement given as text, with `?` for each value.

        For statements on the hot path: composing and compiling one with SQLAlchemy takes several
        times as long as running it.
        """
        return connection.exec_driver_sql(statement.replace("?", self.placeholder), values)

    def insert(self, table: "Table") -> "postgresql.Insert | sqlite.Insert":
        """Return the dialect's own insert, which supports `ON CONFLICT`."""
        return postgresql.insert(table) if self.is_postgresql else sqlite.insert(table)

    def now(self, connection: "Connection") -> float:
        """Return seconds since 1970 by the clock that all processes of this store share."""
        # The hosts that write to a PostgreSQL store may disagree on the time; its server does not.
        if not self.is_postgresql:
            return time.time()
        found = connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar()
        return float(found)  # type: ignore[arg-type]  # the function always gives a number

    def close(self) -> None:
        """Close all connections. Later transactions raise `StoreError`."""
        self._closed = True
        # After a fork the connections belong to the parent, which still uses them.
        self._engine.dispose(close=os.getpid() == self._pid)


def open_sqlite(path: Path, settings: StoreSettings, *, create: bool = True) -> Database:
    """Open a file in write-ahead mode: concurrent readers and one writer at a time.

    Creates the file if it is absent. With `create=False`, a file that is not a store is refused
    and not modified.
    """
    if sqlite3.sqlite_version_info < _MIN_SQLITE_VERSION:
        raise ConfigError(
            f"SQLite {sqlite3.sqlite_version} is too old for a store; 3.35 or newer is needed",
            hint="use a newer Python, or a PostgreSQL store",
        )
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        hide_parameters=True,
        connect_args={"timeout": settings.lock_timeout_s},
    )

    def prepare(connection: sqlite3.Connection, _: object) -> None:
        # Without this the driver opens transactions when it sees fit, and not for reads.
        connection.isolation_level = None
        # Samples are a few kilobytes: on larger pages a commit copies fewer of them. Only a new
        # file takes the size.
        connection.execute("PRAGMA page_size = 8192")
        connection.execute("PRAGMA cache_size = -16000")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute(f"PRAGMA synchronous = {settings.synchronous}")

    sa.event.listen(engine, "connect", prepare)
    sa.event.listen(engine, "begin", _begin_transaction)
    database = Database(engine, str(path))
    if not create:
        _check_is_store(database, "the file is not a store")
    _enable_wal(database, deadline=time.monotonic() + settings.lock_timeout_s)
    return database


def _check_is_store(database: Database, message: str) -> None:
    # Runs before anything is written, so that a mistyped path leaves the file unchanged.
    try:
        with database.read_transaction() as connection:
            if not database.has_table(connection, VERSION_TABLE):
                raise StoreError(
                    message, where=database.where, hint="pass the path or URL of a store"
                )
    except BaseException:
        database.close()
        raise


def _begin_transaction(connection: "Connection") -> None:
    # A deferred transaction that reads first and writes later fails without waiting when another
    # one wrote in between. BEGIN IMMEDIATE takes, and waits for, the write lock at the start.
    writes = connection.get_execution_options().get(_WRITE_OPTION)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _enable_wal(database: Database, *, deadline: float) -> None:
    # The mode is stored in the file, so only the first process switches it. SQLite ignores its busy
    # timeout for this pragma: retry here instead.
    engine = database._engine
    while True:
        raw = None
        try:
            raw = engine.raw_connection()
            if raw.cursor().execute("PRAGMA journal_mode").fetchone() != ("wal",):
                raw.cursor().execute("PRAGMA journal_mode = WAL")
            return
        except Exception as error:
            orig = getattr(error, "orig", error)
            locked = getattr(orig, "sqlite_errorname", "").startswith("SQLITE_BUSY")
            if not isinstance(orig, sqlite3.Error):
                raise
            if not locked or time.monotonic() > deadline:
                raise to_store_error(error, where=database.where) from None
            time.sleep(0.01)
        finally:
            if raw is not None:
                raw.close()


def open_postgresql(url: str, settings: StoreSettings, *, create: bool = True) -> Database:
    """Open an existing database. Creates missing tables, unless `create` is False."""
    parsed = _parse_postgresql_url(url)
    where = f"postgresql://{parsed.host or 'local'}/{parsed.database or ''}"
    defaults = {
        "options": f"-c lock_timeout={int(settings.lock_timeout_s * 1000)}",
        **_CONNECTION_TIMEOUTS,
    }
    options = {name: value for name, value in defaults.items() if name not in parsed.query}
    try:
        engine = sa.create_engine(
            parsed, hide_parameters=True, pool_pre_ping=True, connect_args=options
        )
    except ModuleNotFoundError:
        raise MissingExtra.needed("postgres", by="a PostgreSQL store", package="psycopg") from None
    secrets = [parsed.password, *(parsed.query.get(name) for name in ("password", "sslpassword"))]
    database = Database(engine, where, tuple(str(secret) for secret in secrets if secret))
    if not create:
        _check_is_store(database, "the database contains no store")
    return database


def _parse_postgresql_url(url: str) -> "URL":
    try:
        parsed = sa.make_url(url).set(drivername="postgresql+psycopg")
    except (sa.exc.ArgumentError, ValueError):
        # The cause would repeat the URL, password included.
        raise ConfigError(
            "the store's URL is invalid",
            hint="write postgresql://user:password@host:5432/database",
        ) from None
    if "@" in f"{parsed.host}{parsed.database}":
        # The text after the first one, a part of the password, would be shown as the host.
        raise ConfigError(
            "the store's URL contains several @", hint="write %40 for an @ in a password"
        )
    return parsed
