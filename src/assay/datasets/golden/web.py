"""Golden datasets over http: one connection at a time, each to a checked address."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp

from assay.errors import DatasetError, DatasetOutOfReach

from .access_rules import FetchRules, FileVersion
from .addresses import DatasetAddress, redact_uri
from .download import Download
from .network import SocketGuard

_MAX_REDIRECTS = 5
_HTTP_CHUNK_BYTES = 256 * 1024
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
# Identity: the digest is that of the file, not of a compressed transfer.
_FETCH_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "assay"}


def copy_page(address: DatasetAddress, download: Download, rules: FetchRules) -> FileVersion:
    """Copy a file over http. Raises `DatasetError` or `DatasetOutOfReach`."""
    guard = SocketGuard(allow_private=rules.allow_private)
    fetch = HttpFetch(address, download, rules, guard)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(fetch.run())
    # An event loop that is running cannot be entered again.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, fetch.run()).result()


class HttpFetch:
    """One file over http. Redirects are followed here, so that each one is checked."""

    def __init__(
        self,
        address: DatasetAddress,
        download: Download,
        rules: FetchRules,
        guard: SocketGuard,
        *,
        resolver: Any = None,
    ) -> None:
        self._address = address
        self._download = download
        self._rules = rules
        self._guard = guard
        self._resolver = resolver

    async def run(self) -> FileVersion:
        """Fetch the file. Raises `DatasetError` or `DatasetOutOfReach`."""
        try:
            return await self._fetch()
        except DatasetError:
            raise
        except aiohttp.InvalidURL:
            raise DatasetError("the address is invalid", where=self._address.shown) from None
        # For example name lookup, TLS, a truncated body, a timeout.
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._explain_error(error) from error

    async def _fetch(self) -> FileVersion:
        connector = aiohttp.TCPConnector(
            socket_factory=self._guard.create_socket,
            resolver=self._resolver,
            # Neither cached names nor kept connections: every request must pass the guard.
            use_dns_cache=False,
            force_close=True,
            happy_eyeballs_delay=None,
        )
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(self._rules.timeout_s, sock_connect=30, sock_read=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            # The digest covers the bytes as sent.
            auto_decompress=False,
            headers=_FETCH_HEADERS,
        ) as session:
            url = self._address.text
            for _ in range(_MAX_REDIRECTS + 1):
                async with session.get(url, allow_redirects=False) as response:
                    if response.status not in _REDIRECT_STATUSES:
                        return await self._save_response(response)
                    url = self._resolve_redirect(url, response)
        raise self._build_error(f"the server redirects more than {_MAX_REDIRECTS} times")

    def _resolve_redirect(self, url: str, response: "aiohttp.ClientResponse") -> str:
        """Return the target of a redirect. The guard checks its address on connection."""
        location = response.headers.get("Location", "")
        onward = urljoin(url, location)
        schemes = urlsplit(url).scheme.lower(), urlsplit(onward).scheme.lower()
        if not location or schemes[1] not in ("http", "https"):
            raise self._build_error(
                f"the server redirects to {redact_uri(onward)!r}, which is not http"
            )
        # A downgrade would let the network replace the file.
        if schemes == ("https", "http"):
            raise self._build_error("the server redirects from https to http")
        return onward

    async def _save_response(self, response: "aiohttp.ClientResponse") -> FileVersion:
        status = response.status
        if status in (404, 410):
            raise self._build_error(f"the file does not exist (HTTP {status})", "check the address")
        if status in (401, 403):
            raise self._build_error(f"access to the file is denied (HTTP {status})")
        # Temporary: the dataset may exist, so that the outcome is inconclusive, not a failure.
        if status == 429 or status >= 500:
            message = f"the server answered HTTP {status}"
            raise DatasetOutOfReach(message, where=self._address.shown, hint="try again later")
        if status != 200:
            raise self._build_error(f"the server answered HTTP {status}, not 200")
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        if encoding not in ("", "identity"):
            raise self._build_error(
                f"the server compressed the file as {encoding!r:.40}, which was not requested"
            )
        self._download.expect(response.content_length)
        async for piece in response.content.iter_chunked(_HTTP_CHUNK_BYTES):
            self._download.write(piece)
        headers = response.headers
        return FileVersion(_read_header(headers, "ETag"), _read_header(headers, "x-amz-version-id"))

    def _build_error(self, message: str, hint: str | None = None) -> DatasetError:
        return DatasetError(message, where=self._address.shown, hint=hint)

    def _explain_error(self, error: Exception) -> DatasetError:
        if self._guard.refused is not None:
            refusal = f"the connection is refused: {self._guard.refused}"
            return self._build_error(refusal, self._guard.hint)
        if isinstance(error, TimeoutError):
            message = f"the file did not arrive within {self._rules.timeout_s:g} s"
        else:
            # Not the text of the error, which may contain the address with its secrets.
            message = f"the file cannot be fetched: {type(error).__name__}"
            cause = getattr(getattr(error, "os_error", None), "strerror", None)
            message += f": {cause}" if cause else ""
        return DatasetOutOfReach(message, where=self._address.shown)


def _read_header(headers: Any, name: str) -> str | None:
    value = headers.get(name)
    return str(value).strip('"')[:200] if value else None
