"""Find the proxy of an address by `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`.

Follows urllib: the lower-case name takes precedence, and loopback goes through the proxy unless
`NO_PROXY` lists it. Networks such as `10.0.0.0/8` may be listed too.
"""

import os
import re
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

from assay.errors import ConfigError

from .address import DEFAULT_PORTS

CREDENTIALS_HINT = "write the proxy as http://user:password@host:port in HTTP_PROXY and HTTPS_PROXY"


@dataclass(frozen=True)
class Proxy:
    """A forward proxy, with its credentials separate from its address."""

    url: str
    host: str
    """With the port: fit for messages."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def credentials(self) -> dict[str, str]:
        """The authentication header for the proxy; empty without a user."""
        if not self.user:
            return {}
        pair = b64encode(f"{self.user}:{self.password}".encode()).decode()
        return {"Proxy-Authorization": f"Basic {pair}"}


def find_proxy(url: str) -> Proxy | None:
    """Return the proxy for an http or https address; None for a direct connection.

    Raises `ConfigError` if the proxy is invalid.
    """
    parts = urlsplit(url)
    name = f"{parts.scheme}_proxy"
    given = _read_proxy_variable(name)
    # In a CGI process `HTTP_PROXY` may be the header `Proxy` of a request ("httpoxy").
    cgi = "REQUEST_METHOD" in os.environ and "http_proxy" not in os.environ
    if not given or (name == "http_proxy" and cgi):
        return None
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    host = (parts.hostname or "").lower().rstrip(".")
    exceptions = re.split(r"[\s,]+", _read_proxy_variable("no_proxy").lower())
    if any(_covers(each, host, port) for each in exceptions):
        return None
    try:
        proxy = urlsplit(given if "://" in given else f"http://{given}")
        usable = proxy.scheme in DEFAULT_PORTS and proxy.hostname and proxy.port != 0
    except ValueError:
        usable = False
    if not usable or proxy.hostname is None:
        # The value is not shown: it may contain a password.
        raise ConfigError(
            f"{name.upper()} is not an http or https address",
            where="environment",
            hint="write http://host:3128, or add the model's host to NO_PROXY",
        )
    named = f"[{proxy.hostname}]" if ":" in proxy.hostname else proxy.hostname
    address = f"{named}:{proxy.port or DEFAULT_PORTS[proxy.scheme]}"
    user, password = unquote(proxy.username or ""), unquote(proxy.password or "")
    return Proxy(f"{proxy.scheme}://{address}", address, user, password)


def _read_proxy_variable(name: str) -> str:
    return os.environ.get(name, os.environ.get(name.upper(), "")).strip()


def _covers(exception: str, host: str, port: int) -> bool:
    if exception == "*":
        return True
    with suppress(ValueError):
        if ip_address(host) in ip_network(exception, strict=False):
            return True
    # A port may follow; an IPv6 address is then in brackets.
    if exception.startswith("["):
        name, _, wanted = exception[1:].partition("]")
        wanted = wanted[1:]
    else:
        name, _, wanted = exception.partition(":")
        name = name if wanted.isdecimal() else exception
    name = name.removeprefix("*").lstrip(".")
    if not name or (wanted.isdecimal() and int(wanted) != port):
        return False
    return host == name or host.endswith(f".{name}")
