"""One database for one store: SQLite by path, PostgreSQL by URL. Its errors are `StoreError`s.

Statements are text with `?` for each value, and mean the same to both databases. A layer that
composes them would take longer to import than a command that reads a run may take.
"""

import os
import sqlite3
import time
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from assay.errors import ConfigError, MissingExtra, StoreError
from assay.types import Redactor

from .database_errors import to_store_error

# The first version with RETURNING.
_MIN_SQLITE_VERSION = (3, 35, 0)

VERSION_TABLE = "assay_schema_version"
"""The table that distinguishes a store from any other database."""

# `PRAGMA user_version` has 32 bits.
_MAX_USER_VERSION = 2**31 - 1

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


DriverConnection = Any
"""A connection of `sqlite3` or of `psycopg`, in autocommit mode. The two have no type in common."""


class StatementResult:
    """The rows of one statement. They are tuples whose columns can also be read by name."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.rowcount: int = cursor.rowcount

    def all(self) -> list[Any]:
        make_row = _create_row_maker(tuple(column[0] for column in self._cursor.description))
        return list(map(make_row, self._cursor.fetchall()))

    def first(self) -> Any:
        """Return the first row, or None. For statements that return few rows."""
        return next(iter(self.all()), None)

    def scalar(self) -> Any:
        """Return the first column of the first row, or None."""
        values = self._cursor.fetchone()
        return None if values is None else values[0]

    def scalars(self) -> list[Any]:
        """Return the first column of every row."""
        return [values[0] for values in self._cursor.fetchall()]


@lru_cache(maxsize=64)
def _create_row_maker(names: tuple[str, ...]) -> Callable[[Sequence[Any]], Any]:
    row_type: Any = namedtuple("DatabaseRow", names)  # type: ignore[misc]  # not known before
    make: Callable[[Sequence[Any]], Any] = row_type._make
    return make


class Transaction:
    """An open transaction of a database."""

    def __init__(self, connection: DriverConnection, *, is_postgresql: bool) -> None:
        self.is_postgresql = is_postgresql
        self.lock_clause = " FOR UPDATE" if is_postgresql else ""
        """The end of a SELECT that locks its rows; SQLite has a single writer anyway."""

        self._connection = connection

    def execute(self, statement: str, *values: object) -> StatementResult:
        """Run a statement with `?` for each value."""
        return StatementResult(self._connection.execute(self._translate(statement), values))

    def execute_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run a statement once for each row of values."""
        self._connection.cursor().executemany(self._translate(statement), rows)

    def copy(self, target: str, rows: Iterable[Sequence[object]]) -> None:
        """Insert rows into columns of a table by COPY, which SQLite lacks."""
        with self._connection.cursor().copy(f"COPY {target} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    def _translate(self, statement: str) -> str:
        return statement.replace("?", "%s") if self.is_postgresql else statement

    def has_table(self, name: str) -> bool:
        query = "SELECT name FROM sqlite_master WHERE name = ?"
        query = "SELECT to_regclass(?)" if self.is_postgresql else query
        return self.execute(query, name).scalar() is not None

    def find_retired_number(self) -> int | None:
        """Return the highest number of a deleted run. None if the database never reuses one."""
        if self.is_postgresql:
            return None
        return int(self.execute("PRAGMA user_version").scalar())

    def retire_number(self, number: int) -> None:
        """Keep the number of a run that is being deleted from being used again."""
        # In the header of the file, which older versions of assay ignore. Part of the transaction.
        retired = self.find_retired_number()
        if retired is not None and retired < number <= _MAX_USER_VERSION:
            self.execute(f"PRAGMA user_version = {int(number)}")

    def now(self) -> float:
        """Return seconds since 1970 by the clock that all processes of this store share."""
        # The hosts that write to a PostgreSQL store may disagree on the time; its server does not.
        if not self.is_postgresql:
            return time.time()
        return float(self.execute("SELECT extract(epoch FROM clock_timestamp())").scalar())


class Database:
    """Transactions on one store, from any thread of the process that opened it."""

    def __init__(
        self,
        connect: Callable[[], DriverConnection],
        where: str,
        *,
        driver_error: type[Exception] = sqlite3.Error,
        secrets: tuple[str, ...] = (),
        url: str | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.where = where
        """The path, or the URL without user and password: fit for messages."""

        self.url = url

        self.is_postgresql = driver_error is not sqlite3.Error
        self._connect = connect
        self._check = check
        self._driver_error = driver_error
        self._secrets = secrets
        # Kept alive with the store, so that no message shows the password meanwhile.
        self._redactor = Redactor(secrets)
        # Threads push and pop without a lock: both are atomic.
        self._idle: list[DriverConnection] = []
        self._pid = os.getpid()
        self._closed = False

    def read_transaction(self) -> AbstractContextManager[Transaction]:
        """Open a transaction that only reads."""
        return self._open_transaction("BEGIN")

    def write_transaction(self) -> AbstractContextManager[Transaction]:
        """Open a transaction that takes the write lock at its start: it cannot deadlock later."""
        # A deferred transaction of SQLite that reads first and writes later fails without waiting
        # when another one wrote in between. BEGIN IMMEDIATE waits for the write lock.
        return self._open_transaction("BEGIN" if self.is_postgresql else "BEGIN IMMEDIATE")

    @contextmanager
    def _open_transaction(self, begin: str) -> Iterator[Transaction]:
        if self._closed:
            raise StoreError("the store is closed", where=self.where)
        if os.getpid() != self._pid:
            raise StoreError(
                "the store was opened in another process, and connections do not survive a fork",
                where=self.where,
                hint="open the store in the process that uses it",
            )
        try:
            connection = self._acquire()
            try:
                connection.execute(begin)
                yield Transaction(connection, is_postgresql=self.is_postgresql)
                connection.commit()
            except BaseException:
                # Rolls back. What state an interrupted connection is in would be hard to tell.
                connection.close()
                raise
            self._release(connection)
        except self._driver_error as error:
            raise to_store_error(error, where=self.where, secrets=self._secrets) from None
        except UnicodeError:
            raise StoreError(
                "text with a lone surrogate cannot be stored or searched for",
                where=self.where,
            ) from None
        except OverflowError:
            raise StoreError("a number does not fit into 64 bits", where=self.where) from None

    def _acquire(self) -> DriverConnection:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._connect()
            if not self.is_postgresql:
                try:
                    self._check()
                except BaseException:
                    connection.close()
                    raise
                return connection
            try:
                # The server may have ended the connection since it was last used.
                connection.execute("SELECT 1")
            except self._driver_error:
                connection.close()
            else:
                return connection

    def _release(self, connection: DriverConnection) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Close all connections. Later transactions raise `StoreError`."""
        self._closed = True
        # After a fork the connections belong to the parent, which still uses them.
        while self._idle and os.getpid() == self._pid:
            self._idle.pop().close()


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

    opened: tuple[int, int] | None = None

    def check() -> None:
        """Raise `StoreError` unless the path still is the file that was opened."""
        # SQLite would create an empty file in its place, or write to the deleted one until it is
        # closed: results would be lost without an error.
        nonlocal opened
        try:
            status = path.stat()
        except FileNotFoundError:
            if opened is None:
                return
            raise StoreError(
                "the store was deleted while it was open",
                where=str(path),
                hint="restore it from a backup, or start the run again",
            ) from None
        except OSError as error:
            raise StoreError(
                f"the store cannot be reached: {error.strerror}", where=str(path)
            ) from None
        found = (status.st_dev, status.st_ino)
        opened = opened or found
        if found != opened:
            raise StoreError(
                "the store was replaced by another file while it was open",
                where=str(path),
                hint="open it again",
            )

    def connect() -> sqlite3.Connection:
        check()
        # Without an isolation level the driver opens no transactions of its own. Threads take
        # turns: a connection is in one transaction at a time.
        connection = sqlite3.connect(
            path, timeout=settings.lock_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            # Samples are a few kilobytes: on larger pages a commit copies fewer of them. Only a
            # new file takes the size.
            connection.execute("PRAGMA page_size = 8192")
            connection.execute("PRAGMA cache_size = -16000")
            connection.execute("PRAGMA wal_autocheckpoint = 4000")
            connection.execute(f"PRAGMA synchronous = {settings.synchronous}")
        except BaseException:
            connection.close()
            raise
        return connection

    database = Database(connect, str(path), check=check)
    if not create:
        _check_is_store(database, "the file is not a store")
    _enable_wal(database, deadline=time.monotonic() + settings.lock_timeout_s)
    return database


def _check_is_store(database: Database, message: str) -> None:
    # Runs before anything is written, so that a mistyped path leaves the file unchanged.
    try:
        with database.read_transaction() as transaction:
            if not transaction.has_table(VERSION_TABLE):
                raise StoreError(
                    message, where=database.where, hint="pass the path or URL of a store"
                )
    except BaseException:
        database.close()
        raise


def _enable_wal(database: Database, *, deadline: float) -> None:
    # The mode is stored in the file, so only the first process switches it. SQLite ignores its busy
    # timeout for this pragma: retry here instead.
    while True:
        try:
            connection = database._acquire()
            try:
                if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                    connection.execute("PRAGMA journal_mode = WAL")
            finally:
                database._release(connection)
            return
        except sqlite3.Error as error:
            locked = getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
            if not locked or time.monotonic() > deadline:
                database.close()
                raise to_store_error(error, where=database.where) from None
            time.sleep(0.01)


def open_postgresql(url: str, settings: StoreSettings, *, create: bool = True) -> Database:
    """Open an existing database. Creates missing tables, unless `create` is False."""
    import logging  # loaded by psycopg, and by nothing that reads a file

    try:
        import psycopg
    except ModuleNotFoundError:
        raise MissingExtra.build("postgres", by="a PostgreSQL store", package="psycopg") from None
    logger = logging.getLogger("psycopg")
    if not logger.handlers:
        # Python prints warnings of a logger without handlers to stderr. A connection that is lost
        # is reported once, as an error.
        logger.addHandler(logging.NullHandler())
    try:
        # A driver in the scheme, as other tools write it, is unknown to libpq.
        given = psycopg.conninfo.conninfo_to_dict(f"postgresql://{url.partition('://')[2]}")
    except psycopg.Error:
        # The cause would repeat the URL, password included.
        raise ConfigError(
            "the store's URL is invalid",
            hint="write postgresql://user:password@host:5432/database",
        ) from None
    host, name = str(given.get("host") or ""), str(given.get("dbname") or "")
    if "@" in host + name:
        # The text after the first one, a part of the password, would be shown as the host.
        raise ConfigError(
            "the store's URL contains several @", hint="write %40 for an @ in a password"
        )
    options: dict[str, Any] = {
        "options": f"-c lock_timeout={int(settings.lock_timeout_s * 1000)}",
        **_CONNECTION_TIMEOUTS,
        **given,
    }
    secrets = (given.get("password"), given.get("sslpassword"))
    database = Database(
        lambda: psycopg.connect(**options, autocommit=True),
        # A host that is a path is the folder of a socket on this machine.
        f"postgresql://{'local' if host[:1] in ('', '/') else host}/{name}",
        driver_error=psycopg.Error,
        secrets=tuple(str(secret) for secret in secrets if secret),
        url=url,
    )
    if not create:
        _check_is_store(database, "the database contains no store")
    return database
