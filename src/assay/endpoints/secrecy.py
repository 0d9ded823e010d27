"""Keeps secrets out of text that people and files will see."""

import re
from collections.abc import Iterable
from urllib.parse import unquote, unquote_plus, urlsplit

from assay.models import Endpoint

REDACTED = "[redacted]"
_SHORTEST = 4
_PLAIN_HEADERS = frozenset(
    {"accept", "accept-encoding", "content-type", "user-agent", "anthropic-version"}
)
_LOOKS_SECRET = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|hf|ghp|AKIA|AIza)[-_A-Za-z0-9]{12,}"
    r"|(?i:\b(?:bearer|basic)\s+)(?=\S*[\d=._])[-._~+/=A-Za-z0-9]{8,}"
)


class Redactor:
    """Knows the secrets of one endpoint, and takes them out of any text."""

    def __init__(self, secrets: Iterable[str]) -> None:
        long_first = sorted({text for text in secrets if len(text) >= _SHORTEST}, key=len)
        self._secrets = long_first[::-1]

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets)} secrets)"

    def clean(self, text: str) -> str:
        """`text` without known secrets and without what looks like a key."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return _LOOKS_SECRET.sub(REDACTED, text)


def redactor_for(endpoint: Endpoint, headers: dict[str, str]) -> Redactor:
    """Knows the keys, the headers as sent, and what an address carries besides the address."""
    secrets = [endpoint.api_key, endpoint.oauth_token]
    shown = endpoint.to_dict().get("headers", {})
    for name, value in headers.items():
        if name.lower() not in _PLAIN_HEADERS and name not in shown:
            secrets += [value, *value.split(" ")[1:]]
    parts = urlsplit(endpoint.api_base or "")
    user = parts.netloc.rpartition("@")[0]
    for piece in (user, *user.split(":"), parts.query, parts.fragment):
        secrets += [piece, unquote(piece)]
    for pair in parts.query.split("&"):
        value = pair.partition("=")[2]
        secrets += [value, unquote(value), unquote_plus(value)]
    written = endpoint.to_dict().get("extra_params", {})
    for name, value in endpoint.extra_params.items():
        if name not in written and isinstance(value, str):
            secrets.append(value)
    return Redactor(secrets)
