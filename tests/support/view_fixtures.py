"""Fixtures of the pages: a seeded store, a viewer on a free port, and Debian's Chromium."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from assay.store import Store
    from assay.web import ViewServer
    from recorded_pages import RecordedPages

_CHROMIUM_OPTIONS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run"
).split()
# A page may wait for a machine that does much else.
_TIMEOUT_MS = 60_000


@pytest.fixture(scope="session")
def page_store(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Store]":
    """A store with the runs of `recorded_pages`. Tests must not change it."""
    from assay.store import Store
    from recorded_pages import record_pages

    with Store.open(tmp_path_factory.mktemp("pages") / "assay.db") as store:
        record_pages(store)
        yield store


@pytest.fixture(scope="session")
def pages() -> "RecordedPages":
    """The ids of the runs in `page_store`."""
    from recorded_pages import RecordedPages

    return RecordedPages()


@pytest.fixture(scope="session")
def viewer(page_store: "Store") -> "Iterator[ViewServer]":
    """A viewer of `page_store` on a free port."""
    from assay.web import ViewServer

    with ViewServer(page_store) as server:
        yield server


@pytest.fixture(scope="session")
def browser() -> "Iterator[tuple[Browser, asyncio.AbstractEventLoop]]":
    """One Chromium for all tests; they are skipped where it cannot be started."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        # Tests of the suite run under any user; the sandbox needs rights that root lacks.
        opened = driver.chromium.launch(executable_path=path, args=_CHROMIUM_OPTIONS)
        loop = asyncio.get_running_loop()
        with _set_loop(None):
            yield opened, loop
        opened.close()


@contextmanager
def _set_loop(loop: asyncio.AbstractEventLoop | None) -> Iterator[None]:
    """Make `loop` the running one of this thread, or none.

    Playwright keeps an event loop suspended in this thread for as long as its browser is open.
    Other tests of the session could not run theirs.
    """
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(before)


class WatchedPage:
    """A page that records errors of scripts, refusals of the policy and every request."""

    def __init__(self, page: "Page") -> None:
        self.page = page
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", self._listen)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", lambda dialog: self._refuse(dialog))

    def _listen(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def _refuse(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@pytest.fixture
def watched(browser: "tuple[Browser, asyncio.AbstractEventLoop]") -> Iterator[WatchedPage]:
    """A new page of 1280 columns in a profile of its own.

    While it is open, `asyncio.run` works in other threads only.
    """
    opened, loop = browser
    with _set_loop(loop):
        context = opened.new_context(viewport={"width": 1280, "height": 800})
        context.set_default_timeout(_TIMEOUT_MS)
        yield WatchedPage(context.new_page())
        context.close()


@pytest.fixture
def plain_page(browser: "tuple[Browser, asyncio.AbstractEventLoop]") -> Iterator[WatchedPage]:
    """A new page in which scripts are switched off."""
    opened, loop = browser
    with _set_loop(loop):
        context = opened.new_context(java_script_enabled=False)
        context.set_default_timeout(_TIMEOUT_MS)
        yield WatchedPage(context.new_page())
        context.close()
