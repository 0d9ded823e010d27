"""Keeps secrets out of text that people and files will see."""

import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from html import escape
from typing import Any
from urllib.parse import quote, unquote, unquote_plus, urlsplit

from assay.models import Endpoint

from .address import as_sent

REDACTED = "[redacted]"
_SHORTEST = 4
_SHORTEST_NUMBER = 6
"""Shorter ones are in many a complaint, and tell what it is about."""

_PLAIN_HEADERS = frozenset(
    {"accept", "accept-encoding", "content-type", "user-agent", "anthropic-version"}
)
_SCHEME_OR_NAME = re.compile(r'^[A-Za-z][-\w]*\s+|(?<![^\s;,])[^\s;,="]+=(?="?[^\s;,="])')
"""`Bearer`, and the `session` of `session=…`: words that a complaint may need."""

_LOOKS_SECRET = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|hf|ghp|AKIA|AIza)[-_A-Za-z0-9]{12,}"
    r"|(?i:\b(?:bearer|basic)\s+)(?=\S*[\d=._])[-._~+/=A-Za-z0-9]{8,}"
)


class Redactor:
    """Knows the secrets of one endpoint, and takes them out of any text."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = {text for text in secrets if len(text) >= _SHORTEST}

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets)} secrets)"

    def clean(self, text: str, *, cut: bool = False) -> str:
        """`text` without known secrets and without what looks like a key.

        Where it is `cut`, its end may be the beginning of a secret, which is taken out as well.
        """
        for spelling in self._spellings:
            text = text.replace(spelling, REDACTED)
        return _LOOKS_SECRET.sub(REDACTED, self._without_half(text) if cut else text)

    @cached_property
    def _spellings(self) -> list[str]:
        """The longest first. Not made before they are needed: most servers do not complain."""
        found = {spelling for secret in self._secrets for spelling in _spelled(secret)}
        return sorted(found, key=len, reverse=True)

    def _without_half(self, text: str) -> str:
        text = text.rstrip("\ufffd")  # half a character
        starts = [_start_of_half(spelling, text) for spelling in self._spellings]
        start = min((each for each in starts if each >= 0), default=-1)
        return text if start < 0 else f"{text[:start]}{REDACTED}"


def redactor_for(endpoint: Endpoint, headers: dict[str, str]) -> Redactor:
    """Knows the keys, the headers as sent, and what an address carries besides the address."""
    written = endpoint.to_dict()
    secrets = [endpoint.api_key, endpoint.oauth_token]
    for name, value in headers.items():
        if name.lower() not in _PLAIN_HEADERS and name not in written.get("headers", {}):
            secrets += _parts(value)
    parts = urlsplit(endpoint.api_base or "")
    user = parts.netloc.rpartition("@")[0]
    for piece in (user, *user.split(":"), parts.query, parts.fragment):
        secrets += [piece, unquote(piece)]
    for pair in parts.query.split("&"):
        value = pair.partition("=")[2]
        secrets += [value, unquote(value), unquote_plus(value)]
    for given in ("extra_params", "thinking"):
        secrets += _withheld(getattr(endpoint, given), written.get(given))
    return Redactor(secrets)


def _spelled(secret: str) -> Iterator[str]:
    """A text as it is, and as it stands in JSON, in Python's words, in addresses and in pages."""
    in_json = json.dumps(secret, ensure_ascii=False)[1:-1]
    yield from (secret, in_json, json.dumps(secret)[1:-1], repr(secret)[1:-1])
    yield json.dumps(in_json, ensure_ascii=False)[1:-1]  # in JSON that is quoted in JSON
    yield from (as_sent(secret), quote(secret, safe="", errors="replace"), escape(secret))


def _start_of_half(secret: str, text: str) -> int:
    """Where the beginning of `secret` stands that `text` ends with; -1 where it does not."""
    start = text.find(secret[:_SHORTEST], max(len(text) - len(secret), 0))
    while start >= 0 and not secret.startswith(text[start:]):
        start = text.find(secret[:_SHORTEST], start + 1)
    return start


def _parts(header: str) -> Iterator[str]:
    """A header's value, its words, and the values that it is put together from."""
    yield header
    yield from header.split(" ")[1:]
    values = _SCHEME_OR_NAME.sub(" ", header)
    yield from re.split(r'[\s;,"]+', values)
    yield from re.split(r'[\s;,="]+', values)


def _withheld(given: Any, written: Any) -> Iterator[str]:
    """Every text and number in a setting that is not written down."""
    if isinstance(given, dict):
        by_name = written if isinstance(written, dict) else {}
        for name, value in given.items():
            yield from _withheld(value, by_name.get(name))
    elif isinstance(given, list | tuple):
        by_place = written if isinstance(written, list) else [None] * len(given)
        for value, kept in zip(given, by_place, strict=True):
            yield from _withheld(value, kept)
    elif given == written or isinstance(given, bool):
        return
    elif isinstance(given, str):
        yield given
    elif isinstance(given, int | float) and len(str(given)) >= _SHORTEST_NUMBER:
        yield str(given)
