"""Protection of the viewer: headers of every response, allowed hosts, tokens and write requests.

The pages show untrusted text and the store has no accounts. A browser must not run, load or send
anything for another site, and another site must not reach the server through the browser.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay.providers import is_loopback

PAGE_TOKEN_HEADER = "x-assay-token"
"""The header in which our own pages send the page's token with a write."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})
_MAX_URL_BYTES = 16_384
_MAX_WRITE_BYTES = 262_144
_TOKEN_PARAMETER = "token"
_READ_METHODS = ("GET", "HEAD")


@dataclass(frozen=True)
class AccessRules:
    """Who may use a viewer: the hosts it answers to and the tokens it asks for."""

    host: str
    """The address that the server listens on."""

    page_token: str
    access_token: str | None = None
    """Required for every request if set; always set unless `host` is a loopback address."""

    def __post_init__(self) -> None:
        if self.access_token is None and not is_loopback(self.host):
            raise ValueError("an address other than loopback needs an access token")

    @property
    def cookie(self) -> str:
        """The name of the cookie: cookies ignore ports, and two viewers may share a host."""
        return f"assay_view_{hashlib.sha256((self.access_token or '').encode()).hexdigest()[:8]}"

    def allows_host(self, header: str) -> bool:
        """Whether a `Host` header names this server and not a foreign domain.

        A page of another site can make its own domain resolve to this machine (DNS rebinding). It
        cannot do so with an IP address or with `localhost`.
        """
        name = _strip_port(header)
        if name in _LOOPBACK_NAMES or name == self.host.strip("[]").lower():
            return True
        return self.host in _WILDCARDS and _is_ip_address(name)


class SecurityMiddleware:
    """Refuses requests that break the rules, and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, *, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # Neither WebSockets nor lifespan events are used.
            return
        headers = Headers(scope=scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                more = {**SECURITY_HEADERS, "Cache-Control": "no-store"}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.lower().encode(), value.encode())
                        for name, value in more.items()
                        if name.lower().encode() not in present
                    ),
                ]
            await send(message)

        refusal = find_refusal(scope, headers, self._rules)
        if refusal is not None:
            response = PlainTextResponse(f"{refusal.reason}\n", refusal.status)
            await response(scope, receive, send_with_headers)
        elif (redirect := self._accept_token(scope)) is not None:
            await redirect(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)

    def _accept_token(self, scope: Scope) -> RedirectResponse | None:
        """Keep a token of the address in a cookie, and out of history and bookmarks."""
        rules = self._rules
        query = scope["query_string"].decode("latin-1")
        values = parse_qsl(query, keep_blank_values=True)
        left = [(name, value) for name, value in values if name != _TOKEN_PARAMETER]
        if rules.access_token is None or left == values:
            return None
        # `//evil.example` would be another site.
        path = "/" + scope["raw_path"].decode("latin-1").split("?")[0].lstrip("/\\")
        response = RedirectResponse(path + (f"?{urlencode(left)}" if left else ""), 303)
        response.set_cookie(rules.cookie, rules.access_token, httponly=True, samesite="lax")
        return response


@dataclass(frozen=True)
class Refusal:
    """Why a request is refused."""

    status: int
    reason: str


def find_refusal(scope: Scope, headers: Mapping[str, str], rules: AccessRules) -> Refusal | None:
    """Return why a request is refused; None for an allowed one."""
    if not rules.allows_host(headers.get("host", "")):
        return Refusal(403, "the Host header does not name this server; open the printed address")
    if len(scope["raw_path"]) + len(scope["query_string"]) > _MAX_URL_BYTES:
        return Refusal(414, "the address is too long")
    # A link on another site may lead here; nothing else of another site may load our pages, as
    # even the time of an answer reveals something. Programs send no such header.
    site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "")
    if site in ("cross-site", "same-site") and mode != "navigate":
        return Refusal(403, "the request was sent by another site")
    given = _find_access_token(scope, headers, rules.cookie)
    if rules.access_token is not None and not _is_same_secret(given, rules.access_token):
        return Refusal(401, "a token is required; open the address that `assay view` printed")
    if scope["method"] not in _READ_METHODS:
        return _find_write_refusal(scope, headers, rules)
    return None


def _find_write_refusal(
    scope: Scope, headers: Mapping[str, str], rules: AccessRules
) -> Refusal | None:
    if scope["method"] != "POST":
        return Refusal(405, f"{scope['method']} is not supported")
    # Browsers send the origin with every POST. Its absence means another program, which could send
    # anything; the page's token stops that.
    if headers.get("origin", "").lower() != f"http://{headers.get('host', '').lower()}":
        return Refusal(403, "the Origin header is not the address of this server")
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return Refusal(403, "the request was sent by another site")
    if not _is_same_secret(headers.get(PAGE_TOKEN_HEADER), rules.page_token):
        return Refusal(403, "the page's token is missing or wrong; reload the page")
    length = headers.get("content-length", "")
    if not (length.isdecimal() and length.isascii() and int(length) <= _MAX_WRITE_BYTES):
        return Refusal(413, f"the body must have a length of at most {_MAX_WRITE_BYTES} bytes")
    return None


def _find_access_token(scope: Scope, headers: Mapping[str, str], cookie: str) -> str | None:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return bearer.strip()
    query: dict[str, str] = dict(
        parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    )
    if _TOKEN_PARAMETER in query:
        return query[_TOKEN_PARAMETER]
    cookies = cookie_parser(headers.get("cookie", ""))
    return cookies.get(cookie)


def _is_same_secret(given: str | None, expected: str) -> bool:
    # In constant time: how long a comparison takes must not reveal how much of it is right.
    return given is not None and hmac.compare_digest(given.encode(), expected.encode())


def _strip_port(header: str) -> str:
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
