"""Redacts secrets from text that is shown or written.

Every live `Redactor` is registered: `redact` removes the secrets of all of them, so that the
failure of one component cannot leak a key of another.
"""

import json
import os
import re
import threading
from collections.abc import Iterable
from functools import cached_property, lru_cache
from urllib.parse import quote, quote_plus
from weakref import WeakSet

REDACTED = "[redacted]"
_MIN_SECRET_LENGTH = 4
# For text that does not come from the server with the secret: shorter secrets may be words.
_MIN_SHARED_SECRET_LENGTH = 6
_MIN_ENVIRONMENT_SECRET_LENGTH = 8
# A fragment of this length is redacted anywhere in a text.
_MIN_FRAGMENT_LENGTH = 12
# Passed as a key to servers that require none, so redacting them would only garble messages.
_PLACEHOLDER_KEYS = frozenset({"lm-studio", "not-needed", "ollama"})
_MIN_LINE_END_FRAGMENT_LENGTH = 8
_VISIBLE_ASCII = "".join(map(chr, range(33, 127)))
_TRUNCATION_MARKS = ("...", "…", "*")
_SECRET_VARIABLE = re.compile(
    r"(?:^|_)KEY$|API_?KEY$|TOKEN$|SECRET$|PASSW(?:OR)?D$|(?:^|_)PASS$", re.IGNORECASE
)
_SECRET_PATTERN = re.compile(
    r"\b(?:(?:sk|pk|rk|xai|gsk|hf|fw|gh[oprsu]|github_pat|glpat|npm|xox[abeprs])[-_]|A[KS]IA|AIza)"
    r"[-_A-Za-z0-9]{12,}"
    r"|\beyJ[-_A-Za-z0-9]{8,}\.eyJ[-_A-Za-z0-9]{8,}\.[-_A-Za-z0-9]{8,}"
    r"|-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----"
    r"(?:[^-]{0,20000}-----END [A-Z ]{0,20}PRIVATE KEY-----)?"
    r"|(?i:\b(?:bearer|basic)\s+)(?=\S*[\d=._])[-._~+/=A-Za-z0-9]{8,}"
)
# Names such as `hf_hub_download` have a key's prefix, but consist of short words.
_KEY_BODY = re.compile(r"[A-Za-z0-9]{16}")


class Redactor:
    """Removes a set of secrets from text.

    `redact` removes them too for as long as a reference to the redactor exists.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = {text for text in secrets if len(text) >= _MIN_SECRET_LENGTH}
        if self._secrets:
            with _REDACTORS_LOCK:
                _LIVE_REDACTORS.add(self)

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets)} secrets)"

    def clean(self, text: str, *, cut: bool = False) -> str:
        """Return `text` without known secrets and without strings that look like keys.

        With `cut`, a secret that the end of the text truncates is removed as well.
        """
        for spelling in self._encodings:
            text = text.replace(spelling, REDACTED)
        if cut:
            text = text.rstrip("\ufffd")  # the remains of a truncated character
            starts = []
            for spelling in self._encodings:
                # The position of a prefix of the secret that the text ends with, or -1.
                head = spelling[:_MIN_SECRET_LENGTH]
                found = text.find(head, max(len(text) - len(spelling), 0))
                while found >= 0 and not spelling.startswith(text[found:]):
                    found = text.find(head, found + 1)
                starts.append(found)
            start = min((each for each in starts if each >= 0), default=-1)
            text = text if start < 0 else f"{text[:start]}{REDACTED}"
        return _SECRET_PATTERN.sub(_mask_key, text)

    @cached_property
    def _encodings(self) -> list[str]:
        # Computed lazily, because most servers never return an error to clean.
        return _collect_encodings(self._secrets)


_LIVE_REDACTORS: WeakSet[Redactor] = WeakSet()
_REDACTORS_LOCK = threading.Lock()


def redact(text: str) -> str:
    """Return `text` without any secret in use in this process, whole or truncated.

    Secrets in use are those of live redactors and the environment variables named like one
    (`OPENAI_API_KEY`, `HF_TOKEN`, `PGPASSWORD`).
    """
    with _REDACTORS_LOCK:
        live = list(_LIVE_REDACTORS)
    found = {secret for each in live for secret in each._secrets}
    secrets = {
        secret for secret in found if len(secret) >= _MIN_SHARED_SECRET_LENGTH
    } - _PLACEHOLDER_KEYS
    # Read at each call, because a test or a notebook may set a key at any time.
    secrets |= {
        value.strip()
        for name, value in os.environ.items()
        if len(value) >= _MIN_ENVIRONMENT_SECRET_LENGTH and _SECRET_VARIABLE.search(name)
    }
    spellings = _collect_encodings_cached(frozenset(secrets))
    for spelling in spellings:
        text = text.replace(spelling, REDACTED)
    # After all whole spellings: a fragment of one may be a part of another.
    for spelling in spellings:
        if len(spelling) > _MIN_LINE_END_FRAGMENT_LENGTH:
            text = _redact_fragments(text, spelling)
    return _SECRET_PATTERN.sub(_mask_key, text)


def _collect_encodings(secrets: Iterable[str]) -> list[str]:
    # The secrets themselves and their encodings in JSON, Python, URLs and HTML, longest first.
    from html import escape  # loads a table of 2,000 names, which few programs need

    found: set[str] = set()
    for secret in secrets:
        in_json = json.dumps(secret, ensure_ascii=False)[1:-1]
        found |= {secret, in_json, json.dumps(secret)[1:-1], repr(secret)[1:-1]}
        found.add(json.dumps(in_json, ensure_ascii=False)[1:-1])  # in JSON that is quoted in JSON
        found |= {escape(secret), quote(secret, safe=_VISIBLE_ASCII, errors="replace")}
        in_urls = {quote(secret, safe="", errors="replace"), quote_plus(secret, errors="replace")}
        found |= in_urls
        found |= {re.sub("%..", lambda match: match[0].lower(), each) for each in in_urls}
    return sorted(found, key=len, reverse=True)


# Errors come in bursts with the same secrets; only a few sets of them are ever in use.
_collect_encodings_cached = lru_cache(maxsize=4)(_collect_encodings)


def _redact_fragments(text: str, secret: str) -> str:
    # Servers quote keys as `sk-abc...xyz`: both the prefix and the suffix are removed.
    head = secret[:_MIN_SECRET_LENGTH]
    pieces: list[str] = []
    done, start = 0, text.find(head)
    while start >= 0:
        length = _measure_common_prefix(text, start, secret)
        end = start + length
        # A short prefix may be an ordinary word that the secret happens to begin with.
        cut = length >= _MIN_FRAGMENT_LENGTH or text.startswith(_TRUNCATION_MARKS, end)
        ends_line = text[end : end + 1] in ("", "\n") and not text[start:end].isalpha()
        if cut or (ends_line and length >= _MIN_LINE_END_FRAGMENT_LENGTH):
            pieces += [text[done:start], REDACTED]
            done = start + length
        start = text.find(head, start + length)
    return _redact_tails("".join([*pieces, text[done:]]), secret)


def _redact_tails(text: str, secret: str) -> str:
    tail = secret[-_MIN_SECRET_LENGTH:]
    pieces: list[str] = []
    done, found = 0, text.find(tail)
    while found >= 0:
        end = found + _MIN_SECRET_LENGTH
        length = _measure_common_prefix(
            text[max(end - len(secret), done) : end][::-1], 0, secret[::-1]
        )
        start = end - length
        if length >= _MIN_FRAGMENT_LENGTH or text[max(start - 3, 0) : start].endswith(
            _TRUNCATION_MARKS
        ):
            pieces += [text[done:start], REDACTED]
            done = end
        found = text.find(tail, end)
    return "".join([*pieces, text[done:]])


def _measure_common_prefix(text: str, start: int, secret: str) -> int:
    most = min(len(text) - start, len(secret))
    return next((n for n in range(most) if text[start + n] != secret[n]), most)


def _mask_key(match: re.Match[str]) -> str:
    found = match[0]
    # Bearer tokens, PEM blocks and JWTs cannot be confused with names.
    certain = found[:2].lower() in ("be", "ba", "--", "ey")
    return REDACTED if certain or _KEY_BODY.search(found) else found
