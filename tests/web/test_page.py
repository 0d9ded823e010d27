"""Pages: ids with any character lead to their run, and slow pages show that they are."""

import threading
from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.stats import RunSummary
from assay.store import Run, Store
from assay.web import ViewServer, failures_page, page, value_cache
from assay.web.failure_groups import BadResults, find_bad_results
from assay.web.page import encode_segment
from page_requests import ask, ask_json, build_request
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


def test_a_page_that_takes_long_shows_so_and_appears_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proceed = threading.Event()

    def read_slowly(run: Run, summary: RunSummary) -> BadResults:
        assert proceed.wait(60)
        return find_bad_results(run, summary)

    monkeypatch.setattr(page, "_MAX_WAIT_S", 0)
    monkeypatch.setattr(value_cache, "_QUICK_RESULTS", 0)
    monkeypatch.setattr(failures_page, "find_bad_results", read_slowly)
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        record_run(store, "slow", [total(0, 0)])

        status, headers, text = ask(viewer, "/failures?run=slow")
        assert (status, headers["refresh"]) == (202, "1")
        assert "results are read for the first time" in text
        proceed.set()

        # Programs get the values, however long they take.
        assert ask_json(viewer, "/api/failures?run=slow")["results"] == 1
        assert ask(viewer, "/failures?run=slow")[0] == 200


@pytest.mark.parametrize("text", ["0", "11", "-1", "1.5", "²", "9" * 40])
def test_a_number_outside_its_bounds_is_refused(text: str) -> None:
    request = build_request(("size", text))

    with pytest.raises(ConfigError, match="size must be a whole number from 1 to 10"):
        page.read_number(request, "size", low=1, high=10)
    assert page.read_number(build_request(("size", "10")), "size", low=1, high=10) == 10
    assert page.read_number(request, "from") is None


def test_a_word_that_is_no_choice_is_refused() -> None:
    request = build_request(("show", "some"))

    with pytest.raises(ConfigError, match="show must be one of all, none, not 'some'"):
        page.read_choice(request, "show", ("all", "none"))
    assert page.read_choice(request, "show", ("all", "some")) == "some"
    assert page.read_choice(request, "by", ("all", "some")) is None
