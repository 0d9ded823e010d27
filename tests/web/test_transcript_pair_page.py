"""Two transcripts of one sample, aligned at the first turn that differs."""

from pathlib import Path

import pytest

from assay.store import Store
from assay.types import Message, Sample, Status, Trajectory
from assay.web import ViewServer
from assay.web.transcript_pair_page import read_transcript_pair
from make import asked, said
from page_requests import ask, ask_json, build_request
from recorded_pages import RecordedPages, record_run


def talk(*turns: Message) -> Sample:
    return Sample(
        id="q", prompt="Why?", trajectory=Trajectory(messages=list(turns)), status=Status.COMPLETED
    )


def test_equal_turns_are_left_out_up_to_the_first_difference(
    viewer: ViewServer, pages: RecordedPages
) -> None:
    path = f"compare/sample?run={pages.baseline}&run={pages.changed}&id=ticket-4"
    view = ask_json(viewer, f"/api/{path}")
    status, _, page = ask(viewer, f"/{path}")

    assert (view["equal_turns"], view["start"], len(view["turns"])) == (4, 4, 1)
    assert {"kind": "new", "text": "60", "left_out": 0} in view["turns"][0]["new"]["parts"]
    assert status == 200
    assert "4 equal turns before the first difference" in page


def test_equal_turns_are_shown_if_asked(viewer: ViewServer, pages: RecordedPages) -> None:
    query = f"run={pages.baseline}&run={pages.changed}&id=ticket-4&turn=0"
    view = ask_json(viewer, f"/api/compare/sample?{query}")

    assert [pair["same"] for pair in view["turns"]] == [True, True, True, True, False]


def test_a_transcript_that_ends_earlier_leaves_its_side_empty(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", [talk(asked("Why?"))])
        record_run(store, "b", [talk(asked("Why?"), said("Because."))])
        view = read_transcript_pair(store, build_request(("run", "a"), ("run", "b"), ("id", "q")))

    assert view.turns[0].old is None
    assert view.turns[0].new is not None
    assert (view.equal_turns, view.next) == (1, None)


def test_long_transcripts_are_read_in_pages(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        for run in "ab":
            turns = (said(f"{run} {index}") for index in range(100))
            record_run(store, run, [talk(*turns)])
        first = read_transcript_pair(store, build_request(("run", "a"), ("run", "b"), ("id", "q")))
        second = read_transcript_pair(
            store, build_request(("run", "a"), ("run", "b"), ("id", "q"), ("turn", str(first.next)))
        )

    assert len(first.turns) == first.next == second.start


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("run=tickets-1&run=tickets-2&id=nothing", 404),
        ("run=tickets-1&id=ticket-1", 400),
        ("run=tickets-1&run=tickets-2&id=ticket-1&turn=-1", 400),
        ("run=tickets-1&run=tickets-2&id=ticket-1&old=9", 404),
    ],
)
def test_a_wrong_request_is_refused(query: str, status: int, viewer: ViewServer) -> None:
    assert ask(viewer, f"/compare/sample?{query}")[0] == status
