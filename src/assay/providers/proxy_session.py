"""Requests through a forward proxy, with the responses and errors of a direct connection."""

import ssl
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
from yarl import URL

from .attempt_errors import AttemptError, ErrorKind
from .pool import BodyLimit, ConnectionBroken, ConnectTimeout, RawResponse
from .proxies import CREDENTIALS_HINT, Proxy

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_PROXY_CONNECT_TIMEOUT_S = 30.0
_PROXY_IDLE_TIMEOUT_S = 30.0
_PROXY_UNCHUNKED_BYTES = 1024 * 1024
_OWN_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


class ProxyRequest(NamedTuple):
    """One request."""

    method: str
    url: str
    """In ASCII, percent-encoded."""

    headers: Mapping[str, str]
    body: bytes | None


class ProxySession:
    """Keep-alive connections through proxies, shared by all clients of one event loop."""

    def __init__(self, trusted: Callable[[], ssl.SSLContext]) -> None:
        # No cookies, no netrc, no redirects: neither the environment nor a server may change a
        # request. Callers limit the number of requests in flight.
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, ssl=trusted(), keepalive_timeout=_PROXY_IDLE_TIMEOUT_S
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def exchange(
        self, proxy: Proxy, request: ProxyRequest, *, timeout_s: float, longest: BodyLimit
    ) -> RawResponse:
        """Send one request and wait for its answer.

        Raises `TimeoutError`, `OSError` or `ConnectionBroken` as a direct connection does, and
        `AttemptError` when the proxy itself refuses.
        """
        try:
            return await self._exchange(proxy, request, timeout_s, longest)
        except aiohttp.ConnectionTimeoutError:
            trouble: Exception = ConnectTimeout(
                f"connecting timed out after {_PROXY_CONNECT_TIMEOUT_S:g} s"
            )
        except TimeoutError:
            trouble = TimeoutError()
        except aiohttp.ClientHttpProxyError as error:
            trouble = _build_proxy_refusal(proxy, error.status)
        except aiohttp.ClientProxyConnectionError:
            trouble = AttemptError(
                ErrorKind.UNREACHABLE,
                f"the proxy {proxy.host} cannot be reached",
                hint="check HTTPS_PROXY and HTTP_PROXY, or add the model's host to NO_PROXY",
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            trouble = _convert_aiohttp_error(error)
        # Raised outside the handlers: as context, the original exceptions would show addresses.
        raise trouble

    async def _exchange(
        self, proxy: Proxy, request: ProxyRequest, timeout_s: float, longest: BodyLimit
    ) -> RawResponse:
        tunnel = request.url.startswith("https:")
        body: bytes | BytesIO | None = request.body
        if isinstance(body, bytes) and len(body) > _PROXY_UNCHUNKED_BYTES:
            body = BytesIO(body)  # aiohttp warns about a large body that it cannot send in pieces
        shown = proxy.credentials
        limit_s = _PROXY_CONNECT_TIMEOUT_S if timeout_s > _PROXY_CONNECT_TIMEOUT_S else None
        async with self._http.request(
            request.method,
            URL(request.url, encoded=True),
            data=body,
            headers=request.headers if tunnel else {**request.headers, **shown},
            skip_auto_headers=_OWN_HEADERS,
            allow_redirects=False,
            proxy=proxy.url,
            proxy_headers={**shown} if tunnel else None,
            timeout=aiohttp.ClientTimeout(total=timeout_s, connect=limit_s),
        ) as response:
            return await _read_proxy_response(response, longest(response.status))


async def _read_proxy_response(response: "ClientResponse", most: int) -> RawResponse:
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
        # The status is enough: a 401 with a truncated body is still a denial.
        return RawResponse(response.status, headers, b"", cut=True)
    if cut := size > most:
        response.close()
    return RawResponse(response.status, headers, b"".join(pieces)[:most], cut)


def _build_proxy_refusal(proxy: Proxy, status: int) -> AttemptError:
    message = f"the proxy {proxy.host} refused the connection: HTTP {status}"
    if status in _TRANSIENT:
        return AttemptError(ErrorKind.UNREACHABLE, message, status)
    if status == 407:
        return AttemptError(ErrorKind.REFUSED, message, status, hint=CREDENTIALS_HINT)
    return AttemptError(
        ErrorKind.REFUSED,
        message,
        status,
        hint="ask the operator of the proxy, or add the model's host to NO_PROXY",
    )


def _convert_aiohttp_error(error: Exception) -> Exception:
    # To the exceptions that a direct connection raises.
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return ssl.SSLCertVerificationError("the certificate is invalid")
    cause: Any = getattr(error, "os_error", error)
    if isinstance(cause, OSError):
        return cause
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return ConnectionBroken("closed by the server")
    return ConnectionBroken(type(error).__name__)
