"""One aiohttp session for all clients of an event loop, and posting JSON through it."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from assay.errors import ConfigError, EndpointError, WireError

from .faults import Fault, Kind, kind_of_status, retry_after
from .secrecy import Redactor
from .timing import REAL_TIME, Timing

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession, ClientTimeout
    from yarl import URL

LARGEST_ANSWER = 64 * 1024 * 1024
_LARGEST_COMPLAINT = 16 * 1024
_SHOWN = 300
_CONNECT_S = 30.0
_KEEPALIVE_S = 30.0
_MARKUP = re.compile(r"<(?:script|style)\b.*?</(?:script|style)>|<[^>]*>", re.S | re.I)


@dataclass
class _Shared:
    session: "ClientSession"
    users: int = 0


_SHARED: dict[asyncio.AbstractEventLoop, _Shared] = {}


def _lease(loop: asyncio.AbstractEventLoop) -> _Shared:
    for old in [each for each in _SHARED if each.is_closed()]:
        del _SHARED[old]  # its clients were never closed, and now cannot be
    shared = _SHARED.get(loop)
    if shared is None or shared.session.closed:
        shared = _SHARED[loop] = _Shared(_new_session())
    shared.users += 1
    return shared


def _new_session() -> "ClientSession":
    import aiohttp

    # No limit of its own: the limiters of the clients decide. No cookies and no proxy or
    # password files: what a server or a home folder holds must not change a request.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S, ttl_dns_cache=60)
    return aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
    )


async def _give_back(loop: asyncio.AbstractEventLoop, shared: _Shared) -> None:
    shared.users -= 1
    if shared.users > 0:
        return
    if _SHARED.get(loop) is shared:
        del _SHARED[loop]
    await shared.session.close()


@dataclass(frozen=True)
class Target:
    """What stays the same from request to request. Not shown: it holds the key."""

    url: str
    headers: Mapping[str, str]
    timeout_s: float
    redactor: Redactor
    where: str
    denied_hint: str

    def __repr__(self) -> str:
        return f"Target({self.where})"


class Line:
    """An open line to one target. Each method makes one attempt and raises `Fault` if it fails."""

    def __init__(self, target: Target, timing: Timing = REAL_TIME) -> None:
        from multidict import CIMultiDict

        self._target = target
        self._now = timing.now
        self._loop: asyncio.AbstractEventLoop | None = None
        self._shared: _Shared | None = None
        self._session: ClientSession
        self._url = _parsed_url(target)
        self._headers = CIMultiDict(target.headers)
        self._timeout: ClientTimeout
        self._failures: tuple[type[Exception], ...] = ()
        self._closed = False

    async def post(self, body: bytes) -> Any:
        """Send JSON and return the JSON that comes back."""
        return await self._exchange("POST", body)

    async def get(self) -> Any:
        """Fetch JSON."""
        return await self._exchange("GET", None)

    async def close(self) -> None:
        """Hang up. The session ends with the last line of its event loop."""
        self._closed = True
        shared, self._shared = self._shared, None
        loop, self._loop = self._loop, None
        if shared is not None and loop is asyncio.get_running_loop():
            await _give_back(loop, shared)

    async def _exchange(self, method: str, body: bytes | None) -> Any:
        if self._loop is not asyncio.get_running_loop():
            self._open()
        try:
            async with self._session.request(
                method,
                self._url,
                data=body,
                headers=self._headers,
                timeout=self._timeout,
                allow_redirects=False,
            ) as response:
                if response.status == 200:
                    return self._parsed(await _read(response, LARGEST_ANSWER))
                fault = await self._complaint(response)
        except TimeoutError:
            fault = Fault(Kind.TIMEOUT, f"no answer within {self._target.timeout_s:g} s")
        except self._failures as error:
            fault = connection_fault(error)
        # Outside the handlers: the original exceptions may quote the URL with its query.
        raise fault

    def _open(self) -> None:
        """Join the session of the running event loop."""
        import aiohttp

        if self._closed:
            raise EndpointError(
                "the client is closed", where=self._target.where, hint="connect() anew"
            )
        if self._loop is not None:
            raise ConfigError(
                "a client belongs to the event loop in which it was first used",
                where=self._target.where,
                hint="connect() anew in this event loop, and close the client at the end",
            )
        self._loop = asyncio.get_running_loop()
        self._shared = _lease(self._loop)
        self._session = self._shared.session
        self._timeout = aiohttp.ClientTimeout(
            total=self._target.timeout_s, sock_connect=min(_CONNECT_S, self._target.timeout_s)
        )
        self._failures = (aiohttp.ClientError, OSError, EOFError)

    def fault_in(self, error: Any) -> Fault:
        """What an error object stands for that a gateway sent in place of an answer."""
        code = error.get("code") if isinstance(error, dict) else None
        said = self._excerpt(to_json({"error": error}))
        if type(code) is int and 400 <= code < 600:
            return complaint(code, said, None, self._target.denied_hint)
        return Fault(Kind.GARBLED, f"an error in place of an answer: {said}", 200)

    def _parsed(self, data: bytes | None) -> Any:
        if data is None:
            return _raise(Kind.GARBLED, f"the answer is longer than {LARGEST_ANSWER} bytes", 200)
        try:
            return _json(data)
        except (ValueError, RecursionError):
            pass
        shown = self._excerpt(data)
        return _raise(Kind.GARBLED, f"the answer is not JSON: {shown}", 200)

    async def _complaint(self, response: "ClientResponse") -> Fault:
        """What a status other than 200 means."""
        status = response.status
        said = self._excerpt(await self._words(response))
        if 300 <= status < 400:
            return Fault(
                Kind.REFUSED,
                f"HTTP {status}: the server points to another address, which is not followed",
                status,
                hint="put the final address into `api_base`",
            )
        if 200 < status < 300:
            return Fault(Kind.GARBLED, f"HTTP {status} instead of an answer: {said}", status)
        wait = retry_after(
            response.headers.get("Retry-After"),
            milliseconds=response.headers.get("Retry-After-Ms"),
            now=self._now(),
        )
        return complaint(status, said, wait, self._target.denied_hint)

    async def _words(self, response: "ClientResponse") -> bytes:
        try:
            return await _read(response, _LARGEST_COMPLAINT, cut=True) or b""
        except self._failures:  # a timeout is among them: it is an OSError
            return b""  # the status says enough: a denial stays one without its words

    def _excerpt(self, data: bytes) -> str:
        """The beginning of a body as one line without markup, control characters and secrets."""
        # Cleaned before it is cut: half a key is not recognised, and is still half a key.
        text = self._target.redactor.clean(_said(data))
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text or "(nothing)"


def complaint(status: int, said: str, wait: float | None, denied_hint: str | None) -> Fault:
    """The fault that an HTTP status and the words with it stand for."""
    kind, hint = kind_of_status(status), None
    if kind is Kind.DENIED:
        hint = denied_hint
    elif status == 404:
        hint = "check the model's name and that `api_base` ends where the API begins (often /v1)"
    elif kind is Kind.THROTTLED and "insufficient_quota" in said:
        # OpenAI's word for an empty account, which no waiting fills.
        kind, hint = Kind.REFUSED, "the account has no credit left"
    return Fault(kind, f"HTTP {status}: {said}", status, wait, hint)


def json_body(body: Mapping[str, Any], where: str) -> bytes:
    """A request's body. Raises `WireError` for what JSON has no word for."""
    try:
        data = to_json(body)
        if b"NaN" in data or b"Infinity" in data:
            json.loads(data, parse_constant=_no_such_number)
    except ValueError as error:
        raise WireError(
            f"the request cannot be written as JSON: {error}",
            where=where,
            hint="keep tools, parameters and messages to plain JSON values",
        ) from error
    return data


def _no_such_number(word: str) -> None:
    raise ValueError(f"it holds {word}")


def _parsed_url(target: Target) -> "URL":
    from yarl import URL

    try:
        # As it was given: in another spelling of it, a secret would not be recognised.
        return URL(target.url, encoded=target.url.isascii())
    except ValueError:
        pass
    raise ConfigError("`api_base` is not an address that can be called", where=target.where)


def _json(data: bytes) -> Any:
    try:
        return from_json(data)
    except ValueError:
        if b"\\ud" not in data and b"\\uD" not in data:
            raise
    # Half an emoji, where a model was cut off. The slower reader lets it pass, and so do messages.
    return json.loads(data)


def _raise(kind: Kind, message: str, status: int) -> Any:
    raise Fault(kind, message, status)


def _said(data: bytes) -> str:
    """The words of an error body: its message and code where it is JSON of a usual shape."""
    try:
        value = from_json(data)
    except ValueError:
        return _MARKUP.sub(" ", data.decode("utf-8", "replace"))
    error = value.get("error", value) if isinstance(value, dict) else value
    if isinstance(error, dict):
        words = [str(error[key]) for key in ("type", "code", "message") if error.get(key)]
        if words:
            return ": ".join(dict.fromkeys(words))
    # Written anew: in the server's spelling a secret may be escaped beyond recognition.
    return error if isinstance(error, str) else to_json(error).decode()


def connection_fault(error: Exception) -> Fault:
    """What broke, in words that hold no address."""
    if getattr(error, "certificate_error", None) is not None:
        return Fault(
            Kind.REFUSED,
            "the server's certificate is not valid for this address",
            hint="install the authority that signed it, or correct `api_base`",
        )
    return Fault(Kind.UNREACHABLE, _trouble(error))


def _trouble(error: Exception) -> str:
    reason = getattr(error, "os_error", None) or error
    words = getattr(reason, "strerror", None)
    name = type(error).__name__
    return f"the connection failed ({name}: {words})" if words else f"the connection broke ({name})"


async def _read(response: "ClientResponse", most: int, *, cut: bool = False) -> bytes | None:
    """The body; None, or its beginning if `cut`, when it is longer than `most` bytes."""
    length = response.content_length
    if length is not None and length <= most and "Content-Encoding" not in response.headers:
        return await response.read()
    if length is not None and length > most and not cut:
        response.close()
        return None
    pieces: list[bytes] = []
    size = 0
    while piece := await response.content.readany():
        pieces.append(piece)
        size += len(piece)
        if size > most:
            response.close()
            return b"".join(pieces)[:most] if cut else None
    return b"".join(pieces)
