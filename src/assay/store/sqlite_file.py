"""Operations on the file of a SQLite store: backup and compaction."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from assay.errors import ConfigError, StoreError
from assay.types import create_private

from .database import Database
from .database_errors import to_store_error


def compact_file(database: Database) -> None:
    """Rewrite the file without unused space. Needs as much free disk space as the file takes."""
    with _connect(database, "PostgreSQL frees the space of deleted runs by itself") as connection:
        connection.execute("VACUUM")
        # VACUUM writes the whole file through the log, which would keep that size.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def back_up_file(database: Database, path: Path) -> None:
    """Copy a consistent snapshot of the store to a new file, even during writes."""
    with _connect(database, "back up a PostgreSQL store with pg_dump") as connection:
        _create_backup_file(path)
        try:
            with closing(sqlite3.connect(path)) as copy:
                connection.backup(copy)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _create_backup_file(path: Path) -> None:
    try:
        create_private(path)
    except FileExistsError:
        raise ConfigError(
            f"{path} already exists", hint="choose a path that does not exist yet"
        ) from None
    except OSError as error:
        raise StoreError(f"{path} cannot be created: {error.strerror}") from None


@contextmanager
def _connect(database: Database, otherwise: str) -> Iterator[sqlite3.Connection]:
    # Not through the engine: these commands cannot run inside a transaction.
    if database.is_postgresql:
        raise ConfigError("the store is not a SQLite file", where=database.where, hint=otherwise)
    try:
        with closing(sqlite3.connect(database.where, isolation_level=None)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise to_store_error(error, where=database.where) from None
