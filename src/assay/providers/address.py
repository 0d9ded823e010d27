"""The address of an endpoint: checked, and in a form that may be shown."""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from assay.errors import ConfigError
from assay.types import Endpoint

from .provider_table import find_provider

_SAFE_CHARACTERS = "".join(map(chr, range(33, 127)))


@dataclass(frozen=True)
class EndpointAddress:
    """Where requests go. Comes from the endpoint alone, never from data or from a reply."""

    scheme: str
    host: str
    """With the port, without user and password."""

    path: str
    query: str

    def url(self, path: str) -> str:
        """The whole URL of `path` below this address, its query included."""
        return urlunsplit((self.scheme, self.host, self.path + path, self.query, ""))

    def __repr__(self) -> str:
        return f"Address({self.scheme}://{self.host}{self.path})"


def percent_encode(text: str) -> str:
    """A part of an address as a request spells it: as it was given, and in ASCII."""
    return quote(text, safe=_SAFE_CHARACTERS, errors="replace")


def resolve_address(endpoint: Endpoint) -> EndpointAddress:
    """The address of an endpoint, or its provider's own. Raises `ConfigError` for a bad one."""
    where = f"{endpoint.provider}:{endpoint.model}"
    if endpoint.api_base is None and "api_base" in (endpoint.model_extra or {}).get("withheld", ()):
        # The provider's own address would be sent what is meant for another.
        raise ConfigError(
            "the `api_base` of this endpoint may hold a secret and was not stored with it",
            where=where,
            hint="give it again: endpoint.model_copy(update={'api_base': ...})",
        )
    text = endpoint.api_base or find_provider(endpoint.provider).api_base
    if text is None:
        raise ConfigError(
            f"the provider {endpoint.provider!r} needs an `api_base`",
            where=where,
            hint="such as api_base='http://127.0.0.1:8000/v1'",
        )
    parts = _split_http_url(text)
    if parts is None:
        # Not shown: what is wrong with it may be the place where a key stands.
        raise ConfigError(
            "`api_base` is not an http or https address",
            where=where,
            hint="write it like https://host/v1 or http://127.0.0.1:8000/v1",
        )
    host = parts.netloc.rpartition("@")[2]
    return EndpointAddress(parts.scheme, host, parts.path.rstrip("/"), parts.query)


def is_loopback_host(host: str) -> bool:
    """Whether only this machine reaches `host`, a name or an address without a port."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".").rpartition(".")[2] == "localhost"


def _split_http_url(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text)
        port = parts.port
        # What no name server can be asked for would otherwise break the first request.
        (parts.hostname or "").encode("idna")
    except ValueError:
        return None
    plain = text.isprintable() and " " not in text and "\\" not in text
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain or port == 0:
        return None
    return parts
