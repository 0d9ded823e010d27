"""Sessions in `opencode.db`: what is read, what never is, and what a broken one comes to."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from assay.errors import BadRow, DatasetError
from assay.sessions import SessionChoice, read_opencode
from assay.sessions.opencode import session_database as database_module
from assay.sessions.opencode.archive import StoredMessage
from assay.sessions.opencode.session_database import READABLE_TABLES, OpenCodeDatabase
from assay.sessions.session_choice import SessionMeta
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
    database = OpenCodeDatabase(RECORDED / "1.18.33" / "opencode.db")
    exports = exported("1.18.33")

    heads = [head for head in database.iterate_meta() if isinstance(head, SessionMeta)]

    assert {head.id for head in heads} == set(exports)
    for head in heads:
        read = database.load(head.id)
        assert as_exported(read.messages) == exports[head.id]["messages"]
        assert read.info == exports[head.id]["info"]
    database.close()


def test_sessions_come_oldest_first_with_their_children() -> None:
    database = OpenCodeDatabase(RECORDED / "1.18.33" / "opencode.db")

    heads = [head for head in database.iterate_meta() if isinstance(head, SessionMeta)]
    child = next(head for head in heads if head.parent_id)

    assert [head.created for head in heads] == sorted(head.created or 0 for head in heads)
    assert database.children_of(str(child.parent_id)) == [child]
    assert database.has(child.id)
    assert not database.has("ses_none")
    database.close()


def test_columns_of_an_older_version_are_enough(tmp_path: Path) -> None:
    made = session(user(text("hi")), agent(text("hello")))
    database = OpenCodeDatabase(write_database(tmp_path / "opencode.db", [made]))

    read = database.load("ses_1")

    assert read.messages == made.messages
    assert read.info == made.info
    assert read.todo == []
    database.close()


@pytest.mark.parametrize("name", ["mood", "group", 'a "b" c'])
def test_a_column_of_a_later_version_is_kept(name: str, tmp_path: Path) -> None:
    path = write_database(tmp_path / "opencode.db", [session(user(text("hi")))])
    quoted = name.replace('"', '""')
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"ALTER TABLE session ADD COLUMN \"{quoted}\" text DEFAULT 'good'")
    connection.close()
    database = OpenCodeDatabase(path)

    assert database.load("ses_1").info[name] == "good"
    database.close()


def test_what_a_running_program_has_not_checkpointed_is_seen(tmp_path: Path) -> None:
    path = write_database(tmp_path / "opencode.db", [session(user(text("hi")))])
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("UPDATE session SET title = 'in the log'")
    writer.commit()
    database = OpenCodeDatabase(path)

    (head,) = database.iterate_meta()

    assert isinstance(head, SessionMeta)
    assert head.title == "in the log"
    database.close()
    writer.close()


@pytest.fixture
def no_working_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in which SQLite cannot make the files that a write-ahead log needs."""
    connected = database_module._connect_uri

    def refuse(address: str) -> sqlite3.Connection:
        if "immutable" not in address:
            raise sqlite3.OperationalError("unable to open database file")
        return connected(address)

    monkeypatch.setattr(database_module, "_connect_uri", refuse)


@pytest.mark.usefixtures("no_working_files")
def test_a_database_without_a_log_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    database = OpenCodeDatabase(write_database(tmp_path / "opencode.db", [session()]))

    assert database.has("ses_1")
    database.close()


@pytest.mark.usefixtures("no_working_files")
def test_a_log_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    path = write_database(tmp_path / "opencode.db", [session()])
    (tmp_path / "opencode.db-wal").write_bytes(b"not empty")

    with pytest.raises(DatasetError, match=r"(?s)unable to open.*hint: .*-wal exists next to it"):
        OpenCodeDatabase(path)


def test_reading_changes_no_byte_and_leaves_no_file(tmp_path: Path) -> None:
    folder = recorded("1.18.33", tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    database = OpenCodeDatabase(folder / "opencode.db")

    for head in list(database.iterate_meta()):
        assert isinstance(head, SessionMeta)
        database.load(head.id)
    database.close()

    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_tables_with_secrets_cannot_be_read(tmp_path: Path) -> None:
    database = OpenCodeDatabase(
        write_database(tmp_path / "opencode.db", [session(user(text("hi")))])
    )

    for statement in ("SELECT value FROM credential", "DELETE FROM session"):
        with pytest.raises(sqlite3.DatabaseError, match=r"prohibited|not authorized|readonly"):
            database._connection.execute(statement).fetchall()
    assert not READABLE_TABLES & {"account", "control_account", "credential", "session_share"}
    database.close()


def test_messages_are_ordered_by_time_though_ids_wrapped(tmp_path: Path) -> None:
    made = session(user(text("before"), id="msg_fff"), agent(text("after"), id="msg_000"))
    database = OpenCodeDatabase(write_database(tmp_path / "opencode.db", [made]))

    assert [each.info["id"] for each in database.load("ses_1").messages] == ["msg_fff", "msg_000"]
    database.close()


def test_parts_of_a_missing_message_are_kept_apart(tmp_path: Path) -> None:
    path = write_database(tmp_path / "opencode.db", [session(user(text("hi")))])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("""INSERT INTO part VALUES ('p', 'gone', 'ses_1', '{"type": "x"}')""")
    connection.close()
    database = OpenCodeDatabase(path)

    (stray,) = database.load("ses_1").stray_parts

    assert (stray["type"], stray["messageID"]) == ("x", "gone")
    database.close()


@pytest.mark.parametrize("data", ["{", "[]", None, '{"a": NaN}', "[" * 5000])
def test_a_broken_message_makes_its_session_unreadable_by_name(
    data: str | None, tmp_path: Path
) -> None:
    path = write_database(tmp_path / "opencode.db", [session(user(text("hi")))])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE message SET data = ?", (data,))
    connection.close()
    database = OpenCodeDatabase(path)

    with pytest.raises(BadRow, match=r"message msg_0: the (text|JSON value|cell) is "):
        database.load("ses_1")
    database.close()


def test_a_session_of_the_second_layout_is_named_as_such(tmp_path: Path) -> None:
    path = write_database(tmp_path / "opencode.db", [session()])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE session_message (id text, session_id text, data text)")
        connection.execute("INSERT INTO session_message VALUES ('m', 'ses_1', '{}')")
    connection.close()
    database = OpenCodeDatabase(path)

    with pytest.raises(BadRow, match="`session_message`, which is not supported"):
        database.load("ses_1")
    database.close()


def test_a_session_that_vanished_is_reported(tmp_path: Path) -> None:
    database = OpenCodeDatabase(write_database(tmp_path / "opencode.db", [session()]))

    with pytest.raises(BadRow, match="the session is no longer in the database"):
        database.load("ses_2")
    database.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    path.write_bytes(b"SQLite format 3\x00" + b"x" * 4096)

    with pytest.raises(DatasetError, match="cannot be read as a database"):
        OpenCodeDatabase(path)
    with pytest.raises(DatasetError, match="the file does not exist"):
        OpenCodeDatabase(tmp_path / "none.db")


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE session (id text)")
    connection.close()

    with pytest.raises(DatasetError, match="table `message` is missing: the file is not an Open"):
        OpenCodeDatabase(path)


def replace_session(path: Path, *statements: str) -> Path:
    """The table of the sessions under another name, and something else in its place."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE session RENAME TO kept")
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return path


NUMBERS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
DOUBLED = [
    f"CREATE VIEW v{n} AS SELECT a.* FROM {f'v{n - 1}' if n else 'kept'} a, kept b"
    for n in range(60)
]


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE VIEW session AS SELECT a.* FROM kept a, kept b, kept c, kept d, kept e, kept f"],
        [f"CREATE VIEW session AS SELECT kept.* FROM kept, ({NUMBERS})"],
        [*DOUBLED, "CREATE VIEW Session AS SELECT * FROM v59"],
        ["CREATE VIRTUAL TABLE session USING fts5(id, title, time_created)"],
    ],
    ids=["join", "endless", "nested", "virtual"],
)
def test_only_ordinary_tables_are_read(statements: list[str], tmp_path: Path) -> None:
    made = [session(user(text("hi"), id=f"m{n}"), id=f"ses_{n}") for n in range(200)]
    for number, each in enumerate(made):
        each.messages[0].parts[0]["id"] = f"p{number}"
    path = replace_session(write_database(tmp_path / "opencode.db", made), *statements)

    with pytest.raises(DatasetError, match=r"ession` is a v.*, not a table"):
        OpenCodeDatabase(path)


@pytest.mark.parametrize("table", ["todo", "session_message"])
def test_a_view_in_place_of_a_table_that_may_be_missing_is_refused(
    table: str, tmp_path: Path
) -> None:
    path = write_database(tmp_path / "opencode.db", [session(user(text("hi")))])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM credential")
    connection.close()

    with pytest.raises(DatasetError, match=f"`{table}` is a view"):
        OpenCodeDatabase(path)


def test_computed_columns_are_not_read(tmp_path: Path) -> None:
    path = write_database(tmp_path / "opencode.db", [session(user(text("hi")))])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE session ADD COLUMN big AS (hex(zeroblob(100000000)))")
        connection.execute("ALTER TABLE message RENAME COLUMN data TO kept")
    connection.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE message ADD COLUMN data AS (upper(kept))")
    connection.close()

    with pytest.raises(DatasetError, match="`message` stores no column `data`"):
        OpenCodeDatabase(path)


def test_a_computed_column_of_a_session_is_left_out(tmp_path: Path) -> None:
    path = write_database(tmp_path / "opencode.db", [session(user(text("hi")))])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE session ADD COLUMN big AS (hex(zeroblob(100000000)))")
    connection.close()
    database = OpenCodeDatabase(path)

    assert "big" not in database.load("ses_1").info
    database.close()


def test_a_query_that_takes_too_long_is_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "_OPERATIONS_PER_CHECK", 1)
    made = session(user(text("hi")), agent(text("hello")))
    database = OpenCodeDatabase(write_database(tmp_path / "opencode.db", [made]))
    monkeypatch.setattr(database_module, "_QUERY_TIMEOUT_S", -1.0)

    with pytest.raises(DatasetError, match="took longer than -1 s and was aborted"):
        list(database.iterate_meta())
    with pytest.raises(DatasetError, match="the database is damaged, or crafted to exhaust"):
        database.load("ses_1")
    database.close()


def test_a_cell_beyond_the_limit_makes_its_session_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "LARGEST_FILE", 5000)
    made = [
        session(user(text("x" * 6000), id="m1"), id="ses_1"),
        session(user(text("short"), id="m2"), id="ses_2"),
    ]
    made[1].messages[0].parts[0]["id"] = "p2"
    database = OpenCodeDatabase(write_database(tmp_path / "opencode.db", made))

    with pytest.raises(BadRow, match="too big"):
        database.load("ses_1")
    assert database.load("ses_2").messages
    database.close()


@pytest.mark.parametrize("column", ["title", "parent_id", "project_id", "directory"])
@pytest.mark.parametrize("value", [b"\xff\x00", 5.5, 7])
def test_a_value_of_another_type_costs_a_session_no_more_than_itself(
    column: str, value: object, tmp_path: Path
) -> None:
    path = write_database(tmp_path / "opencode.db", [session(user(text("Hi")), title="Mine")])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE session SET {column} = ?", (value,))
    connection.close()

    for choice in (None, SessionChoice(project="/srv/app"), SessionChoice(title="x")):
        stream = read_opencode(path, choice)

        assert sum(1 for _ in stream) + stream.reading.not_chosen == 1
