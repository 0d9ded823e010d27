"""Excerpts of samples: the short texts and fields that a table of results shows and filters by."""

import unicodedata
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import to_json

from assay.types import build_label, explain_result, replace_lone_surrogates

if TYPE_CHECKING:
    from assay.types import Sample

MAX_EXCERPT_CHARS = 240
"""Longer texts are cut, and end with `…`."""

MAX_FIELDS = 32
_MAX_FIELD_CHARS = 120
_MAX_FIELD_NAME_CHARS = 60
_LARGEST_NUMBER = 2**53
# Zero-width joiners are format characters too, but scripts and emoji are spelled with them.
_JOINERS = "\u200c\u200d"


class Excerpt(NamedTuple):
    """The excerpt of one sample. Texts are on one line, without control characters; "" if none."""

    label: str
    answer: str
    expected: str
    reason: str
    fields: str
    """JSON object of the scalar fields of the dataset row: numbers and short texts."""


NO_EXCERPT = Excerpt("", "", "", "", "")


def build_excerpt(sample: "Sample") -> Excerpt:
    """Build the excerpt of a sample that is completed or failed."""
    truth, result, failure = sample.ground_truth, sample.score, sample.failure
    if failure is not None:
        reason = f"{failure.kind}: {failure.message}"
    else:
        reason = "" if result is None else explain_result(result)
    return Excerpt(
        shorten_text(build_label(sample)),
        # The answer of a failed sample, if there is one, is in its transcript.
        shorten_text(sample.response) if failure is None else "",
        shorten_text(truth if isinstance(truth, str) else "" if truth is None else str(truth)),
        shorten_text(reason),
        _build_fields(sample.input),
    )


def shorten_text(text: str, most: int = MAX_EXCERPT_CHARS) -> str:
    """Put a text on one line, without control characters, cut with `…`."""
    if len(text) > 4 * most:
        # Splitting a whole page of text to show its first line would be slow.
        text = f"{text[: 4 * most]}…"
    line = " ".join(text.split())
    if not line.isprintable():
        line = "".join(map(_hide_control_character, line))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _hide_control_character(character: str) -> str:
    hidden = unicodedata.category(character)[0] == "C" and character not in _JOINERS
    return "\ufffd" if hidden else character


def _build_fields(row: dict[str, Any]) -> str:
    fields: dict[str, Any] = {}
    for name, value in row.items():
        kind = type(value)
        if kind is str:
            if not value.isprintable() or len(value) > _MAX_FIELD_CHARS:
                value = shorten_text(value, _MAX_FIELD_CHARS)
        elif kind is bool:
            # Databases disagree about booleans in JSON; texts are the same in both.
            value = "true" if value else "false"
        elif (kind is not int and kind is not float) or not abs(value) <= _LARGEST_NUMBER:
            continue
        if not name.isprintable() or len(name) > _MAX_FIELD_NAME_CHARS:
            continue
        fields[name] = value
        if len(fields) == MAX_FIELDS:
            break
    return to_json(fields).decode() if fields else ""


def to_column_text(text: str) -> str:
    """Replace characters that a database refuses: NUL (PostgreSQL) and lone surrogates (both)."""
    return replace_lone_surrogates(text.replace("\0", "\ufffd"))
