"""Addresses of pages: ids with any character lead to their run."""

from pathlib import Path

import pytest

from assay.store import Store
from assay.web import ViewServer
from assay.web.page import encode_segment
from page_requests import ask_json
from recorded_pages import record_run, total

IDS = ("plain-1", "a/b", "100%", "a%2Fb", "what? #1", "ü&=+", "..", "<b>")


def test_plain_ids_are_readable_in_addresses() -> None:
    assert encode_segment("tickets-1_a.b") == "tickets-1_a.b"


@pytest.mark.parametrize("run_id", IDS)
def test_an_id_with_any_character_has_its_page(run_id: str, tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        record_run(store, run_id, [total(0, 0)])

        found = ask_json(viewer, f"/api/run/{encode_segment(run_id)}")

    assert found["run"]["id"] == run_id
