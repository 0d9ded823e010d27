"""The page of a sample: what it shows, in pages, and that its JSON is the same."""

import json
import time
from pathlib import Path

import pytest

from assay.store import Store
from assay.types import Sample, ToolCall, Trajectory
from assay.web import ViewServer
from make import answered, asked, said
from page_requests import ask_json
from recorded_pages import HOSTILE_TEXTS, RecordedPages, record_run
from recorded_samples import LONG_TURNS, REPEATS, RUN, build, png
from sample_fixtures import SampleViewer


def test_the_page_shows_question_answer_and_result(sample_viewer: SampleViewer) -> None:
    page = sample_viewer.text("judged")

    assert "<h1><bdi>Can I return a lamp after 40 days?</bdi></h1>" in page
    assert '<mark class="cited">Returns within 30 days</mark>' in page
    assert 'href="#turn-4"' in page
    assert "not found in the transcript" in page
    assert "System prompt" in page


def test_the_json_has_the_same_content(sample_viewer: SampleViewer) -> None:
    view = sample_viewer.json("judged")

    assert (view["sample_id"], view["score"]["score"]) == ("judged", 0.0)
    assert [turn["number"] for turn in view["page"]["turns"]] == [1, 2, 3, 5]
    result = view["page"]["turns"][2]["calls"][0]["results"][0]
    assert result["text"]["marks"] == [{"start": 3, "end": 25, "name": "quote-2"}]
    assert view["page"]["turns"][2]["seconds"] == 1.1


def test_the_exit_status_of_a_command_is_visible(sample_viewer: SampleViewer) -> None:
    assert '<span class="tag fail">exit 1</span>' in sample_viewer.text("checked")


def test_repeats_and_attempts_are_tabs(sample_viewer: SampleViewer) -> None:
    twice = sample_viewer.json("twice", run=REPEATS)
    retried = sample_viewer.json("retried", run=REPEATS)
    number = retried["attempts"][0]["number"]
    attempt = sample_viewer.json("retried", f"?attempt={number}", run=REPEATS)

    assert [(tab["repeat"], tab["score"]) for tab in twice["repeats"]] == [(0, 1.0), (1, 0.0)]
    assert retried["answer"]["text"] == "whole answer"
    assert attempt["answer"]["text"] == "half an"
    assert attempt["failure"]["traceback"] == "line 1\nline 2"
    assert "Attempt 1" in sample_viewer.text("retried", run=REPEATS)


def test_a_failed_sample_is_shown(sample_viewer: SampleViewer) -> None:
    page = sample_viewer.text("failed", run=REPEATS)

    assert "the server is gone" in page
    assert "Traceback" in page


def test_neighbours_follow_the_order_and_filter_of_the_table(sample_viewer: SampleViewer) -> None:
    keys = {row.sample_id: row.key for row in sample_viewer.store.run(RUN).results()}

    plain = sample_viewer.json("checked")
    sorted_ = sample_viewer.json("tokens", "?sort=score&order=desc&filter=score+%3E+0")

    assert (plain["previous"], plain["next"]) == (keys["judged"], keys["steps"])
    assert (sorted_["previous"], sorted_["next"]) == (keys["steps"], keys["checked"])
    assert sorted_["parameters"] == {"filter": "score > 0", "sort": "score", "order": "desc"}


def test_ten_thousand_turns_arrive_in_pages(sample_viewer: SampleViewer) -> None:
    first = sample_viewer.json("long")
    last = sample_viewer.json("long", f"?turn={LONG_TURNS}")

    assert (len(first["page"]["turns"]), first["page"]["total"]) == (50, LONG_TURNS)
    assert last["page"]["turns"][-1]["text"]["text"] == f"number {LONG_TURNS - 1}"
    page = sample_viewer.text("long")
    assert len(page) < 150_000
    assert "turns 1–50 of 10,000" in page
    assert "20,000 of 300,014 characters are shown" in page


def test_the_rest_of_a_long_text_is_read_in_parts(sample_viewer: SampleViewer) -> None:
    text = ""
    offset: int | None = 0
    while offset is not None:
        part = sample_viewer.json("long", f"/text?turn=6&part=text&offset={offset}")
        assert len(part["text"]) <= 100_000
        text += part["text"]
        offset = part["next_offset"]

    assert text == "begin " + "x" * 300_000 + " the-end"


def test_a_search_finds_turns_on_all_pages(sample_viewer: SampleViewer) -> None:
    view = sample_viewer.json("long", "?find=number+777")

    assert view["matches"]["count"] == 11
    assert view["page"]["turns"][3]["number"] == 778
    assert view["page"]["turns"][3]["text"]["marks"][0]["name"] == "find"
    assert view["matches"]["next"] == 7771


@pytest.mark.slow
def test_a_message_of_50_mb_is_cut_and_kept(empty_store: Store) -> None:
    huge = build(0, "huge", [asked("Go."), said("y" * 50_000_000)])
    record_run(empty_store, "huge", [huge])

    with ViewServer(empty_store) as server:
        viewer = SampleViewer(server, empty_store)
        started = time.process_time()
        page = viewer.text("huge", run="huge")
        seconds = time.process_time() - started

    assert len(page) < 100_000
    assert "20,000 of 50,000,000 characters are shown" in page
    assert seconds < 30


def test_subagents_and_branches_are_conversations(sample_viewer: SampleViewer) -> None:
    inner = sample_viewer.json("nested", "?at=agent-0-0")
    branch = sample_viewer.json("branched", "?at=branch-2")

    assert inner["page"]["turns"][1]["text"]["marks"] != []
    assert branch["page"]["turns"][0]["text"]["text"] == "Summary so far."
    assert "<b>compaction</b>" in sample_viewer.text("branched")


def test_an_image_is_sent_from_the_record(sample_viewer: SampleViewer) -> None:
    status, headers, body = sample_viewer.get(
        f"{sample_viewer.path('files')}/file?turn=1&block=1&show=1"
    )

    assert (status, headers["content-type"], body) == (200, "image/png", png())
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize("block", [2, 5, 6, 7])
def test_other_files_are_downloads_of_no_type(block: int, sample_viewer: SampleViewer) -> None:
    status, headers, _ = sample_viewer.get(
        f"{sample_viewer.path('files')}/file?turn=1&block={block}&show=1"
    )

    assert (status, headers["content-type"]) == (200, "application/octet-stream")
    assert headers["content-disposition"].startswith("attachment")
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "extra",
    [
        "/file?turn=1&block=0",
        "/file?turn=1&block=3",
        "/file?turn=9&block=0",
        "/file?turn=1&block=99",
        "/text?turn=1&part=argument-0-0",
        "/text?turn=99&part=text",
        "/text?part=unknown",
        "?at=agent-7",
        "?attempt=999",
    ],
)
def test_missing_parts_are_not_found(extra: str, sample_viewer: SampleViewer) -> None:
    assert sample_viewer.get(sample_viewer.path("files") + extra)[0] == 404


@pytest.mark.parametrize("extra", ["?turn=x", "?from=-1", "?attempt=1e9", "?filter=((", "?sort="])
def test_invalid_parameters_are_refused(extra: str, sample_viewer: SampleViewer) -> None:
    status, _, body = sample_viewer.get(sample_viewer.path("files") + extra)

    assert status == (200 if extra == "?sort=" else 400)
    assert b"Traceback" not in body


def test_an_unknown_sample_is_not_found(sample_viewer: SampleViewer) -> None:
    assert sample_viewer.get(f"/run/{RUN}/sample/unknown")[0] == 404


def test_the_raw_sample_is_a_download_of_everything(sample_viewer: SampleViewer) -> None:
    status, headers, body = sample_viewer.get(f"{sample_viewer.path('judged')}/raw")

    assert (status, headers["content-type"]) == (200, "application/json")
    assert headers["content-disposition"] == 'attachment; filename="sample.json"'
    assert Sample.from_json(body).id == "judged"


def test_hostile_texts_are_escaped_everywhere(
    viewer: ViewServer, page_store: Store, pages: RecordedPages
) -> None:
    served = SampleViewer(viewer, page_store)
    for row in page_store.run(pages.hostile).results():
        for extra in ("", "?text=markdown"):
            text = served.text(row.sample_id, extra, run=pages.hostile)
            for bad in (
                "<script>document",
                "<img src=x",
                "<svg onload",
                "\u202e",
                "\x1b",
                'javascript:alert(1)"',
            ):
                assert bad not in text
            assert json.dumps(HOSTILE_TEXTS[0])[1:-1] not in text


def test_the_search_goes_past_a_result_that_arrived_late(tmp_path: Path) -> None:
    turns = [asked("Go."), said(None, ToolCall(id="slow", name="build", arguments={}))]
    turns += [asked("And?") if index % 2 else said("Not yet.") for index in range(120)]
    turns += [answered("needle", "slow"), *[said(f"step {index}") for index in range(9)]]
    turns += [said("The needle is there.")]
    sample = Sample(id="a", prompt="Go.", trajectory=Trajectory(messages=turns))
    with Store.open(tmp_path / "s.db") as store, ViewServer(store) as viewer:
        record_run(store, "run", [sample])
        (row,) = ask_json(viewer, "/api/run/run/table")["rows"]
        address = f"/api/run/run/sample/{row['key']}?find=needle"
        first, last = (ask_json(viewer, address + more) for more in ("", "&turn=133"))

    # The result is shown with its call, which is on the first page.
    assert first["matches"]["numbers"] == [123, 133]
    assert first["page"]["first"] == 0
    assert (first["matches"]["previous"], first["matches"]["next"]) == (None, 133)
    assert (last["matches"]["previous"], last["matches"]["next"]) == (123, None)
