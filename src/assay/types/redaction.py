"""Keeps secrets out of text that people and files will see.

Every live `Redactor` is known to the process: `redact` removes the secrets of all of them, so that
code which quotes a key of one endpoint cannot leak it through the failure of another part.
"""

import json
import os
import re
import threading
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from html import escape
from urllib.parse import quote, quote_plus
from weakref import WeakSet

REDACTED = "[redacted]"
_SHORTEST = 4
_SHORTEST_ELSEWHERE = 6
"""In text that does not come from the server which has the secret. Shorter ones are words."""

_SHORTEST_IN_ENVIRONMENT = 8
_FRAGMENT = 12
"""So many characters of a secret are redacted wherever they stand."""

_PLACEHOLDERS = frozenset({"lm-studio", "not-needed", "ollama"})
"""Given as a key to servers that want none."""

_SHORTEST_AT_LINE_END = 8
_VISIBLE = "".join(map(chr, range(33, 127)))
_CUT_HERE = ("...", "…", "*")
_SECRET_VARIABLE = re.compile(
    r"(?:^|_)KEY$|API_?KEY$|TOKEN$|SECRET$|PASSW(?:OR)?D$|(?:^|_)PASS$", re.IGNORECASE
)
_LOOKS_SECRET = re.compile(
    r"\b(?:(?:sk|pk|rk|xai|gsk|hf|fw|gh[oprsu]|github_pat|glpat|npm|xox[abeprs])[-_]|A[KS]IA|AIza)"
    r"[-_A-Za-z0-9]{12,}"
    r"|\beyJ[-_A-Za-z0-9]{8,}\.eyJ[-_A-Za-z0-9]{8,}\.[-_A-Za-z0-9]{8,}"
    r"|-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----"
    r"(?:[^-]{0,20000}-----END [A-Z ]{0,20}PRIVATE KEY-----)?"
    r"|(?i:\b(?:bearer|basic)\s+)(?=\S*[\d=._])[-._~+/=A-Za-z0-9]{8,}"
)
_KEY_BODY = re.compile(r"[A-Za-z0-9]{16}")
"""Names such as `hf_hub_download` have a key's prefix, but consist of short words."""


class Redactor:
    """Knows secrets, and removes them from any text.

    `redact` uses its secrets too for as long as somebody holds it.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = {text for text in secrets if len(text) >= _SHORTEST}
        if self._secrets:
            with _LOCK:
                _LIVE.add(self)

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets)} secrets)"

    def clean(self, text: str, *, cut: bool = False) -> str:
        """`text` without known secrets and without what looks like a key.

        Where it is `cut`, its end may be the beginning of a secret, which is removed as well.
        """
        for spelling in self._spellings:
            text = text.replace(spelling, REDACTED)
        return _LOOKS_SECRET.sub(_mask_key, self._without_half(text) if cut else text)

    @cached_property
    def _spellings(self) -> list[str]:
        """The longest first. Not made before they are needed: most servers do not complain."""
        return _spell_all(self._secrets)

    def _without_half(self, text: str) -> str:
        text = text.rstrip("\ufffd")  # half a character
        starts = [_start_of_half(spelling, text) for spelling in self._spellings]
        start = min((each for each in starts if each >= 0), default=-1)
        return text if start < 0 else f"{text[:start]}{REDACTED}"


_LIVE: WeakSet[Redactor] = WeakSet()
_LOCK = threading.Lock()


def redact(text: str) -> str:
    """`text` without any secret that is in use in this process, whole or cut.

    Secrets in use are those of live redactors and the environment variables named like one
    (`OPENAI_API_KEY`, `HF_TOKEN`, `PGPASSWORD`).
    """
    with _LOCK:
        live = list(_LIVE)
    found = {secret for each in live for secret in each._secrets}
    secrets = {secret for secret in found if len(secret) >= _SHORTEST_ELSEWHERE} - _PLACEHOLDERS
    spellings = _cached_spellings(frozenset(secrets.union(_environment_secrets())))
    for spelling in spellings:
        text = text.replace(spelling, REDACTED)
    # Only now: a fragment of one spelling may be a part of another.
    for spelling in spellings:
        if len(spelling) > _SHORTEST_AT_LINE_END:
            text = _redact_fragments(text, spelling)
    return _LOOKS_SECRET.sub(_mask_key, text)


def _environment_secrets() -> Iterator[str]:
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST_IN_ENVIRONMENT and _SECRET_VARIABLE.search(name):
            yield value.strip()


@lru_cache(maxsize=4)
def _cached_spellings(secrets: frozenset[str]) -> list[str]:
    return _spell_all(secrets)


def _spell_all(secrets: Iterable[str]) -> list[str]:
    found = {spelling for secret in secrets for spelling in _spell(secret)}
    return sorted(found, key=len, reverse=True)


def _spell(secret: str) -> Iterator[str]:
    """A text as it is, and as it stands in JSON, in Python's words, in addresses and in pages."""
    in_json = json.dumps(secret, ensure_ascii=False)[1:-1]
    yield from (secret, in_json, json.dumps(secret)[1:-1], repr(secret)[1:-1])
    yield json.dumps(in_json, ensure_ascii=False)[1:-1]  # in JSON that is quoted in JSON
    yield from (escape(secret), quote(secret, safe=_VISIBLE, errors="replace"))
    for encoded in (quote(secret, safe="", errors="replace"), quote_plus(secret, errors="replace")):
        yield encoded
        yield re.sub("%..", lambda match: match[0].lower(), encoded)


def _start_of_half(secret: str, text: str) -> int:
    """Where the beginning of `secret` stands that `text` ends with; -1 where it does not."""
    start = text.find(secret[:_SHORTEST], max(len(text) - len(secret), 0))
    while start >= 0 and not secret.startswith(text[start:]):
        start = text.find(secret[:_SHORTEST], start + 1)
    return start


def _redact_fragments(text: str, secret: str) -> str:
    """Remove the beginning of `secret` where it was cut, and its end after an ellipsis."""
    head = secret[:_SHORTEST]
    pieces: list[str] = []
    done, start = 0, text.find(head)
    while start >= 0:
        length = _common_length(text, start, secret)
        if _is_cut(text, start, length):
            pieces += [text[done:start], REDACTED]
            done = start + length
        start = text.find(head, start + length)
    return _redact_tails("".join([*pieces, text[done:]]), secret)


def _redact_tails(text: str, secret: str) -> str:
    tail = secret[-_SHORTEST:]
    pieces: list[str] = []
    done, found = 0, text.find(tail)
    while found >= 0:
        end = found + _SHORTEST
        length = _common_length(text[max(end - len(secret), done) : end][::-1], 0, secret[::-1])
        start = end - length
        if length >= _FRAGMENT or text[max(start - 3, 0) : start].endswith(_CUT_HERE):
            pieces += [text[done:start], REDACTED]
            done = end
        found = text.find(tail, end)
    return "".join([*pieces, text[done:]])


def _common_length(text: str, start: int, secret: str) -> int:
    most = min(len(text) - start, len(secret))
    return next((n for n in range(most) if text[start + n] != secret[n]), most)


def _is_cut(text: str, start: int, length: int) -> bool:
    """Whether so long a beginning of a secret is one, rather than a word that it shares."""
    end = start + length
    if length >= _FRAGMENT or text.startswith(_CUT_HERE, end):
        return True
    at_line_end = text[end : end + 1] in ("", "\n")
    return at_line_end and length >= _SHORTEST_AT_LINE_END and not text[start:end].isalpha()


def _mask_key(match: re.Match[str]) -> str:
    found = match[0]
    # The other shapes are not those of names, whatever they consist of.
    certain = found[:2].lower() in ("be", "ba", "--", "ey")
    return REDACTED if certain or _KEY_BODY.search(found) else found
