"""The page of sessions: newest first, with tools and failures, and searched by words."""

from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.store import Store
from assay.types import AgentSession, Endpoint
from assay.web import ViewServer
from assay.web.sessions_page import SessionsView, build_search, read_sessions
from make import asked
from page_requests import ask, build_request
from recorded_work import record_sessions, session


def read(store: Store, **given: str) -> SessionsView:
    return read_sessions(store, build_request(*given.items()))


def test_sessions_are_listed_with_their_figures(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_sessions(store, [session(0), session(1, failed=True)])
        view = read(store)

    newest = view.sessions[0]
    assert [each.id for each in view.sessions] == ["ses-1", "ses-0"]
    assert (newest.title, newest.created) == ("Fix the login", "2026-02-02T09:00:00Z")
    assert (newest.project, newest.directory) == ("shop", "/srv/me/shop-1")
    assert (newest.tools, newest.tool_errors, newest.turns) == ({"Bash": 1}, 1, 4)
    assert (newest.cost_usd, newest.tokens) == (0.25, 110)
    assert view.runs[0].source == "claude-code"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("login", ["ses-0"]),
        ("SEARCH shop-1", ["ses-1"]),
        ('"quoted" \\', []),
        ("nothing", []),
        ("me", ["ses-1", "ses-0"]),
    ],
)
def test_words_are_searched_in_title_project_and_folder(
    query: str, expected: list[str], tmp_path: Path
) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_sessions(store, [session(0), session(1, title="Speed up the search")])
        view = read(store, q=query)

    assert [each.id for each in view.sessions] == expected
    assert view.found == len(expected)


def test_a_repeated_import_shows_what_a_session_has_become(tmp_path: Path) -> None:
    turns = []
    with Store.open(tmp_path / "s.db") as store:
        for grown in (False, True):
            sample = session(0)
            if grown:
                assert sample.trajectory is not None
                sample.trajectory.messages.append(asked("And now?"))
            record_sessions(store, [sample])
            turns.append(read(store).sessions[0].turns)
            store.delete_run("claude-1")

    assert turns == [4, 5]


def test_pages_follow_each_other(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_sessions(store, [session(index) for index in range(27)])
        first = read(store)
        assert first.next is not None
        second = read(store, run="claude-1", after=first.next)

    assert (len(first.sessions), len(second.sessions)) == (25, 2)
    assert second.previous is not None


def test_a_search_of_many_words_is_refused() -> None:
    with pytest.raises(ConfigError, match="at most 6"):
        build_search("a b c d e f g")


def test_saved_conversations_are_listed(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        endpoint = Endpoint(provider="mock", model="fixed")
        store.save_session(AgentSession(id="talk", endpoint=endpoint, messages=[asked("Hi")]))
        view = read(store)

    assert [(each.id, each.model, each.messages) for each in view.saved] == [
        ("talk", "mock:fixed", 1)
    ]


def test_an_empty_store_shows_how_to_ingest(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store, ViewServer(store) as viewer:
        status, _, page = ask(viewer, "/sessions")

    assert status == 200
    assert "assay ingest" in page
