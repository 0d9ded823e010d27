"""Live updates: one event for each change, none for what was seen, and an end."""

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Scope

from assay.errors import StoreError
from assay.store import Store
from assay.web import ViewServer
from assay.web.live_updates import ReadChange, stream_changes
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


class _Visitor:
    """A browser that opens a stream and stays until it leaves."""

    def __init__(self, store: Store, streams: dict[str, int]) -> None:
        context = SimpleNamespace(store=store, stopping=threading.Event())
        state = SimpleNamespace(view=context, streams=streams)
        self._gone = asyncio.Event()
        self._scope: Scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/events",
            "headers": [],
            "query_string": b"",
            "app": SimpleNamespace(state=state),
        }

    async def open(self, read: ReadChange) -> None:
        # As the thread pool does: all responses exist before the first one is sent.
        response = stream_changes(Request(self._scope), read)
        await asyncio.sleep(0)
        await response(self._scope, self._receive, self._send)

    def leave(self) -> None:
        self._gone.set()

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        """Take what is sent, and look at none of it."""


@pytest.mark.parametrize("leaves_at_once", [False, True])
def test_a_burst_of_visitors_does_not_pass_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves_at_once: bool
) -> None:
    monkeypatch.setattr("assay.web.live_updates._MAX_STREAMS", 3)
    streams = {"open": 0}

    async def visit(store: Store) -> list[BaseException | None]:
        loop, looked = asyncio.get_running_loop(), asyncio.Event()

        def read(seen: str) -> None:
            loop.call_soon_threadsafe(looked.set)

        visitors = [_Visitor(store, streams) for _ in range(12)]
        if leaves_at_once:
            for visitor in visitors:
                visitor.leave()
        tasks = [asyncio.create_task(visitor.open(read)) for visitor in visitors]
        if not leaves_at_once:
            await looked.wait()
            assert streams["open"] == 3
        for visitor in visitors:
            visitor.leave()
        return await asyncio.gather(*tasks, return_exceptions=True)

    with Store.open(tmp_path / "assay.db") as store:
        ended = asyncio.run(visit(store))

    refused = [each for each in ended if isinstance(each, HTTPException)]
    assert [each.status_code for each in refused] == [503] * 9
    assert ended.count(None) == 3
    # Also those that left before the first event are no longer counted.
    assert streams["open"] == 0


def test_the_slot_of_a_closed_page_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.web.live_updates._MAX_STREAMS", 1)
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        first = events(f"{viewer.url}api/events")
        next(first)
        assert ask(viewer, "/api/events").status == 503

        first.close()

        # The server notices a closed connection in its own time.
        while True:
            with suppress(urllib.error.HTTPError):
                second = events(f"{viewer.url}api/events")
                next(second)
                break
        second.close()


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
