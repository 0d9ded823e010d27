"""The page of failures, the dataset made of them, and their export."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from assay.datasets import load_samples
from assay.store import Store
from assay.types import Sample
from assay.web import ViewServer
from assay.web.failures_page import build_dataset_row
from page_requests import ask, ask_json
from recorded_pages import HOSTILE_TEXTS, RecordedPages

REASON = "contradicts policy §N: N days, not N"


def test_groups_have_counts_and_examples(viewer: ViewServer, pages: RecordedPages) -> None:
    view = ask_json(viewer, f"/api/failures?run={pages.changed}")

    assert view["results"] == 13
    group = next(each for each in view["groups"] if each["by"] == "reason")
    assert (group["value"], group["results"]) == (REASON, 10)
    assert group["text"] == "contradicts policy §2: 30 days, not 60"
    assert group["example"].startswith("Can I return the")


def test_a_group_lists_its_samples(viewer: ViewServer, pages: RecordedPages) -> None:
    query = f"run={pages.changed}&by=metric&value=policy"
    view = ask_json(viewer, f"/api/failures?{query}")
    status, _, page = ask(viewer, f"/failures?{query}")

    assert (view["results"], len(view["samples"]), view["next"]) == (10, 10, None)
    assert view["samples"][0]["score"] == 0.0
    assert status == 200
    assert f'href="/run/{pages.changed}/sample/' in page


def test_without_a_run_the_newest_runs_are_read_together(
    viewer: ViewServer, pages: RecordedPages
) -> None:
    view = ask_json(viewer, "/api/failures")

    assert {pages.baseline, pages.changed} <= {run["id"] for run in view["runs"]}
    group = next(each for each in view["groups"] if each["value"] == REASON)
    assert (group["results"], group["runs"]) == (18, 2)


def test_the_dataset_of_a_group_is_read_as_a_dataset(
    viewer: ViewServer, pages: RecordedPages, tmp_path: Path
) -> None:
    query = f"run={pages.baseline}&run={pages.changed}&by=reason&value={quote(REASON)}"
    status, headers, body = ask(viewer, f"/failures/dataset.jsonl?{query}")
    (tmp_path / "failures.jsonl").write_text(body)

    rows = list(load_samples(tmp_path / "failures.jsonl"))

    assert status == 200
    assert headers["content-disposition"] == 'attachment; filename="failures.jsonl"'
    # Two samples are wrong in both runs, and are one row each.
    assert len(rows) == len({row.id for row in rows}) == 16
    assert rows[0].id.startswith("ticket-")
    assert rows[0].ground_truth == "Yes, within 30 days."


def test_the_samples_can_be_exported(viewer: ViewServer, pages: RecordedPages) -> None:
    query = f"run={pages.changed}&by=metric&value=policy"
    _, _, whole = ask(viewer, f"/failures/samples.jsonl?{query}")
    status, headers, rows = ask(viewer, f"/failures/export?{query}&format=trl-sft")

    samples = [Sample.from_json(line) for line in whole.splitlines()]
    assert len(samples) == len(rows.splitlines()) == 10
    assert all(sample.trajectory is not None for sample in samples)
    assert status == 200
    assert headers["content-disposition"] == 'attachment; filename="trl-sft.jsonl"'
    assert {"prompt", "completion"} <= json.loads(rows.splitlines()[0]).keys()


def test_an_export_without_rows_is_explained(viewer: ViewServer, pages: RecordedPages) -> None:
    by = quote("endpoint: TimeoutError: no answer within N s")
    query = f"run={pages.changed}&by=failure&value={by}&format=openai-sft"
    status, _, page = ask(viewer, f"/failures/export?{query}")

    assert status == 400
    assert "none of these samples can be written as openai-sft: 1 failed" in page


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/failures?by=nothing", 400),
        ("/failures?run=tickets-2&by=metric&value=nothing", 404),
        ("/failures?start=-1", 400),
        ("/failures/export?format=../../etc/passwd", 400),
        ("/failures?" + "&".join(f"run=r{index}" for index in range(11)), 400),
    ],
)
def test_a_wrong_request_is_refused(path: str, status: int, viewer: ViewServer) -> None:
    assert ask(viewer, path)[0] == status


def test_a_sample_without_a_row_becomes_one() -> None:
    row = build_dataset_row(Sample(id="q", prompt="Why?", ground_truth=4))

    assert row == {"id": "q", "prompt": "Why?", "ground_truth": 4}


def test_hostile_texts_stay_text(viewer: ViewServer, pages: RecordedPages) -> None:
    _, _, page = ask(viewer, f"/failures?run={pages.hostile}")
    _, headers, body = ask(viewer, f"/failures/dataset.jsonl?run={pages.hostile}")

    assert HOSTILE_TEXTS[1] not in page
    assert headers["content-type"] == "application/x-ndjson"
    assert headers["x-content-type-options"] == "nosniff"
    assert body.isascii()


def test_a_store_without_runs_has_no_failures(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store, ViewServer(store) as viewer:
        status, _, page = ask(viewer, "/failures")

    assert status == 200
    assert "Nothing failed" in page
