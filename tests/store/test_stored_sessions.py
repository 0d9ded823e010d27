"""Stored conversations: saved, listed, continued, branched, and never with their secrets."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError, StoreError
from assay.store import Store
from assay.types import AgentSession, Endpoint, Message, Sample, Status, Trajectory
from make import asked, called, said
from store_runs import record, spec

CANARY = "canary-7f3a"

SECRETIVE = Endpoint(
    provider="openai",
    model="m1",
    api_base=f"https://user:{CANARY}-url@host/v1?key={CANARY}-query",
    api_key=f"{CANARY}-key",
    oauth_token=f"{CANARY}-oauth",
    headers={"Authorization": f"Bearer {CANARY}-header", "user-agent": "mine"},
    extra_params={"api_token": f"{CANARY}-parameter", "top_k": 5},
)


def session(session_id: str = "one", **fields: Any) -> AgentSession:
    fields = {"endpoint": SECRETIVE, "messages": [asked("hi"), said("hello")], **fields}
    return AgentSession(id=session_id, **fields)


def test_a_session_comes_back_with_everything_but_its_secrets(store: Store) -> None:
    given = session(
        messages=[asked("hi"), said(None, called("look", x=1))],
        environment={"name": "desk"},
        environment_state={"open": True},
        tags={"team": "a"},
        status=Status.RUNNING,
        metadata={"ü": [1, None]},
    )

    store.save_session(given)
    found = store.load_session("one")

    assert found.messages == given.messages
    assert (found.environment, found.environment_state) == (
        given.environment,
        given.environment_state,
    )
    assert (found.tags, found.status, found.metadata) == (given.tags, given.status, given.metadata)
    assert found.endpoint.model == "m1"
    assert found.endpoint.extra_params == {"top_k": 5}
    assert (found.endpoint.api_key, found.endpoint.oauth_token) == ("", "")
    assert found.created_at is not None


def test_secrets_are_injected_when_a_session_is_continued(store: Store) -> None:
    store.save_session(session())

    ready = store.load_session("one").with_secrets(api_key="fresh")

    assert ready.endpoint.api_key == "fresh"
    assert ready.messages == session().messages


def test_no_secret_reaches_the_file_or_its_log(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store:
        store.save_session(session())
        store.continue_session("one", [asked("more")])
        store.branch_session("one", "two", at=1)
        run = store.start_run(spec(config={"endpoint": SECRETIVE}))
        record(run, [Sample(id="s", trajectory=Trajectory(session=session()))])
        written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    assert {"assay.db", "assay.db-wal"} <= set(written)
    assert b"user-agent" in b"".join(written.values())
    assert [name for name, content in written.items() if CANARY.encode() in content] == []


def test_no_secret_reaches_the_server(postgresql_url: str) -> None:
    with Store.open(postgresql_url) as store:
        store.save_session(session())
        record(
            store.start_run(spec(config={"endpoint": SECRETIVE})),
            [Sample(id="s", trajectory=Trajectory(session=session()))],
        )
        listed = "SELECT table_name FROM information_schema.tables WHERE table_schema = ?"
        with store._database.read_transaction() as transaction:
            schema = transaction.execute("SELECT current_schema()").scalar()
            rows = [
                row
                for table in transaction.execute(listed, schema).scalars()
                for row in transaction.execute(f"SELECT * FROM {table}").all()
            ]

    assert "user-agent" in repr(rows)
    assert CANARY not in repr(rows)


def test_saving_again_replaces_and_keeps_the_moment_of_the_first(store: Store) -> None:
    store.save_session(session())
    first = store.load_session("one")

    store.save_session(session(messages=[asked("other")], status=Status.COMPLETED))
    found = store.load_session("one")

    assert [message.text for message in found.messages] == ["other"]
    assert found.status is Status.COMPLETED
    assert found.created_at == first.created_at
    assert len(store.list_sessions()) == 1


def test_a_session_is_continued_at_its_end(store: Store) -> None:
    store.save_session(session(messages=[]))

    store.continue_session("one", [asked("hi")], after=0)
    found = store.continue_session("one", [said("hello"), asked("bye")], status=Status.COMPLETED)

    assert [message.text for message in found.messages] == ["hi", "hello", "bye"]
    assert found.status is Status.COMPLETED
    assert store.load_session("one") == found
    assert store.continue_session("one", []).messages == found.messages


def test_two_who_continue_one_session_do_not_mix(store: Store) -> None:
    store.save_session(session())
    store.continue_session("one", [asked("mine")], after=2)

    with pytest.raises(
        ConfigError, match="has 3 messages, not 2: another process or task continued it"
    ):
        store.continue_session("one", [asked("theirs")], after=2)

    assert len(store.load_session("one").messages) == 3


def test_a_branch_begins_like_its_parent_and_goes_its_own_way(store: Store) -> None:
    store.save_session(session(tags={"team": "a"}))

    branch = store.branch_session("one", "two", at=1)
    store.continue_session("two", [said("ahoy")])

    assert (branch.parent_id, branch.branch_point, branch.tags) == ("one", 1, {"team": "a"})
    assert [m.text for m in store.load_session("two").messages] == ["hi", "ahoy"]
    assert [m.text for m in store.load_session("one").messages] == ["hi", "hello"]
    assert len(store.branch_session("one", "three").messages) == 2
    assert {row.id for row in store.list_sessions(parent_id="one")} == {"two", "three"}


def test_a_branch_that_cannot_be_is_refused(store: Store) -> None:
    store.save_session(session())

    for at in (-1, 3):
        with pytest.raises(ConfigError, match=r"cannot branch at message -?\d+: it has 2"):
            store.branch_session("one", "two", at=at)
    with pytest.raises(ConfigError, match="session 'one' already exists"):
        store.branch_session("one", "one")
    with pytest.raises(ConfigError, match="session 'none' does not exist"):
        store.branch_session("none", "two")


def test_sessions_are_listed_by_their_last_change(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.save_session(session(name, updated_at="ignored"))
    with store._database.write_transaction() as transaction:
        transaction.execute("UPDATE assay_session SET updated_at = ? WHERE id = ?", "2999", "b")
    store.save_session(session("d", status=Status.COMPLETED))

    rows = store.list_sessions()

    assert rows[0].id == "b"
    assert {row.id for row in rows} == {"a", "b", "c", "d"}
    assert (rows[0].provider, rows[0].model, rows[0].messages) == ("openai", "m1", 2)
    assert [row.id for row in store.list_sessions(status=Status.COMPLETED)] == ["d"]
    assert [row.id for row in store.list_sessions(limit=1)] == ["b"]


def test_a_session_that_is_not_there_is_told(store: Store) -> None:
    with pytest.raises(ConfigError, match="session 'one' does not exist"):
        store.load_session("one")
    with pytest.raises(ConfigError, match="session 'one' does not exist"):
        store.continue_session("one", [Message(role="user", content="hi")])


@pytest.mark.parametrize("session_id", ["a\0b", "x" * 401, "line\nbreak"])
def test_an_id_that_a_column_cannot_hold_is_refused(store: Store, session_id: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid session id"):
        store.save_session(session(session_id))


def test_a_damaged_session_is_told_without_what_it_holds(store: Store) -> None:
    store.save_session(session())
    with store._database.write_transaction() as transaction:
        transaction.execute("UPDATE assay_message SET blob = ?", b'{"role": "", "content": "x9"}')

    with pytest.raises(StoreError, match="session 'one' cannot be read") as told:
        store.load_session("one")

    assert "x9" not in str(told.value)


def test_what_no_column_can_hold_is_told(store: Store) -> None:
    for call in (
        lambda: store.load_session("\ud800"),
        lambda: store.list_sessions(parent_id="\ud800"),
        lambda: store.save_session(session(branch_point=10**30)),
    ):
        with pytest.raises(StoreError):
            call()


def test_the_label_of_a_session_is_what_its_user_asked_first(store: Store) -> None:
    brief = Message(role="system", content="Be brief.")
    store.save_session(session("one", messages=[brief, asked("\nWhy?\nNow."), said("So.")]))
    store.save_session(session("two", messages=[said("hello")]))

    assert store.read_session_labels(["one", "two", "gone"]) == {
        "one": "Why?",
        "two": "",
        "gone": "",
    }


def test_a_damaged_session_has_no_label(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        store.save_session(session())
    with closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
        database.execute("UPDATE assay_message SET blob = '[]'")

    with Store.open(tmp_path / "a.db") as store:
        assert store.read_session_labels(["one"]) == {"one": ""}
        with pytest.raises(StoreError, match="cannot be read"):
            store.load_session("one")
