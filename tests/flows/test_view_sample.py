"""The page of a sample in a real browser: keys, jumps, labels, and hostile text that stays text."""

from typing import Any

import pytest

from assay.store import Store
from assay.web import ViewServer
from recorded_pages import RecordedPages
from recorded_samples import REPEATS, RUN, find_key
from sample_fixtures import SampleViewer
from view_fixtures import WatchedPage


@pytest.fixture
def page(watched: WatchedPage) -> Any:
    return watched.page


def is_open(page: Any, selector: str) -> bool:
    return bool(page.evaluate(f"document.querySelector({selector!r}).open"))


def test_j_and_k_go_through_the_samples_and_u_to_the_run(
    sample_viewer: SampleViewer, watched: WatchedPage, page: Any
) -> None:
    page.goto(sample_viewer.url("judged"))

    page.keyboard.press("j")
    page.wait_for_url(sample_viewer.url("checked"))
    page.keyboard.press("k")
    page.wait_for_url(sample_viewer.url("judged"))
    page.keyboard.press("u")
    page.wait_for_url(f"**/run/{RUN}")

    assert watched.problems == []


def test_a_quote_jumps_to_its_words(
    sample_viewer: SampleViewer, watched: WatchedPage, page: Any
) -> None:
    page.goto(sample_viewer.url("judged"))
    page.evaluate("document.querySelector('.call').open = false")

    page.click("a.quote:has-text('Returns within 30 days')")
    page.wait_for_selector("mark[aria-current]")

    assert page.inner_text("mark[aria-current]") == "Returns within 30 days"
    assert is_open(page, ".call")
    assert watched.problems == []


def test_a_finding_of_a_check_opens_the_failed_call(sample_viewer: SampleViewer, page: Any) -> None:
    page.goto(sample_viewer.url("checked"))

    assert is_open(page, ".call")
    page.click("a.quote")

    assert page.inner_text("mark[aria-current]") == "Permission denied"
    assert "exit 1" in page.inner_text(".call summary")


def test_turns_are_selected_and_opened_by_keyboard(sample_viewer: SampleViewer, page: Any) -> None:
    page.goto(sample_viewer.url("nested"))
    assert not is_open(page, ".call")

    for _ in range(2):
        page.keyboard.press("J")
    assert page.evaluate("document.activeElement.id") == "turn-2"
    page.keyboard.press("Enter")
    assert is_open(page, ".call")
    page.keyboard.press("o")
    page.keyboard.press("K")

    assert not is_open(page, ".call") or page.evaluate("document.activeElement.id") == "turn-1"
    assert page.evaluate("document.activeElement.id") == "turn-1"


def test_the_transcript_is_searched_across_pages(
    sample_viewer: SampleViewer, watched: WatchedPage, page: Any
) -> None:
    page.goto(sample_viewer.url("long"))

    page.keyboard.press("/")
    page.keyboard.type("number 777")
    page.keyboard.press("Enter")
    # Keys of the page work once its script has run, not when its text is there.
    page.wait_for_url("**find=number*")

    page.keyboard.press("n")
    assert (
        page.evaluate("document.querySelector('mark[aria-current]').closest('article').id")
        == "turn-778"
    )
    page.keyboard.press("n")
    page.wait_for_url("**turn=7771**")
    assert page.inner_text("#turn-7771 mark") == "number 777"
    assert watched.problems == []


def test_a_page_of_ten_thousand_turns_is_small_and_shows_more(
    sample_viewer: SampleViewer, watched: WatchedPage, page: Any
) -> None:
    page.goto(sample_viewer.url("long"))

    assert page.locator("article").count() == 50
    assert len(page.inner_text("#turn-6 [data-text]")) < 21_000
    for _ in range(4):
        if page.locator("#turn-6 [data-more]").count():
            before = len(page.inner_text("#turn-6 [data-text]"))
            page.click("#turn-6 [data-more]")
            page.wait_for_function(
                "before => document.querySelector('#turn-6 [data-text]').innerText.length > before",
                arg=before,
            )
    assert page.inner_text("#turn-6 [data-text]").endswith(" the-end")
    assert page.locator("#turn-6 .more").count() == 0

    page.locator("text=Show more turns").last.click()
    page.wait_for_selector("#turn-51")
    assert page.locator("article").count() == 50
    assert watched.problems == []


def test_the_help_lists_the_keys_of_the_page(sample_viewer: SampleViewer, page: Any) -> None:
    page.goto(sample_viewer.url("judged"))

    page.keyboard.press("?")

    assert "next, previous sample" in page.inner_text("#help")
    assert "next, previous line" not in page.inner_text("#help")


def test_markdown_is_toggled_and_kept_for_the_next_sample(
    sample_viewer: SampleViewer, watched: WatchedPage, page: Any
) -> None:
    address = sample_viewer.url("markdown")
    page.goto(address)

    page.keyboard.press("m")
    page.wait_for_url(f"{address}*text=markdown")
    assert page.locator(".markdown strong").count() > 0
    title = page.title()
    page.keyboard.press("k")
    page.wait_for_url(lambda url: url.endswith("text=markdown") and not url.startswith(address))

    assert title == "Show me. · assay"
    assert page.locator(".markdown a, .markdown img").count() == 0
    assert watched.problems == []
    assert all(url.startswith(sample_viewer.server.url) for url in watched.requests)


def test_a_sample_is_labelled_by_keyboard(
    sample_viewer: SampleViewer, sample_store: Store, watched: WatchedPage, page: Any
) -> None:
    run = sample_store.run(RUN)
    page.goto(sample_viewer.url("steps"))

    page.keyboard.press("l")
    page.keyboard.press("f")
    page.wait_for_selector("[data-status]:text-is('saved')")
    page.keyboard.press("c")
    page.keyboard.type("Go left first.")
    page.fill("[name=author]", "grace")
    page.focus("[name=answer]")
    page.keyboard.press("Control+Enter")
    page.wait_for_function(
        "() => document.querySelector('[data-current]').textContent.includes('grace')"
    )

    key = find_key(run, "steps")
    assert page.locator("[data-current] .tag.fail").count() == 1
    label = run.find_labels([key])[key]
    assert (label.verdict, label.answer, label.author) == ("fail", "Go left first.", "grace")

    # The next sample is ready for its label.
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.wait_for_url(sample_viewer.url("nested"))
    page.keyboard.press("p")
    page.wait_for_selector("[data-status]:text-is('saved')")
    assert page.input_value("[name=author]") == "grace"
    second = find_key(run, "nested")
    assert run.find_labels([second])[second].verdict == "pass"
    assert watched.problems == []


def test_a_label_is_removed(sample_viewer: SampleViewer, sample_store: Store, page: Any) -> None:
    run = sample_store.run(REPEATS)
    page.goto(sample_viewer.url("failed", run=REPEATS))
    page.keyboard.press("l")
    page.keyboard.press("p")
    page.wait_for_selector("[data-status]:text-is('saved')")

    page.click("[data-withdraw]")
    page.wait_for_selector("[data-current]:text-is('not labelled')")

    assert run.find_labels([find_key(run, "failed")]) == {}


def test_a_wrong_score_is_refused_before_it_is_sent(
    sample_viewer: SampleViewer, watched: WatchedPage, page: Any
) -> None:
    page.goto(sample_viewer.url("tokens"))

    page.fill("[name=score]", "much")
    page.click("text=Save")
    page.wait_for_selector("[data-status]:text-is('the score must be a number')")
    page.fill("[name=score]", "0,5")
    page.click("text=Save")

    page.wait_for_selector("[data-status]:text-is('saved')")
    assert "score 0.5" in page.inner_text("[data-current]")


def test_files_are_shown_from_the_record_only(
    sample_viewer: SampleViewer, watched: WatchedPage, page: Any
) -> None:
    page.goto(sample_viewer.url("files"))
    page.wait_for_function("() => document.querySelector('.file img').complete")

    assert page.evaluate("[...document.querySelectorAll('img')].map(i => i.naturalWidth)") == [2]
    assert "not loaded: http://127.0.0.1:9/pixel.png" in page.inner_text("article")
    assert watched.problems == []
    assert all(url.startswith(sample_viewer.server.url) for url in watched.requests)


def test_hostile_text_stays_text_on_every_page_of_a_sample(
    viewer: ViewServer, page_store: Store, pages: RecordedPages, watched: WatchedPage, page: Any
) -> None:
    served = SampleViewer(viewer, page_store)
    rows = list(page_store.run(pages.hostile).results())

    for row in rows:
        for extra in ("", "?text=markdown", "?find=%3Cscript%3E", "/text?part=row", "/tokens"):
            page.goto(served.url(row.sample_id, extra, run=pages.hostile))
            # Nothing of the texts is an element, and none of them has run.
            assert (
                page.evaluate(
                    "document.querySelectorAll('main script, main img, main svg, main iframe, "
                    "main [onerror], main [onload], main a[href^=javascript]').length"
                )
                == 0
            )
            assert page.evaluate("document.title") != "owned"
            page.keyboard.press("o")
    assert watched.problems == []
    assert all(url.startswith(viewer.url) for url in watched.requests)


def test_a_sample_can_be_read_without_scripts(
    sample_viewer: SampleViewer, browser: Any, watched: WatchedPage
) -> None:
    context = browser[0].new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(sample_viewer.url("judged"))

        assert page.locator("article").count() == 4
        assert page.is_hidden("form[data-label]")
        page.click("a.quote >> nth=0")
        assert page.url.endswith("#turn-5")
        page.goto(sample_viewer.url("long"))
        page.click("#turn-6 [data-more]")
        assert "characters 20,001–120,000 of 300,014" in page.inner_text("main")
    finally:
        context.close()


@pytest.mark.parametrize("width", [360, 2000])
def test_nothing_is_scrolled_sideways(width: int, sample_viewer: SampleViewer, page: Any) -> None:
    page.set_viewport_size({"width": width, "height": 900})

    for name in ("judged", "checked", "nested", "files", "markdown"):
        page.goto(sample_viewer.url(name))
        page.keyboard.press("o")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
