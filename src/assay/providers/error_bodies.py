"""The bodies of failed requests: their message, and details that the status does not show."""

import json
import re
from codecs import BOM_UTF8
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from assay.formats import make_storable

_TAG = re.compile(r"<[^<>]*>")
_CODE_TAG = re.compile(r"<(/?)(script|style)\b[^<>]*>", re.I)
_JSON_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|/)")
_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")
# Google answers a wrong key with status 400, like a wrong request.
_KEY_REASONS = ("API_KEY_INVALID", "API_KEY_EXPIRED")


@dataclass(frozen=True)
class ErrorBody:
    """An error as a server described it. Nothing in it is redacted yet."""

    text: str
    retry_after_s: float | None = None
    """The wait that Google puts into the body instead of a header."""

    refuses_key: bool = False
    is_filtered: bool = False
    """Whether a content filter rejected the request."""


def parse_body(data: bytes) -> Any:
    """Parse JSON. Raises `ValueError` if it is invalid."""
    try:
        return from_json(data)
    except ValueError:
        if not data.startswith(BOM_UTF8) and b"\\ud" not in data and b"\\uD" not in data:
            raise
    # A byte order mark, or a lone surrogate where a model was truncated inside an emoji. The
    # slower parser accepts both, and lone surrogates are replaced.
    return make_storable(json.loads(data))


def parse_error_body(data: bytes) -> ErrorBody:
    """Parse the body of an error: JSON of a known shape, a page or plain text."""
    try:
        value = parse_body(data)
    except (ValueError, RecursionError):
        # Perhaps truncated JSON, in which a secret may be escaped.
        text = _JSON_ESCAPE.sub(
            lambda match: chr(int(match[1], 16)) if match[1] else "/",
            data.decode("utf-8", "replace"),
        )
        return ErrorBody(_strip_markup(text))
    if isinstance(value, list) and len(value) == 1:
        value = value[0]  # Google's form for requests that it would answer with a stream
    error = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(error, dict):
        # Re-encoded: in the server's spelling, an escaped secret might not be recognised.
        return ErrorBody(error if isinstance(error, str) else to_json(error).decode())
    return _read_error_object(error)


def _read_error_object(error: dict[str, Any]) -> ErrorBody:
    keys = ("type", "__type", "code", "status", "message", "Message")
    words = [str(error[key]) for key in keys if error.get(key) and not _is_status(error[key])]
    filtered = _list_filtered_categories(error)
    if words and filtered:
        words[-1] += f" (filtered: {', '.join(filtered)})"
    details = error.get("details")
    entries = (
        [each for each in details if isinstance(each, dict)] if isinstance(details, list) else []
    )
    waits = [
        match for each in entries if (match := _SECONDS.fullmatch(str(each.get("retryDelay"))))
    ]
    return ErrorBody(
        ": ".join(dict.fromkeys(words)) or to_json(error).decode(),
        retry_after_s=float(waits[0][1]) if waits else None,
        refuses_key=any(each.get("reason") in _KEY_REASONS for each in entries),
        is_filtered=error.get("code") == "content_filter" or bool(filtered),
    )


def _is_status(value: object) -> bool:
    # The status of the answer again, which the message already shows.
    return str(value).isdecimal() and 400 <= int(str(value)[:4]) < 600


def _list_filtered_categories(error: dict[str, Any]) -> list[str]:
    # Azure: {"innererror": {"content_filter_result": {"hate": {"filtered": true, ...}, ...}}}
    inner = error.get("innererror")
    result = inner.get("content_filter_result") if isinstance(inner, dict) else None
    if not isinstance(result, dict):
        return []
    return [
        name
        for name, found in result.items()
        if isinstance(found, dict) and found.get("filtered") is True
    ]


def _strip_markup(text: str) -> str:
    # A single pass over untrusted text: a backtracking pattern could block the event loop.
    pieces: list[str] = []
    shown, end, opened = True, 0, ""
    for tag in _CODE_TAG.finditer(text):
        closes, name = bool(tag[1]), tag[2].lower()
        if shown and not closes:
            pieces.append(text[end : tag.start()])
            shown, opened = False, name
        elif closes and name == opened:
            shown, end = True, tag.end()
    if shown:
        pieces.append(text[end:])
    return _TAG.sub(" ", " ".join(pieces))
