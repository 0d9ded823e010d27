"""The list of runs: what it shows of each, search, filters and pages."""

from pathlib import Path

import pytest

from assay.store import RunSpec, Store
from assay.web import ViewServer, runs_page
from assay.web.runs_page import RUNS_PER_PAGE, find_agent_name
from page_requests import ask, ask_json
from recorded_pages import RecordedPages


def test_runs_are_listed_newest_first(viewer: ViewServer, pages: RecordedPages) -> None:
    found = ask_json(viewer, "/api/runs")["runs"]

    assert [each["id"] for each in found] == [
        pages.hostile,
        pages.repeats,
        pages.changed,
        pages.baseline,
    ]


def test_a_run_has_its_interval_and_the_change_since_the_one_before(
    viewer: ViewServer, pages: RecordedPages
) -> None:
    found = {each["id"]: each for each in ask_json(viewer, "/api/runs")["runs"]}
    changed, baseline = found[pages.changed], found[pages.baseline]

    assert changed["previous"] == pages.baseline
    assert changed["change"] == pytest.approx(changed["mean"] - baseline["mean"])
    assert changed["low"] < changed["mean"] < changed["high"]
    assert (changed["recorded"], changed["failed"], changed["total"]) == (37, 3, 40)
    assert changed["cost_is_partial"]
    assert baseline["previous"] is None
    assert baseline["agent"] == "openai:gpt-5"
    # Repeats depend on each other, and nothing stored their statistics.
    assert found[pages.repeats]["low"] is None


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("q=support+mini", ["tickets-2"]),
        ("q=sums-1", ["sums-1"]),
        ("name=support-bot", ["tickets-2", "tickets-1"]),
        ("status=running", []),
        ("q=nothing+like+this", []),
        ("page=2", []),
    ],
)
def test_runs_are_found(viewer: ViewServer, query: str, ids: list[str]) -> None:
    assert [each["id"] for each in ask_json(viewer, f"/api/runs?{query}")["runs"]] == ids
    assert ask(viewer, f"/?{query}").status == 200


@pytest.mark.parametrize("query", ["status=unheard", "page=0", "page=x", "page=99999999999"])
def test_wrong_parameters_are_refused(viewer: ViewServer, query: str) -> None:
    assert ask(viewer, f"/api/runs?{query}").status == 400


def test_an_empty_store_says_how_to_record_a_run(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        assert "assay eval FILE.py" in ask(viewer, "/").body


def test_many_runs_come_in_pages(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        for number in range(RUNS_PER_PAGE + 5):
            store.start_run(RunSpec(f"r{number}", "many", {}, "c", "d.jsonl")).finish("completed")

        first, second = (ask_json(viewer, f"/api/runs?page={page}") for page in (1, 2))

    assert (len(first["runs"]), first["more"]) == (RUNS_PER_PAGE, True)
    assert [each["id"] for each in second["runs"]] == ["r4", "r3", "r2", "r1", "r0"]
    assert not second["more"]


def test_agents_are_named_as_they_were_configured() -> None:
    assert find_agent_name({"agent": {"name": "bot.py:answer"}}) == "bot.py:answer"
    assert find_agent_name({"agent": "cmd:x"}) == "cmd:x"
    assert find_agent_name({"endpoint": {"provider": "openai", "model": "m"}}) == "openai:m"
    assert find_agent_name({"endpoint": {"model": "m"}}) == "m"
    assert find_agent_name({"agent": None, "endpoint": None}) is None


def test_a_search_that_leaves_older_runs_out_says_so(
    viewer: ViewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "newest 2 runs of the store were searched"
    monkeypatch.setattr(runs_page, "_MAX_SEARCHED", 4)
    assert text not in ask(viewer, "/?q=support").body
    monkeypatch.setattr(runs_page, "_MAX_SEARCHED", 2)

    assert text in ask(viewer, "/?q=support").body
    assert text not in ask(viewer, "/").body
    assert ask_json(viewer, "/api/runs?q=support")["runs"] == []
