"""What a database error means: for each kind, words a user can act on."""

import sqlite3
from typing import Any

import pytest

from assay.store.database_errors import to_store_error


def sqlite_error(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("from the driver")
    error.sqlite_errorname = name
    return error


class PostgresqlError(Exception):
    def __init__(self, sqlstate: str | None, text: str = "from the driver") -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("SQLITE_FULL", "the disk is full"),
        ("SQLITE_READONLY_DIRECTORY", "the store is read-only"),
        ("SQLITE_BUSY_SNAPSHOT", "locked by another process"),
        ("SQLITE_CANTOPEN", "cannot be opened"),
        ("SQLITE_IOERR_WRITE", "the disk reports an error"),
        ("SQLITE_CORRUPT", "the file is damaged"),
    ],
)
def test_errors_of_sqlite(name: str, says: str) -> None:
    told = to_store_error(sqlite_error(name), where="here")

    assert says in told.message
    assert "from the driver" in told.message
    assert told.hint
    assert told.where == "here"


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("53100", "disk is full"),
        ("53300", "out of resources"),
        ("25006", "read-only"),
        ("57P01", "the server ended the connection"),
        ("08006", "connection to the server was lost"),
        ("28P01", "refuses this user or password"),
        ("3D000", "does not exist"),
        ("55P03", "locked by another session"),
        ("42501", "lacks a permission"),
    ],
)
def test_errors_of_postgresql(state: str, says: str) -> None:
    told = to_store_error(PostgresqlError(state), where="here")

    assert says in told.message
    assert told.hint


class OperationalError(PostgresqlError):
    """As psycopg calls what is not the fault of a statement."""


@pytest.mark.parametrize(("kind", "lost"), [(OperationalError, True), (PostgresqlError, False)])
def test_an_error_without_a_code_is_a_lost_connection_or_told_as_it_is(
    kind: type[PostgresqlError], lost: bool
) -> None:
    told = to_store_error(kind(None), where="here")

    assert ("connection to the server was lost" in told.message) == lost


@pytest.mark.parametrize("why", ["connection failed: no", "failed to resolve host 'h': no"])
def test_a_connection_that_was_never_made_is_not_called_lost(why: str) -> None:
    told = to_store_error(OperationalError(None, why), where="here")

    assert told.message == f"the connection to the server failed: {why}"


def test_neither_the_statement_nor_details_nor_secrets_are_told() -> None:
    cause: Any = PostgresqlError("23505", "duplicate pw-9\nDETAIL: Key (x)=(canary-value)")

    told = str(to_store_error(cause, where="here", secrets=("pw-9",)))

    assert told == "here: duplicate ***"


def test_an_error_without_words_is_told_by_its_kind() -> None:
    assert to_store_error(PostgresqlError(None, ""), where="here").message == "PostgresqlError"
