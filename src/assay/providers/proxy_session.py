"""Requests through a forward proxy, with the answers and the faults of a direct connection."""

import ssl
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from .attempt_errors import Fault, Kind
from .pool import Answer, Broken, Longest, Unconnected
from .proxies import CREDENTIALS_HINT, Proxy

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_CONNECT_S = 30.0
_IDLE_S = 30.0
_AT_ONCE = 1024 * 1024
_OWN_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


class Request(NamedTuple):
    """One request as it is to be sent."""

    method: str
    url: str
    """In ASCII, spelled as it is to be sent."""

    headers: Mapping[str, str]
    body: bytes | None


class ProxySession:
    """Connections through proxies, kept open and shared by all clients of one event loop."""

    def __init__(self, trusted: Callable[[], ssl.SSLContext]) -> None:
        import aiohttp

        # Nothing else of the environment and of servers changes a request: no cookies, no
        # password files, no redirects. How many requests are in flight is for callers to limit.
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trusted(), keepalive_timeout=_IDLE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def close(self) -> None:
        """End all connections."""
        await self._http.close()

    async def exchange(
        self, proxy: Proxy, request: Request, *, timeout_s: float, longest: Longest
    ) -> Answer:
        """Send one request and wait for its answer.

        Raises `TimeoutError`, `OSError` or `Broken` as a direct connection does, and `Fault` for
        what the proxy itself refuses.
        """
        import aiohttp

        try:
            return await self._exchange(proxy, request, timeout_s, longest)
        except aiohttp.ConnectionTimeoutError:
            trouble: Exception = Unconnected(f"no connection within {_CONNECT_S:g} s")
        except TimeoutError:
            trouble = TimeoutError()
        except aiohttp.ClientHttpProxyError as error:
            trouble = _refusal(proxy, error.status)
        except aiohttp.ClientProxyConnectionError:
            trouble = Fault(
                Kind.UNREACHABLE,
                f"the proxy {proxy.host} cannot be reached",
                hint="check HTTPS_PROXY and HTTP_PROXY, or name the model's host in NO_PROXY",
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            trouble = _broken(error)
        # Outside the handlers: the original exceptions name addresses.
        raise trouble

    async def _exchange(
        self, proxy: Proxy, request: Request, timeout_s: float, longest: Longest
    ) -> Answer:
        import aiohttp
        from yarl import URL

        tunnel = request.url.startswith("https:")
        shown = proxy.credentials
        limit_s = _CONNECT_S if timeout_s > _CONNECT_S else None
        async with self._http.request(
            request.method,
            URL(request.url, encoded=True),
            data=_payload(request.body),
            headers=request.headers if tunnel else {**request.headers, **shown},
            skip_auto_headers=_OWN_HEADERS,
            allow_redirects=False,
            proxy=proxy.url,
            proxy_headers={**shown} if tunnel else None,
            timeout=aiohttp.ClientTimeout(total=timeout_s, connect=limit_s),
        ) as response:
            return await _read(response, longest(response.status))


def _payload(body: bytes | None) -> bytes | BytesIO | None:
    # aiohttp warns about a large body unless it may send it in pieces.
    return body if body is None or len(body) <= _AT_ONCE else BytesIO(body)


async def _read(response: "ClientResponse", most: int) -> Answer:
    import aiohttp

    headers = {name.lower(): value for name, value in response.raw_headers}
    pieces: list[bytes] = []
    size = 0
    try:
        while size <= most and (piece := await response.content.readany()):
            pieces.append(piece)
            size += len(piece)
    except (aiohttp.ClientError, OSError):
        if response.status == 200:
            raise
        # The status says enough: a denial stays one without its words.
        return Answer(response.status, headers, b"", cut=True)
    if cut := size > most:
        response.close()
    return Answer(response.status, headers, b"".join(pieces)[:most], cut)


def _refusal(proxy: Proxy, status: int) -> Fault:
    """What a proxy means that opens no tunnel."""
    said = f"the proxy {proxy.host} opens no connection: HTTP {status}"
    if status in _TRANSIENT:
        return Fault(Kind.UNREACHABLE, said, status)
    if status == 407:
        return Fault(Kind.REFUSED, said, status, hint=CREDENTIALS_HINT)
    return Fault(Kind.REFUSED, said, status, hint="ask whoever runs it, or use NO_PROXY")


def _broken(error: Exception) -> Exception:
    """The exception of a direct connection for one of aiohttp's."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return ssl.SSLCertVerificationError("the certificate is not valid")
    cause: Any = getattr(error, "os_error", error)
    if isinstance(cause, OSError):
        return cause
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return Broken("closed by the server")
    return Broken(type(error).__name__)
