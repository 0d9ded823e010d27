"""Texts without a space in which a line could end: no page of a phone is scrolled sideways."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from assay.store import Store
from assay.types import (
    Boundary,
    EvaluateResult,
    Failure,
    Message,
    Metric,
    Sample,
    Status,
    ToolCall,
    Trajectory,
)
from assay.web import ViewServer, write_static_report
from make import answered, asked
from page_requests import ask_json
from recorded_pages import record_run
from recorded_work import record_sessions, record_training, session
from view_fixtures import WatchedPage

WORD = "/" + "w" * 150


def build_sample(index: int, *, score: float) -> Sample:
    call = ToolCall(id="call_1", name="t" * 120, arguments={WORD: WORD})
    turns = [
        asked(WORD * 3),
        Message(role="assistant", content=None, reasoning_content=WORD, tool_calls=[call]),
        answered(WORD),
        Message(role="assistant", content=f"{WORD}{score}"),
    ]
    return Sample(
        id=f"{index}{WORD}",
        index=index,
        input={"question": WORD, WORD: WORD},
        prompt=WORD,
        ground_truth=WORD * 3,
        trajectory=Trajectory(messages=turns, termination_reason=WORD),
        score=EvaluateResult(score=score, reason=WORD, metrics={WORD: Metric(score=score)}),
        status=Status.COMPLETED,
    )


def build_failure() -> Sample:
    failure = Failure(boundary=Boundary.AGENT, kind="K" * 100, message=WORD * 3, traceback=WORD * 5)
    return Sample(id=f"failed{WORD}", index=9, prompt=WORD, status=Status.FAILED, failure=failure)


@pytest.fixture(scope="module")
def wide_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(tmp_path_factory.mktemp("wide") / "assay.db") as store:
        for number in range(3):
            samples = [build_sample(index, score=float(number == index)) for index in range(3)]
            config = {"agent": {"name": f"{WORD}{number}"}, "prompt": {"text": f"{WORD}{number}"}}
            given = [*samples, build_failure()]
            record_run(store, f"run-{number}", given, name=WORD, dataset=WORD, config=config)
        record_training(store, [[0.0, 1.0, 0.0, 1.0]] * 2, text=WORD)
        yield store


def list_addresses(viewer: ViewServer) -> Iterator[str]:
    both = "run=run-0&run=run-1"
    rows = ask_json(viewer, "/api/run/run-0/table")["rows"]
    yield from ("", "run/run-0", "run/run-0?group=reason", "run/run-0/labels", "compare")
    for row in (rows[0], rows[-1]):
        yield f"run/run-0/sample/{row['key']}"
    yield f"run/run-0/sample/{rows[0]['key']}/text?part=answer"
    yield f"run/run-0/sample/{rows[0]['key']}/tokens"
    yield f"compare?{both}"
    yield f"compare?{both}&run=run-2"
    yield f"compare/sample?{both}&{urlencode({'id': rows[0]['id']})}"
    yield f"history?{urlencode({'name': WORD})}"
    yield from ("failures", "training/t?step=1", f"run/{'n' * 200}")


def test_no_page_is_scrolled_sideways(
    wide_store: Store, watched: WatchedPage, tmp_path: Path
) -> None:
    page = watched.page
    page.set_viewport_size({"width": 360, "height": 800})
    report = tmp_path / "report.html"
    write_static_report(wide_store, ["run-0", "run-1", "run-2"], report)
    with ViewServer(wide_store) as viewer:
        addresses = [report.as_uri(), *(viewer.url + path for path in list_addresses(viewer))]
        wide = {}
        for address in addresses:
            page.goto(address)
            page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = 1)")
            wide[address] = page.evaluate("document.documentElement.scrollWidth")

    assert [address for address, width in wide.items() if width > 360] == []


def test_titles_of_sessions_keep_their_words_beside_many_columns(
    tmp_path: Path, watched: WatchedPage
) -> None:
    page = watched.page
    page.set_viewport_size({"width": 800, "height": 800})
    given = session(0, title="Consecutive messages of one user")
    call = ToolCall(id="call_1", name="search_every_document_of_us", arguments={})
    failed = Message(role="tool", content="denied", tool_call_id="call_1", details={"exit_code": 1})
    turns = [Message(role="assistant", content=None, tool_calls=[call]), failed]
    trajectory = Trajectory(messages=turns)
    with Store.open(tmp_path / "s.db") as store, ViewServer(store) as viewer:
        record_sessions(store, [given.model_copy(update={"trajectory": trajectory})])
        page.goto(f"{viewer.url}sessions")
        cell = page.locator("td.q").bounding_box()
        outside = page.evaluate("document.documentElement.scrollWidth - innerWidth")

    assert cell is not None
    assert cell["width"] >= 130
    assert outside <= 0
