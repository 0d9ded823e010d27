"""The secrets of an endpoint, for everything that must not show them."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, unquote_plus, urlsplit

from assay.types import REDACTED, Endpoint, Redactor

from .proxies import Proxy

__all__ = ["REDACTED", "Redactor", "build_endpoint_redactor"]

# Shorter ones are in many a complaint, and tell what it is about.
_SHORTEST_NUMBER = 6
_NON_SECRET_HEADERS = frozenset(
    {"accept", "accept-encoding", "content-type", "user-agent", "anthropic-version"}
)
# `Bearer`, and the `session` of `session=…`: words that a complaint may need.
_SCHEME_OR_NAME = re.compile(r'^[A-Za-z][-\w]*\s+|(?<![^\s;,])[^\s;,="]+=(?="?[^\s;,="])')


def build_endpoint_redactor(
    endpoint: Endpoint, headers: dict[str, str], proxy: Proxy | None = None
) -> Redactor:
    """Knows the keys, the headers as sent, and what an address carries besides the address."""
    written = endpoint.to_dict()
    secrets = [endpoint.api_key, endpoint.oauth_token]
    if proxy is not None:
        secrets += [
            proxy.password,
            *(w for v in proxy.credentials.values() for w in _split_header_secrets(v)),
        ]
    for name, value in headers.items():
        if name.lower() not in _NON_SECRET_HEADERS and name not in written.get("headers", {}):
            secrets += _split_header_secrets(value)
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


def _split_header_secrets(header: str) -> Iterator[str]:
    """A header's value, its words, and the values that it is put together from."""
    yield header
    yield from header.split(" ")[1:]
    values = _SCHEME_OR_NAME.sub(" ", header)
    yield from re.split(r'[\s;,"]+', values)
    yield from re.split(r'[\s;,="]+', values)


def _find_withheld_values(given: Any, written: Any) -> Iterator[str]:
    """Every text and number in a setting that is not written down."""
    if isinstance(given, dict):
        by_name = written if isinstance(written, dict) else {}
        for name, value in given.items():
            yield from _find_withheld_values(value, by_name.get(name))
    elif isinstance(given, list | tuple):
        by_place = written if isinstance(written, list) else [None] * len(given)
        for value, kept in zip(given, by_place, strict=True):
            yield from _find_withheld_values(value, kept)
    elif given == written or isinstance(given, bool):
        return
    elif isinstance(given, str):
        yield given
    elif isinstance(given, int | float) and len(str(given)) >= _SHORTEST_NUMBER:
        yield str(given)
