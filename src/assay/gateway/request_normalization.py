"""Requests in a form that is the same in every run of the same agent.

Only what differs between two runs without a change of the agent is replaced, see `_VARYING`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from pydantic_core import from_json, to_json

from assay.types import encode_stable_json

from .redacted_values import redact_values
from .request_parts import RequestParts

# Fields that identify a caller or the transport of an answer. No answer depends on them.
_OMITTED_FIELDS = frozenset(
    {"stream", "stream_options", "metadata", "client_metadata", "user", "safety_identifier"}
    | {"prompt_cache_key", "store"}
)
# A part is normalized at 2 MB/s. These suffice for one report of a difference.
_MAX_KNOWN_PARTS = 256
# Of digests, which are small: more than any conversation has.
_MAX_KNOWN_DIGESTS = 20_000
_DIGEST_BYTES = 16
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_CLOCK = r"\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
# In JSON, a line break before a word is a letter, which would hide the start of the word.
_START = r"(?:\b|(?<=\\[nrt]))"
# Folders of samples, wherever $TMPDIR is. Paths are cut: a hostile one must not take long.
_SAMPLE_FOLDER = "assay-"
_SAMPLE_FOLDERS = (
    (re.compile(r"(?:/[\w.+-]+){0,16}/assay-[a-z0-9_]{8}(?!\w)"), "<tmp>"),
    (re.compile(r"/-(?:[\w-]{0,200}-)?assay-[a-z0-9-]{8}(?!\w)(?:-[\w-]+)?"), "/<tmp>"),
)
_VARYING = (
    (
        re.compile(r"(?i)(?<![0-9a-f])[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![0-9a-f])"),
        "<uuid>",
    ),
    (
        re.compile(rf"{_START}\d{{4}}-\d{{2}}-\d{{2}}(?:[T ]{_CLOCK}(?:Z|[+-]\d{{2}}:?\d{{2}})?)?"),
        "<time>",
    ),
    (re.compile(rf"{_START}{_DAY},? {_MONTH} +\d{{1,2}}(?: {_CLOCK})?,? \d{{4}}"), "<time>"),
    # As `ls -l` prints it.
    (re.compile(rf"{_START}{_MONTH} +\d{{1,2}} +{_CLOCK}"), "<time>"),
    (re.compile(rf"{_START}\d+\.\d+ ?(?:s|ms|sec|seconds)\b"), "<duration>"),
    (
        re.compile(r"(?:/private)?(?:/var/folders/[\w+]+/[\w+]+/T|/var/tmp|/tmp)/[\w.+-]+"),
        "<tmp>",
    ),
    # Claude Code names a folder after the path of another one.
    (re.compile(r"/-(?:private-)?(?:var-folders-[\w-]+?-T|var-tmp|tmp)-[\w-]+"), "/<tmp>"),
    # Random ids, and digests of files with times in them.
    (re.compile(rf"{_START}(?=\d*[a-f])[0-9a-f]{{16,}}\b"), "<hex>"),
    # In the results of tools of Codex and of Claude Code.
    (re.compile(rf"{_START}Chunk ID: [0-9a-f]+"), "Chunk ID: <hex>"),
    (re.compile(rf"{_START}duration_ms: \d+"), "duration_ms: <duration>"),
    (re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\]):\d+(?:/s/[\w-]+)?"), "<loopback>"),
)


def normalize_request(body: Mapping[str, Any]) -> bytes:
    """Return a request as canonical JSON, without keys and without varying parts."""
    fields = [
        f"{to_json(name).decode()}:{_normalize_value(body[name])}"
        for name in sorted(body)
        if name not in _OMITTED_FIELDS
    ]
    return f"{{{','.join(fields)}}}".encode()


def _normalize_value(value: Any) -> str:
    # Most messages and tools of a request were in the one before: each is normalized once.
    if isinstance(value, list):
        return f"[{','.join(_normalize_request_part(to_json(item)) for item in value)}]"
    return _normalize_request_part(to_json(value))


@lru_cache(maxsize=_MAX_KNOWN_PARTS)
def _normalize_request_part(written: bytes) -> str:
    return _normalize_written(written)


def _normalize_written(written: bytes) -> str:
    text = encode_stable_json(redact_values(from_json(written))).decode()
    patterns = (*_SAMPLE_FOLDERS, *_VARYING) if _SAMPLE_FOLDER in text else _VARYING
    for pattern, placeholder in patterns:
        text = pattern.sub(placeholder, text)
    return text


def digest_request(kind: str, normalized: bytes) -> bytes:
    """Return the digest by which equal requests of the same kind are found."""
    return blake2b(b"\0".join((kind.encode(), normalized)), digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class RequestDigests:
    """The digests of the normalized parts of a request."""

    fields: Mapping[str, bytes]
    items: tuple[bytes, ...]
    """Those of the conversation; empty if it is not a list."""

    def build_key(self, kind: str) -> bytes:
        """Return the digest by which equal requests of the same kind are found."""
        members = [
            to_json(name) + self.fields[name]  # each digest has the same length
            for name in sorted(self.fields)
        ]
        return digest_request(kind, b"".join([*members, b"\0", *self.items]))


class RequestDigester:
    """Digests requests by their normalized form.

    An agent sends its whole conversation with every call: each part is normalized once.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}

    def digest(self, parts: RequestParts) -> RequestDigests:
        """Return the digests of a request."""
        fields = {
            name: self._digest_part(written)
            for name, written in parts.fields.items()
            if name not in _OMITTED_FIELDS
        }
        if parts.items is not None:
            # An empty conversation is not the same as none.
            fields[parts.list_field] = bytes(_DIGEST_BYTES)
        return RequestDigests(fields, tuple(map(self._digest_part, parts.items or ())))

    def _digest_part(self, written: bytes) -> bytes:
        key = blake2b(written, digest_size=_DIGEST_BYTES).digest()
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MAX_KNOWN_DIGESTS:
                self._known.clear()
            normalized = _normalize_written(written)
            found = blake2b(
                normalized.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES
            ).digest()
            self._known[key] = found
        return found
