"""API keys, from the endpoint or else the environment. Read when a client is created."""

import os
from base64 import b64encode
from urllib.parse import unquote, urlsplit

from assay.errors import ConfigError
from assay.types import Endpoint

from .address import is_loopback
from .provider_table import find_provider

_CREDENTIAL_HEADERS = frozenset(
    {"authorization", "x-api-key", "x-goog-api-key", "api-key", "proxy-authorization"}
)


def build_credential_headers(endpoint: Endpoint) -> dict[str, str]:
    """Build the authentication headers; empty if no key is known and none is needed."""
    provider = find_provider(endpoint.provider)
    where = f"{endpoint.provider}:{endpoint.model}"
    basic = _build_basic_credential(endpoint.api_base)
    named = endpoint.key_env
    given = [text for text in (endpoint.api_key, named, endpoint.oauth_token, basic) if text]
    if len(given) > 1:
        raise ConfigError(
            "the endpoint has more than one of `api_key`, `key_env`, `oauth_token` and a user "
            "in `api_base`",
            where=where,
            hint="keep the one that the server expects",
        )
    if basic:
        return {"Authorization": basic}
    if endpoint.oauth_token:
        return {"Authorization": f"Bearer {_clean_key(endpoint.oauth_token, where)}"}
    if _find_credential_header(endpoint):
        return {}
    key = endpoint.api_key or os.environ.get(_find_key_variable(endpoint) or "", "")
    if named and not key.strip():
        raise ConfigError(
            f"`key_env` names {named}, but this environment variable is not set",
            where=where,
            hint=f"set {named} to the key for this address",
        )
    if key.strip():
        if not endpoint.api_key:
            _refuse_key_over_http(endpoint, where)
        key = _clean_key(key, where)
        header = provider.key_header
        return {header: f"Bearer {key}" if header == "Authorization" else key}
    missing = endpoint.api_base is None and provider.needs_address
    if provider.key_variable and (missing or provider.requires_own_key):
        raise ConfigError(
            f"the API key for {endpoint.provider} is missing",
            where=where,
            hint=f"set {' or '.join(provider.key_variables)}, or pass Endpoint(api_key=...)",
        )
    return {}


def _refuse_key_over_http(endpoint: Endpoint, where: str) -> None:
    # Also with `key_env`: naming a variable does not permit sending it unencrypted.
    parts = urlsplit(endpoint.api_base or "")
    host = parts.hostname or ""
    if parts.scheme != "http" or endpoint.allow_plain_http or is_loopback(host):
        return
    raise ConfigError(
        f"{_find_key_variable(endpoint)} is not sent to "
        f"{host!r} over plain http, which does not encrypt it",
        where=where,
        hint="use an https address, or pass the server's own key as Endpoint(api_key=...); "
        "Endpoint(allow_plain_http=True), on the command line --allow-plain-http, sends it",
    )


def build_key_hint(endpoint: Endpoint) -> str:
    """Build the hint for a server that rejects the credential of an endpoint, or its lack."""
    variable = _find_key_variable(endpoint)
    if _build_basic_credential(endpoint.api_base):
        return "the user and password in `api_base` are not accepted: pass those of this address"
    header = None if endpoint.oauth_token else _find_credential_header(endpoint)
    if header:
        return f"the header {header!r} of this Endpoint is not accepted: pass the right one"
    if endpoint.api_key or endpoint.oauth_token:
        other = f"; or omit it and set {variable}" if variable else ""
        return f"the key of this Endpoint is not accepted: pass the one for this address{other}"
    if variable is None:
        return "pass Endpoint(api_key=...)"
    state = "is not accepted here" if os.environ.get(variable, "").strip() else "is not set"
    return f"{variable} {state}: set it to a key for this address, or pass Endpoint(api_key=...)"


def _find_key_variable(endpoint: Endpoint) -> str | None:
    # The first one that is set, or else the preferred one.
    if endpoint.key_env:
        return endpoint.key_env
    names = find_provider(endpoint.provider).key_variables
    found = (name for name in names if os.environ.get(name, "").strip())
    return next(found, names[0] if names else None)


def _find_credential_header(endpoint: Endpoint) -> str | None:
    return next((name for name in endpoint.headers if name.lower() in _CREDENTIAL_HEADERS), None)


def _build_basic_credential(api_base: str | None) -> str | None:
    # User and password of a URL are sent as a header, never as part of the address.
    user, at, _ = urlsplit(api_base or "").netloc.rpartition("@")
    if not at:
        return None
    name, _, password = user.partition(":")
    pair = f"{unquote(name)}:{unquote(password)}".encode()
    return f"Basic {b64encode(pair).decode('ascii')}"


def _clean_key(key: str, where: str) -> str:
    key = key.strip()
    if not key.isascii() or not key.isprintable():
        raise ConfigError(
            "the key contains characters that are invalid in a key",
            where=where,
            hint="copy it again: a line break or a quotation mark may have slipped in",
        )
    return key
