"""Translate driver errors into `StoreError`s with a hint for the user."""

import sqlite3

from assay.errors import StoreError

_DATA_KEPT_HINT = "everything acknowledged before is kept; "

# Message and hint by the prefix of SQLite's error name.
_SQLITE_ERRORS = {
    "SQLITE_FULL": ("the disk is full", _DATA_KEPT_HINT + "make room and resume the run"),
    "SQLITE_READONLY": (
        "the store is read-only",
        _DATA_KEPT_HINT + "make the file and its folder writable, or choose another store",
    ),
    "SQLITE_PERM": (
        "the store cannot be opened",
        "check the owner and mode of the file and its folder",
    ),
    "SQLITE_CANTOPEN": (
        "the store cannot be opened",
        "check that the folder exists and is writable; copy a store from a read-only disk first",
    ),
    "SQLITE_BUSY": (
        "the store is locked by another process",
        _DATA_KEPT_HINT + "stop the process that holds the lock, or raise `lock_timeout_s`",
    ),
    "SQLITE_NOTADB": ("the file is not a store", "choose another path"),
    "SQLITE_CORRUPT": ("the file is damaged", "copy it, then try `sqlite3 FILE .recover`"),
    "SQLITE_IOERR": (
        "the disk reports an error",
        _DATA_KEPT_HINT + "check the disk and resume the run",
    ),
}

# Message and hint by the prefix of the SQLSTATE. The longest matching prefix wins.
_POSTGRESQL_ERRORS = {
    "53100": ("the server's disk is full", _DATA_KEPT_HINT + "make room and resume the run"),
    "25006": (
        "the database is read-only",
        _DATA_KEPT_HINT + "use the primary server and resume the run",
    ),
    "55P03": (
        "a table is locked by another session",
        _DATA_KEPT_HINT + "resume when that session has ended",
    ),
    "57": ("the server ended the connection", _DATA_KEPT_HINT + "resume when the server is back"),
    "08": (
        "the connection to the server was lost",
        _DATA_KEPT_HINT + "resume when the server is back",
    ),
    "28": ("the server refuses this user or password", "check the user and password of the URL"),
    "3D": ("the database does not exist", "create it, or check the URL"),
    "42501": ("the user lacks a permission", "grant it, or use another user"),
    "53": ("the server is out of resources", _DATA_KEPT_HINT + "resume when it has recovered"),
}

_CONNECTION_FAILED = (
    "the connection to the server failed",
    "check that the server runs, and the host, port, user, password and database of the URL",
)


def to_store_error(error: Exception, *, where: str, secrets: tuple[str, ...] = ()) -> StoreError:
    """Return the `StoreError` for a driver's error, without statement values and secrets."""
    state = getattr(error, "sqlstate", None) or ""
    found: tuple[str, str | None] = ("", None)
    if isinstance(error, sqlite3.Error):
        found = _find_by_prefix(_SQLITE_ERRORS, getattr(error, "sqlite_errorname", "") or "")
    elif state:
        found = _find_by_prefix(_POSTGRESQL_ERRORS, state)
    elif str(error).startswith(("connection ", "failed to resolve host")):
        # psycopg sets no SQLSTATE when the connection was never established: only its text differs.
        found = _CONNECTION_FAILED
    elif type(error).__name__ == "OperationalError":
        found = _POSTGRESQL_ERRORS["08"]
    problem, hint = found
    # Later lines may quote the statement.
    lines = str(error).strip().splitlines()
    detail = lines[0] if lines else type(error).__name__
    for secret in secrets:
        detail = detail.replace(secret, "***")
    return StoreError(f"{problem}: {detail}" if problem else detail, where=where, hint=hint)


def _find_by_prefix(table: dict[str, tuple[str, str]], code: str) -> tuple[str, str | None]:
    for start in sorted(table, key=len, reverse=True):
        if code.startswith(start):
            return table[start]
    return "", None
