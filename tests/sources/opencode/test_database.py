"""Sessions in `opencode.db`: what is read, what never is, and what a broken one comes to."""

import sqlite3
from pathlib import Path

import pytest

from assay.errors import BadRow, DatasetError
from assay.sources.opencode import database as database_module
from assay.sources.opencode.archive import StoredMessage
from assay.sources.opencode.database import READABLE, Database
from assay.sources.session_heads import Head
from opencode_archives import (
    RECORDED,
    agent,
    exported,
    recorded,
    session,
    text,
    user,
    write_database,
)


def as_exported(messages: list[StoredMessage]) -> list[dict[str, object]]:
    return [{"info": message.info, "parts": message.parts} for message in messages]


def test_every_recorded_session_equals_its_export() -> None:
    database = Database(RECORDED / "1.18.33" / "opencode.db")
    exports = exported("1.18.33")

    heads = [head for head in database.heads() if isinstance(head, Head)]

    assert {head.id for head in heads} == set(exports)
    for head in heads:
        read = database.load(head.id)
        assert as_exported(read.messages) == exports[head.id]["messages"]
        assert read.info == exports[head.id]["info"]
    database.close()


def test_sessions_come_oldest_first_with_their_children() -> None:
    database = Database(RECORDED / "1.18.33" / "opencode.db")

    heads = [head for head in database.heads() if isinstance(head, Head)]
    child = next(head for head in heads if head.parent_id)

    assert [head.created for head in heads] == sorted(head.created or 0 for head in heads)
    assert database.children_of(str(child.parent_id)) == [child.id]
    assert database.has(child.id)
    assert not database.has("ses_none")
    database.close()


def test_columns_of_an_older_version_are_enough(tmp_path: Path) -> None:
    made = session(user(text("hi")), agent(text("hello")))
    database = Database(write_database(tmp_path / "opencode.db", [made]))

    read = database.load("ses_1")

    assert read.messages == made.messages
    assert read.info == made.info
    assert read.todo == []
    database.close()


@pytest.mark.parametrize("name", ["mood", "group", 'a "b" c'])
def test_a_column_of_a_later_version_is_kept(name: str, tmp_path: Path) -> None:
    path = write_database(tmp_path / "opencode.db", [session(user(text("hi")))])
    quoted = name.replace('"', '""')
    with sqlite3.connect(path) as connection:
        connection.execute(f"ALTER TABLE session ADD COLUMN \"{quoted}\" text DEFAULT 'good'")
    connection.close()
    database = Database(path)

    assert database.load("ses_1").info[name] == "good"
    database.close()


def test_what_a_running_program_has_not_checkpointed_is_seen(tmp_path: Path) -> None:
    path = write_database(tmp_path / "opencode.db", [session(user(text("hi")))])
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("UPDATE session SET title = 'in the log'")
    writer.commit()
    database = Database(path)

    (head,) = database.heads()

    assert isinstance(head, Head)
    assert head.title == "in the log"
    database.close()
    writer.close()


@pytest.fixture
def no_working_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in which SQLite cannot make the files that a write-ahead log needs."""
    connected = database_module._connected

    def refuse(address: str) -> sqlite3.Connection:
        if "immutable" not in address:
            raise sqlite3.OperationalError("unable to open database file")
        return connected(address)

    monkeypatch.setattr(database_module, "_connected", refuse)


@pytest.mark.usefixtures("no_working_files")
def test_a_database_without_a_log_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    database = Database(write_database(tmp_path / "opencode.db", [session()]))

    assert database.has("ses_1")
    database.close()


@pytest.mark.usefixtures("no_working_files")
def test_a_log_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    path = write_database(tmp_path / "opencode.db", [session()])
    (tmp_path / "opencode.db-wal").write_bytes(b"not empty")

    with pytest.raises(DatasetError, match=r"(?s)unable to open.*hint: .*-wal stands beside it"):
        Database(path)


def test_reading_changes_no_byte_and_leaves_no_file(tmp_path: Path) -> None:
    folder = recorded("1.18.33", tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    database = Database(folder / "opencode.db")

    for head in list(database.heads()):
        assert isinstance(head, Head)
        database.load(head.id)
    database.close()

    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_tables_with_secrets_cannot_be_read(tmp_path: Path) -> None:
    database = Database(write_database(tmp_path / "opencode.db", [session(user(text("hi")))]))

    for statement in ("SELECT value FROM credential", "DELETE FROM session"):
        with pytest.raises(sqlite3.DatabaseError, match=r"prohibited|not authorized|readonly"):
            database._connection.execute(statement).fetchall()
    assert not READABLE & {"account", "control_account", "credential", "session_share"}
    database.close()


def test_messages_are_ordered_by_time_though_ids_wrapped(tmp_path: Path) -> None:
    made = session(user(text("before"), id="msg_fff"), agent(text("after"), id="msg_000"))
    database = Database(write_database(tmp_path / "opencode.db", [made]))

    assert [each.info["id"] for each in database.load("ses_1").messages] == ["msg_fff", "msg_000"]
    database.close()


def test_parts_of_a_missing_message_are_kept_apart(tmp_path: Path) -> None:
    path = write_database(tmp_path / "opencode.db", [session(user(text("hi")))])
    with sqlite3.connect(path) as connection:
        connection.execute("""INSERT INTO part VALUES ('p', 'gone', 'ses_1', '{"type": "x"}')""")
    connection.close()
    database = Database(path)

    (stray,) = database.load("ses_1").stray_parts

    assert (stray["type"], stray["messageID"]) == ("x", "gone")
    database.close()


@pytest.mark.parametrize("data", ["{", "[]", None, '{"a": NaN}', "[" * 5000])
def test_a_broken_message_makes_its_session_unreadable_by_name(
    data: str | None, tmp_path: Path
) -> None:
    path = write_database(tmp_path / "opencode.db", [session(user(text("hi")))])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE message SET data = ?", (data,))
    connection.close()
    database = Database(path)

    with pytest.raises(BadRow, match="message msg_0: is "):
        database.load("ses_1")
    database.close()


def test_a_session_of_the_second_layout_is_named_as_such(tmp_path: Path) -> None:
    path = write_database(tmp_path / "opencode.db", [session()])
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE session_message (id text, session_id text, data text)")
        connection.execute("INSERT INTO session_message VALUES ('m', 'ses_1', '{}')")
    connection.close()
    database = Database(path)

    with pytest.raises(BadRow, match="`session_message`, which is not read"):
        database.load("ses_1")
    database.close()


def test_a_session_that_vanished_is_reported(tmp_path: Path) -> None:
    database = Database(write_database(tmp_path / "opencode.db", [session()]))

    with pytest.raises(BadRow, match="not in the database any more"):
        database.load("ses_2")
    database.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    path.write_bytes(b"SQLite format 3\x00" + b"x" * 4096)

    with pytest.raises(DatasetError, match="cannot be read as a database"):
        Database(path)
    with pytest.raises(DatasetError, match="there is no such file"):
        Database(tmp_path / "none.db")


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE session (id text)")
    connection.close()

    with pytest.raises(DatasetError, match="has no table `message`: it is not a database of Open"):
        Database(path)
