"""Read sessions from `opencode.db`, which OpenCode uses since 1.2. Always opened read-only.

Only the tables listed here can be read: the others contain access tokens and share secrets. A
database may be crafted as an attack, so only ordinary tables are read, with a timeout.
"""

import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.errors import BadRow, DatasetError

from ..foreign_values import parse_epoch_ms, str_or_none
from ..session_choice import SessionMeta, UnreadableSession
from ..stored_json import LARGEST_FILE, parse_json, parse_stored_object
from .archive import StoredMessage, StoredSession

READABLE_TABLES = frozenset(
    "session message part todo session_message sqlite_master sqlite_schema".split()
)
_REQUIRED_COLUMNS = {
    "session": {"id", "time_created"},
    "message": {"id", "session_id", "time_created", "data"},
    "part": {"id", "message_id", "session_id", "data"},
}
_META_COLUMNS = "id title parent_id time_created time_updated project_id directory".split()
_ALLOWED_ACTIONS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION)
_BUSY_TIMEOUT_S = 10.0
# Timeout for the next row of a query: the B-tree of a damaged table can be practically endless.
_QUERY_TIMEOUT_S = 60.0

# Operations of SQLite's virtual machine between two checks of the deadline.
_OPERATIONS_PER_CHECK = 50_000

_CREATE_TABLE = re.compile(r"\s*CREATE\s+TABLE\b", re.IGNORECASE)
# Columns of the table `session` that contain JSON text.
_JSON_COLUMNS = ("summary_diffs", "metadata", "revert", "permission", "model")
_RENAMED_COLUMNS = {
    "project_id": "projectID",
    "workspace_id": "workspaceID",
    "parent_id": "parentID",
}
# Columns of the table `session` that are nested in the exported format.
_NESTED_COLUMNS = {
    "share_url": ("share", "url"),
    "summary_additions": ("summary", "additions"),
    "summary_deletions": ("summary", "deletions"),
    "summary_files": ("summary", "files"),
    "summary_diffs": ("summary", "diffs"),
    "tokens_input": ("tokens", "input"),
    "tokens_output": ("tokens", "output"),
    "tokens_reasoning": ("tokens", "reasoning"),
    "tokens_cache_read": ("tokens", "cache", "read"),
    "tokens_cache_write": ("tokens", "cache", "write"),
    "time_created": ("time", "created"),
    "time_updated": ("time", "updated"),
    "time_compacting": ("time", "compacting"),
    "time_archived": ("time", "archived"),
}


class OpenCodeDatabase:
    """The sessions of one database, including changes that are not checkpointed yet."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self.notes: list[str] = []
        self._connection = _open_read_only(path)
        self._deadline = float("inf")
        self._connection.set_progress_handler(
            lambda: time.monotonic() > self._deadline, _OPERATIONS_PER_CHECK
        )
        try:
            self._deadline = time.monotonic() + _QUERY_TIMEOUT_S
            # First: even listing the columns of a crafted view may take forever.
            _check_no_views(self._connection, self.where)
            self._columns = {
                table: {row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")}
                for table in READABLE_TABLES
            }
            _check_columns(self._columns, self.where)
            self._meta_columns = [
                name for name in _META_COLUMNS if name in self._columns["session"]
            ]
        except sqlite3.Error as error:
            self._connection.close()
            raise self._build_error(error) from None
        except DatasetError:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def iterate_meta(self) -> Iterator[SessionMeta | UnreadableSession]:
        present = self._meta_columns
        # `+` disables indexes: a damaged one may be endless.
        query = f"SELECT {_quote_columns(present)} FROM session ORDER BY +time_created, +id"
        try:
            self._deadline = time.monotonic() + _QUERY_TIMEOUT_S
            rows = self._connection.execute(query)
            while row := rows.fetchone():
                yield _parse_meta_row(present, row)
                self._deadline = time.monotonic() + _QUERY_TIMEOUT_S
        except sqlite3.Error as error:
            raise self._build_error(error) from None

    def has(self, session_id: str) -> bool:
        return bool(self._fetch_rows("SELECT 1 FROM session WHERE id = ?", session_id))

    def children_of(self, session_id: str) -> list[SessionMeta | UnreadableSession]:
        present = self._meta_columns
        if "parent_id" not in present:
            return []
        found = f"SELECT {_quote_columns(present)} FROM session WHERE parent_id = ?"
        rows = self._fetch_rows(f"{found} ORDER BY time_created, id", session_id)
        return [_parse_meta_row(present, row) for row in rows]

    def load(self, session_id: str) -> StoredSession:
        columns = sorted(self._columns["session"])
        found = self._fetch_rows(
            f"SELECT {_quote_columns(columns)} FROM session WHERE id = ?", session_id
        )
        where = f"session {session_id}"
        if not found:
            raise BadRow("the session is no longer in the database", where=where)
        info = _build_session_info(dict(zip(columns, found[0], strict=True)), where)
        # The parts of each message, by id as OpenCode orders them.
        parts: dict[str, list[dict[str, Any]]] = {}
        query = "SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY id"
        for part_id, message_id, data in self._fetch_rows(query, session_id):
            part = _parse_cell(data, f"part {part_id}")
            part |= {"id": part_id, "sessionID": session_id, "messageID": message_id}
            parts.setdefault(message_id, []).append(part)
        messages = []
        query = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
        for message_id, data in self._fetch_rows(query, session_id):
            own = _parse_cell(data, f"message {message_id}")
            message = {**own, "id": message_id, "sessionID": session_id}
            messages.append(StoredMessage(message, parts.pop(message_id, [])))
        later = "SELECT 1 FROM session_message WHERE session_id = ? LIMIT 1"
        if (
            not messages
            and self._columns["session_message"]
            and self._fetch_rows(later, session_id)
        ):
            raise BadRow(
                "the messages are in the table `session_message`, which is not supported",
                where=where,
                hint="write the session with `opencode export` and read the file",
            )
        stray = [part for left in parts.values() for part in left]
        wanted, todo = ("content", "status", "priority"), []
        if set(wanted) <= self._columns["todo"]:
            query = f"SELECT {_quote_columns([*wanted])} FROM todo WHERE session_id = ?"
            rows = self._fetch_rows(f"{query} ORDER BY position", session_id)
            todo = [dict(zip(wanted, row, strict=True)) for row in rows]
        return StoredSession(info, messages, todo, stray)

    def _fetch_rows(self, query: str, session_id: str) -> list[Any]:
        self._deadline = time.monotonic() + _QUERY_TIMEOUT_S
        try:
            return self._connection.execute(query, (session_id,)).fetchall()
        except sqlite3.Error as error:
            if _is_abort(error):
                raise self._build_error(error) from None
            raise BadRow(
                f"the session cannot be read from the database: {error}",
                where=f"session {session_id}",
            ) from None

    def _build_error(self, error: sqlite3.Error) -> DatasetError:
        if _is_abort(error):
            return DatasetError(
                f"a query took longer than {_QUERY_TIMEOUT_S:g} s and was aborted",
                where=self.where,
                hint="the database is damaged, or crafted to exhaust its readers",
            )
        return _build_database_error(error, self.where)


def _is_abort(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT


def _check_no_views(connection: sqlite3.Connection, where: str) -> None:
    """Raise if a view or a virtual table has the name of a table that is read."""
    query = "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')"
    for name, kind, statement in connection.execute(query):
        ordinary = kind == "table" and _CREATE_TABLE.match(str(statement))
        if str(name).lower() in READABLE_TABLES and not ordinary:
            found = "a view" if kind == "view" else "a virtual table"
            raise DatasetError(
                f"`{name}` is {found}, not a table: the file is not an OpenCode database",
                where=where,
                hint="only ordinary tables are read; `opencode export` writes sessions as files",
            )


def _check_columns(columns: dict[str, set[str]], where: str) -> None:
    absent = [table for table in _REQUIRED_COLUMNS if not columns[table]]
    if absent:
        raise DatasetError(
            f"table `{absent[0]}` is missing: the file is not an OpenCode database", where=where
        )
    for table, needed in _REQUIRED_COLUMNS.items():
        # `table_info` omits generated columns, which could run expressions.
        if missing := sorted(needed - columns[table]):
            raise DatasetError(
                f"table `{table}` stores no column `{missing[0]}`: the file is not an OpenCode "
                "database",
                where=where,
            )


def _open_read_only(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise DatasetError("the file does not exist", where=str(path))
    address = path.absolute().as_uri()
    try:
        connection = _connect_uri(f"{address}?mode=ro")
    except sqlite3.Error as error:
        log = path.with_name(f"{path.name}-wal")
        # Write-ahead mode needs an -shm file, which cannot be created in a read-only folder.
        # `immutable` ignores the log, so it is safe only if there is none.
        if not isinstance(error, sqlite3.OperationalError) or (
            log.exists() and log.stat().st_size > 0
        ):
            raise _build_database_error(error, str(path)) from None
        try:
            connection = _connect_uri(f"{address}?mode=ro&immutable=1")
        except sqlite3.Error as second:
            raise _build_database_error(second, str(path)) from None
    connection.set_authorizer(_authorize)
    return connection


def _connect_uri(address: str) -> sqlite3.Connection:
    connection = sqlite3.connect(address, uri=True, timeout=_BUSY_TIMEOUT_S)
    # Truncated outputs may end inside a character.
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    # Limit the size of cells, and forbid unsafe functions in the schema.
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_FILE)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        # SQLite opens the file lazily: provoke its errors here.
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _authorize(action: int, first: str | None, *_: str | None) -> int:
    """Allow reading the tables with sessions, and nothing else."""
    if action in _ALLOWED_ACTIONS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_READ and first in READABLE_TABLES:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and first == "table_info":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _quote_columns(columns: list[str]) -> str:
    """Quote columns for a query: later versions may use keywords as names."""
    return ", ".join('"' + name.replace('"', '""') + '"' for name in columns)


def _build_database_error(error: sqlite3.Error, where: str) -> DatasetError:
    return DatasetError(
        f"the file cannot be read as a database: {error}",
        where=where,
        hint="if a file ending in -wal exists next to it, copy both into one folder",
    )


def _parse_meta_row(columns: list[str], values: tuple[Any, ...]) -> SessionMeta:
    row = dict(zip(columns, values, strict=True))
    return SessionMeta(
        id=str(row["id"]),
        title=str_or_none(row.get("title")) or "",
        parent_id=str_or_none(row.get("parent_id")),
        created=parse_epoch_ms(row.get("time_created")),
        updated=parse_epoch_ms(row.get("time_updated")),
        project=str_or_none(row.get("project_id")),
        directory=str_or_none(row.get("directory")),
    )


def _parse_cell(data: object, where: str) -> dict[str, Any]:
    if not isinstance(data, str | bytes):
        raise BadRow(f"the cell is {type(data).__name__}, not JSON text", where=where)
    return parse_stored_object(data, where=where)


def _build_session_info(row: dict[str, Any], where: str) -> dict[str, Any]:
    """Convert a row to the exported format. Unknown columns keep their names."""
    info: dict[str, Any] = {}
    for column, value in row.items():
        if value is None:
            continue
        if column in _JSON_COLUMNS and isinstance(value, str):
            value = parse_json(value, where=f"{where}, column `{column}`")
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        *outer, name = _NESTED_COLUMNS.get(column, (_RENAMED_COLUMNS.get(column, column),))
        target = info
        for key in outer:
            target = target.setdefault(key, {})
        target[name] = value
    return info
