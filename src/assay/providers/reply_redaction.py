"""Collect the secrets of an endpoint for redaction."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, unquote_plus, urlsplit

from assay.types import REDACTED, Endpoint, Redactor

from .proxies import Proxy

__all__ = ["REDACTED", "Redactor", "build_endpoint_redactor", "list_header_secrets"]

# Shorter numbers are common in error messages, and needed to understand them.
_SHORTEST_NUMBER = 6
_NON_SECRET_HEADERS = frozenset(
    {"accept", "accept-encoding", "content-type", "user-agent", "anthropic-version"}
)
# `Bearer`, and the `session` of `session=…`: not secret, and useful in error messages.
_SCHEME_OR_NAME = re.compile(r'^[A-Za-z][-\w]*\s+|(?<![^\s;,])[^\s;,="]+=(?="?[^\s;,="])')


def build_endpoint_redactor(
    endpoint: Endpoint,
    headers: dict[str, str],
    proxy: Proxy | None = None,
    *,
    more: Iterable[str] = (),
) -> Redactor:
    """Build a redactor of keys, header values, credentials in addresses, and `more` secrets."""
    written = endpoint.to_dict()
    secrets = [endpoint.api_key, endpoint.oauth_token, *more]
    if proxy is not None:
        secrets += [
            proxy.password,
            *(w for v in proxy.credentials.values() for w in _split_header_secrets(v)),
        ]
    secrets += list_header_secrets(endpoint, headers)
    parts = urlsplit(endpoint.api_base or "")
    user = parts.netloc.rpartition("@")[0]
    for piece in (user, *user.split(":"), parts.query, parts.fragment):
        secrets += [piece, unquote(piece)]
    for pair in parts.query.split("&"):
        value = pair.partition("=")[2]
        secrets += [value, unquote(value), unquote_plus(value)]
    for given in ("extra_params", "thinking"):
        secrets += _find_withheld_values(getattr(endpoint, given), written.get(given))
    return Redactor(secrets)


def list_header_secrets(endpoint: Endpoint, headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of headers that are not written with the endpoint, whole and in parts."""
    written = endpoint.to_dict().get("headers", {})
    for name, value in headers.items():
        if name.lower() not in _NON_SECRET_HEADERS and name not in written:
            yield from _split_header_secrets(value)


def _split_header_secrets(header: str) -> Iterator[str]:
    # Servers quote headers whole or in parts: each part is redacted too.
    yield header
    yield from header.split(" ")[1:]
    values = _SCHEME_OR_NAME.sub(" ", header)
    yield from re.split(r'[\s;,"]+', values)
    yield from re.split(r'[\s;,="]+', values)


def _find_withheld_values(given: Any, written: Any) -> Iterator[str]:
    # Values that are withheld from stored settings are secret here too.
    if isinstance(given, dict):
        by_name = written if isinstance(written, dict) else {}
        for name, value in given.items():
            yield from _find_withheld_values(value, by_name.get(name))
    elif isinstance(given, list | tuple):
        by_index = written if isinstance(written, list) else [None] * len(given)
        for value, kept in zip(given, by_index, strict=True):
            yield from _find_withheld_values(value, kept)
    elif given == written or isinstance(given, bool):
        return
    elif isinstance(given, str):
        yield given
    elif isinstance(given, int | float) and len(str(given)) >= _SHORTEST_NUMBER:
        yield str(given)
