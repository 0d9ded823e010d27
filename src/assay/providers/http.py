"""JSON over HTTP to one URL, with shared connections and redacted errors."""

import asyncio
import json
import os
import socket
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic_core import to_json

from assay.errors import ConfigError, EndpointError, WireError

from .address import DEFAULT_PORTS, percent_encode
from .attempt_errors import (
    AttemptError,
    ErrorKind,
    build_timeout_error,
    classify_status,
    parse_retry_after,
)
from .clock import REAL_TIME, Timing
from .error_bodies import parse_body, parse_error_body
from .pool import ConnectionBroken, ConnectTimeout, Origin, Pool, RawResponse
from .proxies import CREDENTIALS_HINT, Proxy
from .reply_redaction import Redactor

if TYPE_CHECKING:
    from .proxy_session import ProxySession

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
# Errors are shown in excerpts only: a long error page is not read to its end.
_MAX_ERROR_BYTES = 16 * 1024
_MAX_ERROR_EXCERPT = 300
# Set by the user, they would contradict the body and desynchronise the connection.
_FRAMING = frozenset({"content-length", "transfer-encoding"})
_IDENTITY_ENCODINGS = (b"", b"identity")
_ZLIB_ENCODINGS = (b"gzip", b"x-gzip", b"deflate")
_MAX_GZIP_MEMBERS = 100


@dataclass
class _SharedPool:
    pool: Pool
    users: int = 0
    through_proxies: "ProxySession | None" = None

    async def close(self) -> None:
        await self.pool.close()
        if self.through_proxies is not None:
            await self.through_proxies.close()


_SHARED_POOLS: dict[asyncio.AbstractEventLoop, _SharedPool] = {}


@dataclass(frozen=True)
class RequestTemplate:
    """The parts that all requests share. Its repr omits them, since they contain the key."""

    url: str
    headers: Mapping[str, str]
    timeout_s: float
    redactor: Redactor
    where: str
    denied_hint: str
    missing_hint: str | None = None
    """The hint for a model that does not exist, instead of the usual one."""

    proxy: Proxy | None = None
    """None: a direct connection."""

    def __repr__(self) -> str:
        return f"RequestTemplate({self.where})"


class HttpEndpoint:
    """One URL with its headers, over shared connections. Each method makes one attempt.

    A failed attempt raises `AttemptError`.
    """

    def __init__(self, template: RequestTemplate, timing: Timing = REAL_TIME) -> None:
        self._template = template
        self._now = timing.now
        self._loop: asyncio.AbstractEventLoop | None = None
        self._shared: _SharedPool | None = None
        self._origin, self._path, self._headers = _resolve_origin(template)
        lines = "".join(f"{name}: {value}\r\n" for name, value in self._headers.items())
        self._head = f"{self._path} HTTP/1.1\r\n{lines}".encode()
        self._closed = False

    async def post(self, body: bytes) -> Any:
        """Post JSON and return the parsed JSON answer."""
        return await self._exchange("POST", body)

    async def get(self) -> Any:
        """Fetch JSON."""
        return await self._exchange("GET", None)

    async def close(self) -> None:
        """Close. The shared pool closes with its last user."""
        self._closed = True
        shared, self._shared = self._shared, None
        loop, self._loop = self._loop, None
        if shared is None or loop is not asyncio.get_running_loop():
            return
        shared.users -= 1
        if shared.users <= 0:
            if _SHARED_POOLS.get(loop) is shared:
                del _SHARED_POOLS[loop]
            await shared.close()

    async def _exchange(self, method: str, body: bytes | None) -> Any:
        shared = self._shared
        if shared is None or self._loop is not asyncio.get_running_loop():
            shared = self._open()
        timeout_s = self._template.timeout_s
        try:
            if self._template.proxy is not None:
                answer = await self._exchange_through_proxy(
                    shared, self._template.proxy, method, body
                )
            else:
                request = (
                    b"GET %s\r\n" % self._head
                    if body is None
                    else b"POST %sContent-Length: %d\r\n\r\n%s" % (self._head, len(body), body)
                )
                answer = await shared.pool.exchange(
                    self._origin, request, timeout_s=timeout_s, longest=_get_max_body_bytes
                )
        except TimeoutError:
            fault = build_timeout_error(timeout_s)
        except (OSError, ConnectionBroken) as error:
            fault = build_connection_error(error)
        else:
            if answer.status == 200:
                return self._parse_body(answer)
            fault = build_status_error(answer, self._template, self._now())
        # Raised outside the handlers: as context, the original exceptions could show the address.
        raise fault

    async def _exchange_through_proxy(
        self, shared: _SharedPool, proxy: Proxy, method: str, body: bytes | None
    ) -> RawResponse:
        # Imported and created on first use: most runs have no proxy.
        from .proxy_session import ProxyRequest, ProxySession

        if shared.through_proxies is None:
            shared.through_proxies = ProxySession(shared.pool.get_ssl_context)
        scheme = "https" if self._origin.tls else "http"
        host = f"[{self._origin.host}]" if ":" in self._origin.host else self._origin.host
        url = f"{scheme}://{host}:{self._origin.port}{self._path}"
        return await shared.through_proxies.exchange(
            proxy,
            ProxyRequest(method, url, self._headers, body),
            timeout_s=self._template.timeout_s,
            longest=_get_max_body_bytes,
        )

    def _open(self) -> _SharedPool:
        if self._closed:
            raise EndpointError(
                "the client is closed", where=self._template.where, hint="call connect() again"
            )
        if self._loop is not None:
            raise ConfigError(
                "the client was first used in another event loop",
                where=self._template.where,
                hint="call connect() in this event loop, and close each client in its own",
            )
        for old in [each for each in _SHARED_POOLS if each.is_closed()]:
            del _SHARED_POOLS[old]  # clients of a closed event loop cannot be closed any more
        self._loop = loop = asyncio.get_running_loop()
        shared = _SHARED_POOLS.get(loop)
        if shared is None:
            shared = _SHARED_POOLS[loop] = _SharedPool(Pool(loop))
        shared.users += 1
        self._shared = shared
        return shared

    def parse_error_object(self, error: Any) -> AttemptError:
        """Build the error for an error object that a gateway sent with status 200."""
        code = error.get("code") if isinstance(error, dict) else None
        body = parse_error_body(to_json({"error": error}))
        excerpt = make_excerpt(body.text, self._template.redactor)
        if type(code) is int and 400 <= code < 600:
            hint = _build_denied_hint(code, self._template)
            return build_http_error(code, excerpt, body.retry_after_s, hint)
        return AttemptError(
            ErrorKind.GARBLED, f"the server returned an error instead of an answer: {excerpt}", 200
        )

    def _parse_body(self, answer: RawResponse) -> Any:
        data, cut = _decompress_body(answer)
        if cut:
            raise AttemptError(
                ErrorKind.GARBLED, f"the answer is longer than {MAX_RESPONSE_BYTES} bytes", 200
            )
        try:
            return parse_body(data)
        except (ValueError, RecursionError):
            pass
        text = parse_error_body(data[:_MAX_ERROR_BYTES]).text
        cut = len(data) > _MAX_ERROR_BYTES
        shown = make_excerpt(text, self._template.redactor, cut=cut)
        raise AttemptError(ErrorKind.GARBLED, f"the answer is not JSON: {shown}", 200)


def build_status_error(answer: RawResponse, template: RequestTemplate, now: float) -> AttemptError:
    """Build the error for an answer with another status than 200, without secrets."""
    status = answer.status
    data, cut = _decompress_body(answer)
    body = parse_error_body(data)
    excerpt = make_excerpt(body.text, template.redactor, cut=cut)
    if 300 <= status < 400:
        return AttemptError(
            ErrorKind.REFUSED,
            f"HTTP {status}: the server redirects, and redirects are not followed",
            status,
            hint="set `api_base` to the final address",
        )
    if 200 < status < 300:
        return AttemptError(
            ErrorKind.GARBLED, f"HTTP {status} instead of an answer: {excerpt}", status
        )
    after, after_ms = (
        None if (value := answer.headers.get(name)) is None else value.decode("latin-1")
        for name in (b"retry-after", b"retry-after-ms")
    )
    wait = parse_retry_after(after, milliseconds=after_ms, now=now)
    if wait is None:
        wait = body.retry_after_s
    hint = _build_denied_hint(status, template)
    if body.refuses_key:
        return AttemptError(ErrorKind.DENIED, f"HTTP {status}: {excerpt}", status, hint=hint)
    fault = build_http_error(status, excerpt, wait, hint)
    if status == 404 and template.missing_hint is not None:
        fault.hint = template.missing_hint
    elif body.is_filtered and fault.permanent:
        fault.hint = "the provider's content filter blocked this conversation"
    return fault


def _build_denied_hint(status: int, template: RequestTemplate) -> str:
    hint = template.denied_hint
    return hint if status != 403 else f"{hint}; or the server forbids this model or request"


def make_excerpt(text: str, redactor: Redactor, *, cut: bool = False) -> str:
    """Return the text of an error on one line, redacted and shortened."""
    # Redacted before it is truncated: half a key is not recognised, and is still half a key.
    text = redactor.clean(text, cut=cut)
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return (
        f"{text[:_MAX_ERROR_EXCERPT]}…"
        if len(text) > _MAX_ERROR_EXCERPT
        else text or "(empty body)"
    )


def build_http_error(
    status: int, excerpt: str, wait: float | None, denied_hint: str | None
) -> AttemptError:
    """Build the error for an HTTP status and an excerpt of its body."""
    kind, hint = classify_status(status), None
    if kind is ErrorKind.DENIED:
        hint = denied_hint
    elif status == 407:
        hint = CREDENTIALS_HINT
    elif status == 404:
        hint = "check the model name, and that `api_base` ends at the root of the API (often /v1)"
    elif kind is ErrorKind.THROTTLED and "insufficient_quota" in excerpt:
        # OpenAI's code for an account without credit: a retry cannot succeed.
        kind, hint = ErrorKind.REFUSED, "the account has no credit left"
    return AttemptError(kind, f"HTTP {status}: {excerpt}", status, wait, hint)


def encode_json_body(body: Mapping[str, Any], where: str) -> bytes:
    """Encode the body of a request. Raises `WireError` for values that JSON lacks."""
    try:
        data = to_json(body)
        # `to_json` writes NaN and Infinity, which servers reject. The slow check runs only if one
        # of the words occurs, perhaps inside a string.
        if b"NaN" in data or b"Infinity" in data:
            json.loads(data, parse_constant=_refuse_json_constant)
    except ValueError as error:
        raise WireError(
            f"the request cannot be encoded as JSON: {error}",
            where=where,
            hint="use plain JSON values in tools, parameters and messages",
        ) from error
    return data


def _refuse_json_constant(word: str) -> None:
    raise ValueError(f"it contains {word}")


def _resolve_origin(template: RequestTemplate) -> tuple[Origin, str, dict[str, str]]:
    parts = urlsplit(template.url)
    host = (parts.hostname or "").encode("idna").decode()
    usual = DEFAULT_PORTS[parts.scheme]
    port = parts.port or usual
    # Not normalised: in another spelling, a secret in it would not be recognised.
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    named = f"[{host}]" if ":" in host else host
    headers = {"Host": named if port == usual else f"{named}:{port}"}
    for name, value in template.headers.items():
        if name.lower() in _FRAMING:
            raise ConfigError(
                f"the header {name!r} cannot be set: the client computes it", where=template.where
            )
        headers["Host" if name.lower() == "host" else name] = value
    return Origin(host, port, parts.scheme == "https"), percent_encode(path), headers


def _get_max_body_bytes(status: int) -> int:
    return MAX_RESPONSE_BYTES if status == 200 else _MAX_ERROR_BYTES


def _decompress_body(answer: RawResponse) -> tuple[bytes, bool]:
    # Some servers compress despite `Accept-Encoding: identity`: limits apply to the decompressed
    # size.
    packing = answer.headers.get(b"content-encoding", b"").strip().lower()
    if packing in _IDENTITY_ENCODINGS:
        return answer.body, answer.cut
    most = _get_max_body_bytes(answer.status)
    # 32 more than usual: detect gzip or zlib by the header.
    unpacking = zlib.decompressobj(zlib.MAX_WBITS + 32)
    try:
        if packing not in _ZLIB_ENCODINGS:
            raise zlib.error
        data = unpacking.decompress(answer.body, most + 1)
    except zlib.error:
        shown = f"(content encoding {packing[:20].decode('latin-1')!r} cannot be decoded)"
        return shown.encode(), answer.cut
    pieces, size = [data], len(data)
    # Some servers send gzip in several members; zlib stops after the first. Each costs a copy of
    # the rest, so their number is limited.
    for _ in range(_MAX_GZIP_MEMBERS):
        if not unpacking.unused_data or size > most:
            break
        packed, unpacking = unpacking.unused_data, zlib.decompressobj(zlib.MAX_WBITS + 32)
        try:
            pieces.append(unpacking.decompress(packed, most + 1 - size))
        except zlib.error:
            break  # padding
        size += len(pieces[-1])
    return b"".join(pieces)[:most], answer.cut or size > most


def build_connection_error(error: Exception) -> AttemptError:
    """Build the error of a failed connection, without addresses in its message."""
    if isinstance(error, ConnectTimeout):
        return AttemptError(
            ErrorKind.UNREACHABLE,
            str(error),
            hint="check that the server is up, and whether it expects http or https",
        )
    if isinstance(error, ssl.CertificateError):
        return AttemptError(
            ErrorKind.REFUSED,
            "the server's certificate is not valid for this address",
            hint="trust the authority that signed it (set SSL_CERT_FILE to its bundle), or "
            "correct `api_base`",
        )
    if isinstance(error, ConnectionBroken):
        return AttemptError(ErrorKind.UNREACHABLE, f"the connection broke ({error})")
    reason = type(error).__name__
    if isinstance(error, socket.gaierror):
        reason += f": {error.strerror}"
    elif (code := getattr(error, "errno", None)) and not isinstance(error, ssl.SSLError):
        # The message of the error itself contains the address.
        reason += f": {os.strerror(code)}"
    return AttemptError(ErrorKind.UNREACHABLE, f"the connection failed ({reason})")
