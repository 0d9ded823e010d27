"""The page of a run: figures as in `assay show --json`, and the table of its samples."""

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from assay.store import SampleLabel, Store
from assay.types import EvaluateResult
from assay.web import ViewServer
from assay.web.static_report import render_static_report
from commands import call_main
from page_requests import ask, ask_json
from recorded_pages import RecordedPages, record_run, ticket, total
from store_runs import scored


def test_the_json_of_a_run_is_that_of_the_command(
    viewer: ViewServer, pages: RecordedPages, page_store: Store, tmp_path: Path
) -> None:
    found = ask_json(viewer, f"/api/run/{pages.changed}")

    ended = call_main(tmp_path, "show", pages.changed, "--json", "--store", page_store.where)

    shown = json.loads(ended.stdout)
    assert {name: found[name] for name in shown} == shown


def test_a_run_is_set_against_threshold_and_previous_run(
    viewer: ViewServer, pages: RecordedPages
) -> None:
    found = ask_json(viewer, f"/api/run/{pages.changed}")

    assert found["threshold"] == 0.85
    assert found["previous"]["id"] == pages.baseline
    assert found["previous"]["p_value"] > 0.05
    assert (found["failed"], found["unscored"], found["is_live"]) == (3, 0, False)
    assert "misses threshold 0.850" in ask(viewer, f"/run/{pages.changed}").body


def test_tokens_that_no_result_recorded_are_unknown(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store, ViewServer(store) as viewer:
        record_run(store, "a", [scored(0)])
        record_run(store, "b", [scored(0), total(1, 0)])
        none, some = ask(viewer, "/run/a").body, ask(viewer, "/run/b").body

    assert "<small>tokens unknown</small>" in none
    assert "<small>25 tokens, 1 unknown</small>" in some


def test_a_mean_that_is_low_by_rounding_only_passes_as_in_its_test(tmp_path: Path) -> None:
    judged = [
        ticket(index).model_copy(
            update={
                "score": EvaluateResult(score=score),
                "metadata": {"test": "test_a", "threshold": 0.65},
            }
        )
        for index, score in enumerate((0.6, 0.7))
    ]
    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", judged)
        report = render_static_report(store, ["a"])
        with ViewServer(store) as viewer:
            page, history = ask(viewer, "/run/a").body, ask(viewer, "/history?run=a").body

    assert "passes threshold 0.650" in page
    assert "passes threshold 0.650" in report
    assert not [text for text in (page, history, report) if 'class="gate missed"' in text]


def table(viewer: ViewServer, run_id: str, **query: str) -> list[str]:
    found = ask_json(viewer, f"/api/run/{run_id}/table?{urlencode(query)}")
    return [each["id"] for each in found["rows"]]


def test_the_table_is_sorted_filtered_and_paged(viewer: ViewServer, pages: RecordedPages) -> None:
    worst = table(viewer, pages.changed, sort="score", size="3")
    lamps = table(viewer, pages.changed, filter='product = "lamp" and price > 50')
    first = ask_json(viewer, f"/api/run/{pages.changed}/table?size=15")
    second = ask_json(viewer, f"/api/run/{pages.changed}/table?size=15&after={first['next']}")

    assert worst == ["ticket-0", "ticket-12", "ticket-24"]
    assert lamps == ["ticket-32", "ticket-36"]
    assert [each["id"] for each in second["rows"]] == [f"ticket-{n}" for n in range(15, 30)]
    assert first["previous"] is None
    assert (first["matched"], first["total"]) == (40, 40)
    assert first["fields"] == ["question", "answer", "product", "price"]
    assert first["metrics"] == ["policy", "tone"]


def test_groups_have_counts_and_means(viewer: ViewServer, pages: RecordedPages) -> None:
    found = ask_json(viewer, f"/api/run/{pages.changed}/table?group=product")

    groups = {each["value"]: each for each in found["groups"]}
    assert groups["lamp"]["mean"] == pytest.approx(0.24)
    assert groups["rug"]["failed"] == 3
    assert ask(viewer, f"/run/{pages.changed}?group=product").body.count("<bdi>lamp</bdi>") == 1


def test_every_link_of_the_page_leads_somewhere(viewer: ViewServer, pages: RecordedPages) -> None:
    body = ask(viewer, f"/run/{pages.changed}?group=reason&sort=score").body
    links = {unescape(each) for each in re.findall(r'href="(/run/[^"]+)"', body)}
    tables = {each.partition("#")[0] for each in links if "/sample/" not in each}

    assert len(tables) > 10
    assert {link: ask(viewer, link).status for link in tables} == dict.fromkeys(tables, 200)


def test_large_counts_are_asked_for_apart(viewer: ViewServer, pages: RecordedPages) -> None:
    query = urlencode({"filter": "returned or return", "size": "10"})
    found = ask_json(viewer, f"/api/run/{pages.changed}/table?{query}")

    assert found["matched"] is None
    assert ask_json(viewer, f"/api/run/{pages.changed}/count?{query}")["matched"] == 40


@pytest.mark.parametrize(
    "query", ["size=0", "size=501", "size=x", "after=bad", "filter=a+%3D", "group=%60%22"]
)
def test_wrong_parameters_are_refused(viewer: ViewServer, query: str) -> None:
    assert ask(viewer, f"/api/run/tickets-1/table?{query}").status == 400
    assert ask(viewer, f"/run/tickets-1?{query}").status == 400


def test_labels_of_people_are_shown(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        record_run(store, "r", [ticket(0), ticket(1)])
        run = store.run("r")
        key = next(run.results()).key
        run.write_label(SampleLabel(key, verdict="pass", author="ada"))

        rows = ask_json(viewer, "/api/run/r/table")["rows"]
        page = ask(viewer, "/run/r").body

    assert [each["verdict"] for each in rows] == ["pass", None]
    assert "labelled pass" in page


def test_low_scores_can_be_the_good_ones(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        record_run(store, "errors", [total(0, 0), total(1, 0)], config={"direction": "min"})

        found = ask_json(viewer, "/api/run/errors")
        page = ask(viewer, "/run/errors").body

    assert found["low_scores"]["best"] == 0.0
    assert found["table"]["low_is_good"]
    assert "High scores by reason" in page
    assert 'class="tag pass">0.000' in page
    assert 'class="tag fail">1.000' in page


def test_reasons_of_results_that_were_not_judged_are_shown(tmp_path: Path) -> None:
    refused = EvaluateResult(score=0.0, is_score_valid=False, reason="the judge <refused>")
    sample = total(1, 1).model_copy(update={"score": refused})
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        record_run(store, "r", [sample])

        page = ask(viewer, "/run/r").body
        filtered = quote('score = unknown and failed = unknown and reason ~ "the judge <refused>"')
        found = ask_json(viewer, f"/api/run/r/table?filter={filtered}")

    assert "Results that were not judged, by reason" in page
    assert "the judge &lt;refused&gt;" in page
    assert len(found["rows"]) == 1


def test_a_run_without_results_has_a_page(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        record_run(store, "empty", [], total=None)

        answer = ask(viewer, "/run/empty")

    assert answer.status == 200
    assert "No samples yet" in answer.body


def test_a_run_in_progress_is_live(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        run = record_run(store, "live", [total(0, 0)], total=10, finish=False)

        found = ask_json(viewer, "/api/run/live")
        page = ask(viewer, "/run/live").body

    assert (run.id, found["is_live"]) == ("live", True)
    assert 'data-live="/api/run/live/events"' in page
    assert "1 of 10 results" in page


def test_hostile_text_is_escaped_in_html_and_kept_in_json(
    viewer: ViewServer, pages: RecordedPages
) -> None:
    page = ask(viewer, f"/run/{pages.hostile}").body
    rows = ask_json(viewer, f"/api/run/{pages.hostile}/table")["rows"]

    assert "<script>document" not in page
    assert "<img" not in page
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert rows[0]["answer"] == "<script>document.title='owned'</script>"


def test_the_change_is_that_of_the_pairs_which_the_p_value_tests(
    viewer: ViewServer, pages: RecordedPages
) -> None:
    run = ask_json(viewer, f"/api/run/{pages.changed}")
    compared = ask_json(viewer, f"/api/compare?run={pages.baseline}&run={pages.changed}")

    # Three samples failed: the means of all results differ by another amount.
    assert run["previous"]["change"] == compared["comparisons"][0]["difference"]["mean"]
    assert run["previous"]["p_value"] == compared["comparisons"][0]["p_value"]
