"""The pages in a real browser: what they show, the keyboard, and that hostile text stays text."""

from assay.web import ViewServer
from recorded_pages import RecordedPages
from view_fixtures import WatchedPage


def test_a_run_is_opened_from_the_list_by_keyboard(
    viewer: ViewServer, pages: RecordedPages, watched: WatchedPage
) -> None:
    page = watched.page
    page.goto(viewer.url)
    names = [link.get_attribute("href") for link in page.query_selector_all("[data-open]")]

    for _ in range(names.index(f"/run/{pages.baseline}") + 1):
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/run/{pages.baseline}")

    assert page.inner_text("h1").startswith("support-bot")
    assert watched.problems == []


def test_hostile_text_stays_text(
    viewer: ViewServer, pages: RecordedPages, watched: WatchedPage
) -> None:
    page = watched.page

    for path in ("", f"run/{pages.hostile}"):
        page.goto(viewer.url + path)

        assert "owned" not in page.title().replace("<script>document.title='owned'</script>", "")
        assert page.evaluate("document.querySelectorAll('main script, main img').length") == 0
    assert watched.problems == []
    assert [url for url in watched.requests if not url.startswith(viewer.url)] == []
