"""Titles of Codex sessions: the last one counts, and a broken index costs no session."""

from pathlib import Path

from assay.sessions import SessionChoice
from assay.sessions.codex import read_codex, read_titles
from codex_sessions import write_rollout

INDEX = """{"id": "a", "thread_name": "First", "updated_at": "2026-11-16T12:00:00Z"}
{"id": "b", "thread_name": "Other"}
{broken
{"id": 7, "thread_name": "No id"}
{"id": "a", "thread_name": "Renamed", "updated_at": "2026-11-16T11:00:00Z"}
"""


def test_the_last_title_of_a_session_counts(tmp_path: Path) -> None:
    (tmp_path / "session_index.jsonl").write_text(INDEX)

    assert read_titles(tmp_path, tmp_path) == {"a": "Renamed", "b": "Other"}
    assert read_titles(tmp_path / "none", tmp_path / "none") == {}


def test_titles_reach_the_sample_and_choose_it_from_any_place_in_the_home(tmp_path: Path) -> None:
    (tmp_path / "session_index.jsonl").write_text(INDEX)
    day = tmp_path / "sessions/2026/11/16"
    file = write_rollout(day, "a", "one").path
    write_rollout(day, "b", "two", second=1)
    write_rollout(day, "c", "three", second=2)

    for path in (tmp_path, tmp_path / "sessions", day):
        stream = read_codex(path, SessionChoice(title="rENAMED"))

        assert [(sample.id, sample.input["title"]) for sample in stream] == [("a", "Renamed")]
        assert stream.reading.not_chosen == 2
    assert [sample.input["title"] for sample in read_codex(file)] == ["Renamed"]
    assert "title" not in list(read_codex(day))[-1].input


def test_an_index_that_cannot_be_opened_costs_no_session(tmp_path: Path) -> None:
    (tmp_path / "session_index.jsonl").symlink_to(tmp_path / "loop")
    (tmp_path / "loop").symlink_to(tmp_path / "session_index.jsonl")
    write_rollout(tmp_path, "a", "one")

    assert [sample.id for sample in read_codex(tmp_path)] == ["a"]
