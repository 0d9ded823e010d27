"""Golden datasets over http: one connection at a time, each to an address that was judged."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from assay.errors import DatasetError, DatasetOutOfReach

from .access_rules import Fetched, FetchRules
from .addresses import Address, without_secrets
from .download import Landing
from .network import Guard

if TYPE_CHECKING:
    import aiohttp

_MOST_REDIRECTS = 5
_PIECE = 256 * 1024
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "assay"}


def copy_page(address: Address, landing: Landing, rules: FetchRules) -> Fetched:
    """Copy what an http address answers with. Raises `DatasetError`, or `DatasetOutOfReach`."""
    guard = Guard(allow_private=rules.allow_private)
    return _finished(Download(address, landing, rules, guard))


def _finished(download: "Download") -> Fetched:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(download.run())
    # The caller's own loop cannot be entered again.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, download.run()).result()


class Download:
    """One file over http, redirects followed by hand."""

    def __init__(
        self,
        address: Address,
        landing: Landing,
        rules: FetchRules,
        guard: Guard,
        *,
        resolver: Any = None,
    ) -> None:
        self._address = address
        self._landing = landing
        self._rules = rules
        self._guard = guard
        self._resolver = resolver

    async def run(self) -> Fetched:
        """Fetch it, and say in our words why that fails."""
        import aiohttp

        try:
            return await self._fetched()
        except DatasetError:
            raise
        except aiohttp.InvalidURL:
            raise DatasetError("is no address", where=self._address.shown) from None
        # Of many kinds: name lookup, TLS, a broken body, a time limit.
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._told(error) from error

    async def _fetched(self) -> Fetched:
        import aiohttp

        connector = aiohttp.TCPConnector(
            socket_factory=self._guard.socket_for,
            resolver=self._resolver,
            use_dns_cache=False,
            force_close=True,
            happy_eyeballs_delay=None,
        )
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(self._rules.timeout_s, sock_connect=30, sock_read=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers=_HEADERS,
        ) as session:
            url = self._address.text
            for _ in range(_MOST_REDIRECTS + 1):
                async with session.get(url, allow_redirects=False) as response:
                    if response.status not in _REDIRECTS:
                        return await self._received(response)
                    url = self._next(url, response)
        raise self._wrong(f"leads on more than {_MOST_REDIRECTS} times")

    def _next(self, url: str, response: "aiohttp.ClientResponse") -> str:
        """Where a redirect leads. The address itself is judged when it is connected to."""
        location = response.headers.get("Location", "")
        onward = urljoin(url, location)
        schemes = urlsplit(url).scheme.lower(), urlsplit(onward).scheme.lower()
        if not location or schemes[1] not in ("http", "https"):
            raise self._wrong(f"leads on to {without_secrets(onward)!r}, which is not http")
        if schemes == ("https", "http"):
            raise self._wrong("leads on from https to http")
        return onward

    async def _received(self, response: "aiohttp.ClientResponse") -> Fetched:
        self._check(response)
        self._landing.expect(response.content_length)
        async for piece in response.content.iter_chunked(_PIECE):
            self._landing.write(piece)
        headers = response.headers
        return Fetched(_header(headers, "ETag"), _header(headers, "x-amz-version-id"))

    def _check(self, response: "aiohttp.ClientResponse") -> None:
        status = response.status
        if status in (404, 410):
            raise self._wrong(f"there is nothing at this address ({status})", "check the address")
        if status in (401, 403):
            raise self._wrong(f"access is refused ({status})")
        if status == 429 or status >= 500:
            said = f"the server answers {status}"
            raise DatasetOutOfReach(said, where=self._address.shown, hint="try again later")
        if status != 200:
            raise self._wrong(f"the server answers {status}, not 200")
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        if encoding not in ("", "identity"):
            raise self._wrong(f"comes compressed as {encoding!r:.40}, which was not asked for")

    def _wrong(self, message: str, hint: str | None = None) -> DatasetError:
        return DatasetError(message, where=self._address.shown, hint=hint)

    def _told(self, error: Exception) -> DatasetError:
        if self._guard.refused is not None:
            said = f"is not connected to: {self._guard.refused}"
            return self._wrong(said, self._guard.hint)
        if isinstance(error, TimeoutError):
            said = f"did not arrive within {self._rules.timeout_s:g} s"
        else:
            # Without the text of the error, which may repeat the address with its secrets.
            said = f"cannot be fetched: {type(error).__name__}"
            cause = getattr(getattr(error, "os_error", None), "strerror", None)
            said += f": {cause}" if cause else ""
        return DatasetOutOfReach(said, where=self._address.shown)


def _header(headers: Any, name: str) -> str | None:
    value = headers.get(name)
    return str(value).strip('"')[:200] if value else None
