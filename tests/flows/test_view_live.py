"""Pages of active runs in a real browser: updates beside the choices of a reader, and deletion."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from assay.store import Run, Store
from assay.web import ViewServer
from recorded_pages import record_run, ticket
from store_runs import record
from view_fixtures import WatchedPage


def record_more(run: Run, index: int) -> None:
    # In a thread: an open browser occupies the event loop of this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(record, run, [ticket(index)]).result()


def hold(page: Any, matches: Callable[[str], bool]) -> list[Any]:
    """Hold requests that scripts make to such addresses; the list has them as they arrive."""
    held: list[Any] = []

    def catch(route: Any) -> None:
        if route.request.resource_type == "fetch" and matches(route.request.url):
            held.append(route)
        else:
            route.continue_()

    page.route("**/run/**", catch)
    return held


def wait_for_one(page: Any, held: list[Any]) -> Any:
    """Return the next held request, once there is one."""
    deadline = time.monotonic() + 60
    while not held:
        assert time.monotonic() < deadline
        page.wait_for_timeout(20)
    return held.pop(0)


def test_an_order_that_is_chosen_during_a_live_update_stays(
    tmp_path: Path, watched: WatchedPage
) -> None:
    page = watched.page
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        run = record_run(store, "live", [ticket(1), ticket(2)], finish=False, total=9)
        updates = hold(page, lambda url: "/table" not in url)
        page.goto(f"{viewer.url}run/live")
        # A stream begins with the state of the run.
        update = wait_for_one(page, updates)
        page.click("th >> text=Score")
        page.wait_for_selector("[aria-sort=ascending] >> text=Score")

        update.continue_()
        # The old update is dropped, and the page asked for again in the new order.
        wait_for_one(page, updates).continue_()
        page.wait_for_selector("[aria-sort=ascending] >> text=Score")
        run.finish("completed")
    assert watched.problems == []


def test_an_order_that_arrives_after_a_live_update_is_shown(
    tmp_path: Path, watched: WatchedPage
) -> None:
    page = watched.page
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        run = record_run(store, "live", [ticket(1), ticket(2)], finish=False, total=9)
        page.goto(f"{viewer.url}run/live")
        tables = hold(page, lambda url: "/table" in url)
        page.click("th >> text=Score")
        page.click("th >> text=Time")
        by_score, by_time = wait_for_one(page, tables), wait_for_one(page, tables)
        record_more(run, 3)
        page.wait_for_selector("text=3 of 9 results")

        by_time.continue_()
        page.wait_for_selector("[aria-sort] >> text=Time")
        with page.expect_response("**/table?sort=score"):
            by_score.continue_()

        page.wait_for_timeout(50)
        assert "Time" in page.inner_text("[aria-sort]")
        assert "sort=seconds" in page.url
        run.finish("completed")
    assert watched.problems == []


def test_the_page_of_a_run_that_is_deleted_shows_so(tmp_path: Path, watched: WatchedPage) -> None:
    page = watched.page
    with Store.open(tmp_path / "assay.db") as store, ViewServer(store) as viewer:
        run = record_run(store, "live", [ticket(1)], finish=False, total=9)
        page.goto(f"{viewer.url}run/live")
        run.finish("interrupted")
        store.delete_run("live")

        page.wait_for_selector("h1 >> text=Not found")

        assert page.url == f"{viewer.url}run/live"
        assert "'live' does not exist" in page.inner_text("main")
