"""Hostile text on the pages of trainings, certificates and sessions, in a real browser."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest

from assay.store import Store
from assay.types import Message, Sample, ToolCall
from assay.web import ViewServer, ViewSettings
from certificates import issued
from certifying import RIGHT, profile
from recorded_pages import HOSTILE_TEXTS
from recorded_work import record_sessions, record_training, session
from view_fixtures import WatchedPage

EVERY_TEXT = " ".join(HOSTILE_TEXTS)
HOSTILE_FOLDER = "<img src=x onerror=alert(1)>"


def hostile_session(index: int) -> Sample:
    text = HOSTILE_TEXTS[index]
    found = session(index, title=text)
    assert found.trajectory is not None
    call = ToolCall(id="a", name=text, arguments={})
    turn = Message(role="assistant", content=text, tool_calls=[call])
    trajectory = found.trajectory.model_copy(update={"messages": [turn]})
    places = {"project": text, "directory": text, "created": text}
    return found.model_copy(update={"trajectory": trajectory, "input": {**found.input, **places}})


@pytest.fixture(scope="module")
def hostile_viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    folder = tmp_path_factory.mktemp("hostile")
    rubric = {**RIGHT, "description": EVERY_TEXT.replace("\x1b", "").replace("\x07", "")}
    # In a thread: an open browser occupies the event loop of this one.
    with ThreadPoolExecutor(1) as pool:
        path = pool.submit(issued, folder, profile(rubric), sign=False).result()
    (folder / HOSTILE_FOLDER).mkdir()
    shutil.copy(path, folder / HOSTILE_FOLDER)
    with Store.open(folder / "pages.db") as store:
        record_training(store, [[0.0, 1.0, 0.0, 1.0]] * 3, text=EVERY_TEXT)
        record_sessions(store, [hostile_session(index) for index in range(len(HOSTILE_TEXTS))])
        with ViewServer(store, ViewSettings(project=folder)) as viewer:
            yield viewer


@pytest.mark.parametrize(
    "path",
    [
        "training/t",
        "training/t?step=2",
        "sessions",
        "sessions?q=%3Cscript%3E",
        "certificates",
        f"certificates?{urlencode({'file': f'{HOSTILE_FOLDER}/certificate.json'})}",
        "history",
        "failures",
        "compare",
    ],
)
def test_hostile_text_stays_text(
    path: str, hostile_viewer: ViewServer, watched: WatchedPage
) -> None:
    page = watched.page
    answer = page.goto(hostile_viewer.url + path)
    assert answer is not None
    assert answer.status == 200

    # The page shows the texts, so that the checks below are about something.
    assert "<" in page.inner_text("main") or path in ("compare", "failures")
    assert page.locator("main script, main img, main iframe, main object").count() == 0
    assert page.locator("main [onerror], main [onload], main [style]").count() == 0
    for link in page.query_selector_all("main a"):
        assert (link.get_attribute("href") or link.get_attribute("xlink:href") or "/")[0] in "/#"
    assert not any(mark in page.content() for mark in "\u202e\u2066\x1b")
    assert page.title().endswith(" · assay")
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert watched.problems == []
    assert [url for url in watched.requests if not url.startswith(hostile_viewer.url)] == []
