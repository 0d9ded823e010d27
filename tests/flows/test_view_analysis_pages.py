"""Compare, history, failures and the other pages in a real browser, and reports from disk."""

from pathlib import Path

import pytest

from assay.store import Store
from assay.web import ViewServer, write_static_report
from recorded_pages import HOSTILE_TEXTS, RecordedPages
from view_fixtures import WatchedPage


def test_two_runs_are_chosen_and_compared_by_keyboard(
    viewer: ViewServer, pages: RecordedPages, watched: WatchedPage
) -> None:
    page = watched.page
    page.goto(f"{viewer.url}compare")
    assert page.is_disabled("[data-submit]")

    for run in (pages.changed, pages.baseline):
        page.focus(f"input[value='{run}']")
        page.keyboard.press("Space")
    assert page.inner_text("[data-picked]") == "2 chosen"
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare?*run=*")

    # The oldest run is the baseline.
    assert " ".join(page.inner_text("h1").split()) == "openai:gpt-5-mini against openai:gpt-5"
    assert page.inner_text(".flip del") == "30"
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare/sample?*")
    assert "equal turns before the first difference" in page.inner_text("main")
    assert watched.problems == []


def test_a_point_of_the_history_leads_to_the_comparison(
    viewer: ViewServer, pages: RecordedPages, watched: WatchedPage
) -> None:
    page = watched.page
    page.goto(f"{viewer.url}history")
    page.click("text=support-bot")
    page.wait_for_url("**/history?*")
    page.locator("svg.curve a").last.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/compare?run={pages.baseline}&run={pages.changed}")

    assert watched.problems == []


def test_failures_become_a_dataset(
    viewer: ViewServer, pages: RecordedPages, watched: WatchedPage, tmp_path: Path
) -> None:
    page = watched.page
    page.goto(f"{viewer.url}failures?run={pages.changed}")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/failures?*by=failure*")
    with page.expect_download() as started:
        page.click("text=Make a dataset of these")
    started.value.save_as(tmp_path / "failures.jsonl")

    assert len((tmp_path / "failures.jsonl").read_text().splitlines()) == 2
    assert watched.problems == []


def test_hostile_text_stays_text_on_every_page(
    viewer: ViewServer, pages: RecordedPages, watched: WatchedPage
) -> None:
    page, run = watched.page, pages.hostile
    pair = f"run={run}&run={pages.baseline}"
    for path in (f"compare?{pair}&show=all", "compare", "history", f"failures?run={run}"):
        page.goto(viewer.url + path)
        for link in page.query_selector_all("main a"):
            assert not (link.get_attribute("href") or "").startswith("javascript:")

        assert page.evaluate("document.querySelectorAll('main script, main img').length") == 0
        assert "owned" not in page.title()
    assert watched.problems == []
    assert [url for url in watched.requests if not url.startswith(viewer.url)] == []


@pytest.mark.parametrize("width", [360, 2000])
def test_pages_fit_any_width(
    width: int, viewer: ViewServer, pages: RecordedPages, watched: WatchedPage
) -> None:
    page, both = watched.page, f"run={pages.baseline}&run={pages.changed}"
    page.set_viewport_size({"width": width, "height": 800})
    paths = (
        f"compare?{both}",
        f"compare?{both}&run={pages.repeats}",
        f"compare/sample?{both}&id=ticket-4",
        "history",
        "history?name=support-bot",
        "failures",
        f"failures?run={pages.hostile}",
        "sessions",
        "certificates",
    )
    for path in paths:
        page.goto(viewer.url + path)

        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, path


def test_a_report_opens_from_disk_and_requests_nothing(
    page_store: Store, pages: RecordedPages, watched: WatchedPage, tmp_path: Path
) -> None:
    target = tmp_path / "report.html"
    write_static_report(page_store, [pages.baseline, pages.changed], target)
    page = watched.page
    page.goto(target.as_uri())

    page.fill("[data-find]", "order 5107")
    shown = page.locator(".report-samples > details:visible")
    assert shown.count() == 2
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    # The failed one comes later: the first line is that of the baseline, with its transcript.
    assert "You are a support agent." in shown.first.inner_text()
    assert page.inner_text("#compare .matrix tbody tr:last-child").startswith("openai:gpt-5-mini")
    assert watched.problems == []
    assert watched.requests == [target.as_uri()]


def test_a_hostile_report_runs_and_requests_nothing(
    page_store: Store, pages: RecordedPages, watched: WatchedPage, tmp_path: Path
) -> None:
    target = tmp_path / "hostile.html"
    write_static_report(page_store, [pages.hostile], target)
    page = watched.page
    page.goto(target.as_uri())
    for line in page.query_selector_all(".report-sample summary"):
        line.click()

    assert page.title() == f"{HOSTILE_TEXTS[0]} · assay"
    assert page.evaluate("document.querySelectorAll('main script, main img, main a').length") == 0
    assert watched.problems == []
    assert watched.requests == [target.as_uri()]
    # Were a text ever markup, the policy of the file would refuse what it does.
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<b onclick=alert(1)>x</b>')")
    page.click("body > b")
    assert ["Content Security Policy" in problem for problem in watched.problems] == [True]
