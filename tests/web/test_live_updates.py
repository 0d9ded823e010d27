"""Live updates: one event for each change, none for what was seen, and an end."""

import json
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from assay.errors import StoreError
from assay.store import Store
from assay.web import ViewServer
from page_requests import ask
from recorded_pages import RecordedPages, record_run, total
from store_runs import record, scored, spec


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.web.live_updates._POLL_S", 0.02)
    monkeypatch.setattr("assay.web.live_updates._STOP_POLL_S", 0.01)
    monkeypatch.setattr("assay.web.live_updates._REST_FACTOR", 1)


def events(url: str, **headers: str) -> Generator[tuple[str, str, Any], None, None]:
    """Name, id and data of each event, as they arrive."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with urllib.request.urlopen(urllib.request.Request(url, headers=named), timeout=60) as stream:
        found: dict[str, str] = {}
        for line in stream:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                found[name] = value
            elif "data" in found:
                yield found["event"], found["id"], json.loads(found["data"])
                found = {}


def test_a_finished_run_is_sent_once_and_ends(viewer: ViewServer, pages: RecordedPages) -> None:
    found = list(events(f"{viewer.url}api/run/{pages.baseline}/events"))

    assert [name for name, _, _ in found] == ["change", "end"]
    assert found[0][2]["recorded"] == 40
    assert found[0][2]["status"] == "completed"


def test_a_run_in_progress_is_sent_until_it_ends(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        run = store.start_run(spec())
        stream = events(f"{viewer.url}api/run/run-1/events")
        first = next(stream)

        record(run, [scored(0)])
        second = next(stream)
        run.finish("completed")
        rest = list(stream)

    assert (first[2]["recorded"], first[2]["status"]) == (0, "running")
    assert second[2]["recorded"] == 1
    assert first[1] != second[1]
    assert [name for name, _, _ in rest][-1] == "end"
    assert rest[-1][2]["status"] == "completed"


def test_a_stream_resumes_after_the_last_event(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        run = store.start_run(spec())
        record(run, [scored(0)])
        _, seen, _ = next(events(f"{viewer.url}api/run/run-1/events"))

        stream = events(f"{viewer.url}api/run/run-1/events", Last_Event_ID=seen)
        record(run, [scored(1)])

        assert next(stream)[2]["recorded"] == 2
        stream.close()


def test_the_list_of_runs_hears_of_new_ones(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        stream = events(f"{viewer.url}api/events")
        first = next(stream)

        record_run(store, "new", [total(0, 0)])

        assert next(stream)[1] != first[1]
        stream.close()


def test_a_deleted_run_ends_its_stream(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        run = store.start_run(spec())
        stream = events(f"{viewer.url}api/run/run-1/events")
        next(stream)
        run.finish("failed")
        store.delete_run("run-1")

        assert list(stream)[-1][2]["status"] in ("deleted", "failed")


def test_an_unknown_run_has_no_stream(viewer: ViewServer) -> None:
    assert ask(viewer, "/api/run/unknown/events").status == 404


def test_too_many_streams_are_refused(
    viewer: ViewServer, pages: RecordedPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.web.live_updates._MAX_STREAMS", 0)

    assert ask(viewer, f"/api/run/{pages.baseline}/events").status == 503


def test_a_store_that_fails_ends_its_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(store: Store) -> str:
        raise StoreError("the store was deleted while it was open")

    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        stream = events(f"{viewer.url}api/events")
        next(stream)
        monkeypatch.setattr(Store, "read_revision", fail)

        assert list(stream) == []
    assert "Traceback" not in capfd.readouterr().err
