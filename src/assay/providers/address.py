"""The address of an endpoint: validated, and printable without its secrets."""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import quote, urlsplit, urlunsplit

from assay.errors import ConfigError
from assay.types import Endpoint

from .provider_table import find_provider

DEFAULT_PORTS = {"http": 80, "https": 443}
_SAFE_CHARACTERS = "".join(map(chr, range(33, 127)))


@dataclass(frozen=True)
class EndpointAddress:
    """Where requests are sent. Comes from the endpoint only, never from data or a reply."""

    scheme: str
    host: str
    """With the port, without user and password."""

    path: str
    query: str

    def url(self, path: str) -> str:
        """Return the URL of `path` below this address, including the query."""
        return urlunsplit((self.scheme, self.host, self.path + path, self.query, ""))

    def __repr__(self) -> str:
        return f"EndpointAddress({self.scheme}://{self.host}{self.path})"


def percent_encode(text: str) -> str:
    """Percent-encode non-ASCII characters and spaces; leave all else unchanged."""
    return quote(text, safe=_SAFE_CHARACTERS, errors="replace")


def resolve_address(endpoint: Endpoint) -> EndpointAddress:
    """Return the address of an endpoint or its provider. Raises `ConfigError` if invalid."""
    where = f"{endpoint.provider}:{endpoint.model}"
    if endpoint.api_base is None and "api_base" in (endpoint.model_extra or {}).get("withheld", ()):
        # Falling back to the provider's address would send it data meant for another server.
        raise ConfigError(
            "the `api_base` of this endpoint may contain a secret and was not stored with it",
            where=where,
            hint="pass it again: endpoint.model_copy(update={'api_base': ...})",
        )
    provider = find_provider(endpoint.provider)
    text = endpoint.api_base or provider.api_base
    if text is None:
        hint = "pass one, such as api_base='http://127.0.0.1:8000/v1'"
        if provider.address_variable is not None:
            hint = f"set {provider.address_variable}, or pass Endpoint(api_base=...)"
        raise ConfigError(
            f"the provider {endpoint.provider!r} needs an `api_base`", where=where, hint=hint
        )
    try:
        parts = urlsplit(text)
        # A host that cannot be encoded would otherwise fail at the first request.
        (parts.hostname or "").encode("idna")
        usable = parts.scheme in DEFAULT_PORTS and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not text.isprintable() or " " in text or "\\" in text:
        # The address is not shown: the invalid part may be a key.
        raise ConfigError(
            "`api_base` is not an http or https address",
            where=where,
            hint="write it like https://host/v1 or http://127.0.0.1:8000/v1",
        )
    host = parts.netloc.rpartition("@")[2]
    query = parts.query
    if endpoint.api_version is not None:
        query = "&".join(filter(None, (query, f"api-version={endpoint.api_version}")))
    return EndpointAddress(parts.scheme, host, parts.path.rstrip("/"), query)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    # RFC 6761 reserves `localhost` and all names below it for loopback.
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".").rpartition(".")[2] == "localhost"
