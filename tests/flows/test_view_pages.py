"""The pages in a real browser: what they show, the keyboard, and that hostile text stays text."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from assay.runner import EvalConfig, evaluate_sync
from assay.store import Store
from assay.types import Sample
from assay.web import ViewServer, ViewSettings
from recorded_pages import RecordedPages, record_run, ticket
from view_fixtures import WatchedPage


def open_page(watched: WatchedPage, viewer: ViewServer, path: str = "") -> None:
    watched.page.goto(viewer.url + path)


def list_paths(pages: RecordedPages) -> list[str]:
    """One address of each page."""
    both = f"run={pages.baseline}&run={pages.changed}"
    return [
        "",
        f"run/{pages.changed}",
        f"run/{pages.changed}/labels",
        "compare",
        f"compare?{both}",
        f"compare?{both}&run={pages.repeats}",
        f"compare/sample?{both}&id=ticket-4",
        "history",
        "history?name=support-bot",
        f"failures?run={pages.changed}",
        f"failures?run={pages.changed}&by=metric&value=tone",
        "sessions",
        "certificates",
        "run/unknown",
    ]


def current(watched: WatchedPage) -> str:
    """The text of the selected line."""
    return watched.page.inner_text("[data-item][aria-selected=true] [data-open]")


def test_a_run_is_opened_from_the_list_by_keyboard(
    viewer: ViewServer, pages: RecordedPages, watched: WatchedPage
) -> None:
    page = watched.page
    open_page(watched, viewer)
    links = [link.get_attribute("href") for link in page.query_selector_all("[data-open]")]

    for _ in range(links.index(f"/run/{pages.baseline}") + 1):
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/run/{pages.baseline}")

    assert page.inner_text("h1").startswith("support-bot")
    assert watched.problems == []


def test_runs_are_selected_and_compared(
    viewer: ViewServer, pages: RecordedPages, watched: WatchedPage
) -> None:
    page = watched.page
    open_page(watched, viewer, "?name=support-bot")
    assert page.is_disabled("[data-compare]")

    for key in ("j", "x", "j", "x"):
        page.keyboard.press(key)
    assert page.inner_text("[data-compare]").split() == ["Compare", "selected", "(2)"]
    page.keyboard.press("c")

    page.wait_for_url(f"**/compare?order=oldest&run={pages.changed}&run={pages.baseline}")


def test_the_search_and_the_help_have_keys(viewer: ViewServer, watched: WatchedPage) -> None:
    page = watched.page
    open_page(watched, viewer)

    page.keyboard.press("?")
    assert page.is_visible("dialog#help")
    page.keyboard.press("Escape")
    assert not page.is_visible("dialog#help")
    page.keyboard.press("/")
    page.keyboard.type("sums")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=sums")

    assert page.locator("[data-item]").count() == 1
    assert watched.problems == []


def test_samples_are_sorted_filtered_and_grouped_without_leaving_the_page(
    viewer: ViewServer, pages: RecordedPages, watched: WatchedPage
) -> None:
    page = watched.page
    open_page(watched, viewer, f"run/{pages.changed}")
    page.evaluate("document.body.dataset.same = 'yes'")

    page.click("th >> text=Score")
    page.wait_for_selector("th[aria-sort=ascending] >> text=Score")
    page.keyboard.press("/")
    page.keyboard.type('product = "rug" and price > 40')
    page.keyboard.press("Enter")
    page.wait_for_selector("#samples >> text=5 of 40 results")
    page.select_option("select[name=group]", "failed")
    page.wait_for_selector(".groups >> text=agent")

    assert page.evaluate("document.body.dataset.same") == "yes"
    assert "sort=score" in page.url
    page.go_back()
    page.wait_for_selector(".groups", state="detached")
    assert watched.problems == []


def test_pages_of_samples_follow_each_other_by_keyboard(
    tmp_path: Path, watched: WatchedPage
) -> None:
    page = watched.page
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        record_run(store, "long", map(ticket, range(130)))
        open_page(watched, viewer, "run/long")

        page.keyboard.press("k")
        assert current(watched).endswith("5199?")
        page.keyboard.press("j")
        page.wait_for_selector("text=order 5229")

        assert current(watched).endswith("5200?")
        page.keyboard.press("p")
        page.wait_for_selector("text=order 5100?")
    assert watched.problems == []


def test_a_run_is_updated_while_it_works(tmp_path: Path, watched: WatchedPage) -> None:
    page, path, proceed = watched.page, tmp_path / "assay.db", threading.Event()

    def answer(sample: Sample) -> str:
        if sample["number"] >= 3:
            assert proceed.wait(60)
        return f"answer {sample['number']}"

    rows = [{"question": f"Question {number}?", "number": number} for number in range(6)]
    config = EvalConfig(agent=answer, score_fn=lambda sample: 1.0, name="live", concurrency=1)
    with (
        Store.open(path) as store,
        ViewServer(store) as viewer,
        ThreadPoolExecutor(1) as pool,
    ):
        open_page(watched, viewer)
        evaluation = pool.submit(evaluate_sync, rows, config, store=path)
        page.click("[data-open] >> text=live")
        page.wait_for_selector("text=3 of 6 results")
        assert page.locator("#samples [data-item]").count() == 3

        proceed.set()
        page.wait_for_selector("h1 >> text=completed")
        page.wait_for_selector("#samples >> text=answer 5")
        assert evaluation.result().summary.samples == 6
    assert watched.problems == []


def test_the_list_of_runs_is_live(tmp_path: Path, watched: WatchedPage) -> None:
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        open_page(watched, viewer)
        assert "No runs yet" in watched.page.inner_text("main")

        record_run(store, "first", [ticket(0)], name="brand-new")

        watched.page.wait_for_selector("text=brand-new")


def test_hostile_text_stays_text(
    viewer: ViewServer, pages: RecordedPages, watched: WatchedPage
) -> None:
    page = watched.page

    for path in ("", f"run/{pages.hostile}", f"run/{pages.hostile}?group=reason&sort=score"):
        open_page(watched, viewer, path)
        for link in page.query_selector_all("main a"):
            assert (link.get_attribute("href") or "").startswith(("/", "#"))

        assert "owned" not in page.title().replace("<script>document.title='owned'</script>", "")
        assert page.locator("main script, main img, main iframe, main object").count() == 0
        assert page.locator("main svg[onload], main [onerror], main [style]").count() == 0
        assert "\u202e" not in page.content()
    assert watched.problems == []
    assert [url for url in watched.requests if not url.startswith(viewer.url)] == []


def test_the_policy_stops_markup_that_slips_through(
    viewer: ViewServer, watched: WatchedPage
) -> None:
    page = watched.page
    open_page(watched, viewer)

    page.evaluate(
        """() => {
            const box = document.createElement("div");
            box.innerHTML = '<img src=x onerror="document.title=1"><a style="color:red">x</a>';
            document.body.append(box);
            const script = document.createElement("script");
            script.textContent = "document.title = 'owned'";
            document.body.append(script);
            const far = document.createElement("img");
            far.src = "http://127.0.0.1:9/pixel.png";
            document.body.append(far);
        }"""
    )
    page.wait_for_function("performance.now() > 0")

    assert page.title() == "Runs · assay"
    assert any("Content Security Policy" in problem for problem in watched.problems)


def test_pages_need_a_token_where_one_is_set(page_store: Store, watched: WatchedPage) -> None:
    token = "a-token-that-is-long-enough"
    with ViewServer(page_store, ViewSettings(token=token)) as viewer:
        page = watched.page
        page.goto(viewer.url)
        assert "a token is required" in page.inner_text("body")

        page.goto(f"{viewer.url}?token={token}")

        assert page.url == viewer.url
        assert page.inner_text("h1") == "Runs"
        page.reload()
        assert page.inner_text("h1") == "Runs"


@pytest.mark.parametrize("width", [360, 768, 1280, 2000])
def test_nothing_has_to_be_scrolled_sideways(
    viewer: ViewServer, pages: RecordedPages, watched: WatchedPage, width: int
) -> None:
    watched.page.set_viewport_size({"width": width, "height": 800})

    for path in ("", f"run/{pages.changed}", f"run/{pages.hostile}", "run/unknown"):
        open_page(watched, viewer, path)

        wide = watched.page.evaluate("document.documentElement.scrollWidth")
        assert (path, wide <= width) == (path, True)


CONTRAST = """() => {
    const parse = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => {
        const [x, y, z] = [r, g, b].map((v) => {
            v /= 255;
            return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * x + 0.7152 * y + 0.0722 * z;
    };
    const ground = (element) => {
        for (let each = element; each; each = each.parentElement) {
            const colour = parse(getComputedStyle(each).backgroundColor);
            if (colour.length < 4 || colour[3] > 0) return colour;
        }
        return [255, 255, 255];
    };
    const found = [];
    for (const element of document.querySelectorAll("body *")) {
        const text = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
        if (!text || !element.offsetParent || element.closest("[disabled]")) continue;
        const a = light(parse(getComputedStyle(element).color)) + 0.05;
        const b = light(ground(element)) + 0.05;
        const ratio = Math.max(a, b) / Math.min(a, b);
        if (ratio < 4.5) found.push(`${element.tagName}.${element.className}: ${ratio.toFixed(2)}`);
    }
    return [...new Set(found)];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(
    viewer: ViewServer, pages: RecordedPages, watched: WatchedPage, scheme: str
) -> None:
    watched.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")

    for path in (f"run/{pages.repeats}?group=score", *list_paths(pages)):
        open_page(watched, viewer, path)

        assert (path, watched.page.evaluate(CONTRAST)) == (path, [])


def test_pages_have_names_and_roles(
    viewer: ViewServer, pages: RecordedPages, watched: WatchedPage
) -> None:
    page = watched.page

    for path in list_paths(pages):
        open_page(watched, viewer, path)
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll("a, button, input, select, svg[role=img]")]
                .filter((each) => each.offsetParent !== null || each.tagName === "svg")
                .filter((each) => !(each.textContent.trim() || each.getAttribute("aria-label")
                    || each.labels?.length))
                .map((each) => each.outerHTML)"""
        )

        assert unnamed == []
        assert page.locator("main").count() == page.locator("h1").count() == 1
        assert page.get_attribute("html", "lang") == "en"


def test_pages_work_without_scripts(
    viewer: ViewServer, pages: RecordedPages, plain_page: WatchedPage
) -> None:
    page = plain_page.page
    open_page(plain_page, viewer)
    page.click(f"a[href='/run/{pages.changed}']")
    page.fill("input[name=filter]", "score < 1")
    page.click("text=Apply")
    page.wait_for_url("**filter=*")

    assert page.locator("#samples [data-item]").count() == 10
