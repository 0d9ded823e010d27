"""Look up the quotes of a judge in the transcript."""

import re
import unicodedata
from dataclasses import dataclass

from .judged_transcript import JudgedTranscript

_GAP = re.compile(r"\[?(?:\.\.\.|…)\]?")
_QUOTE_ESCAPE = re.compile(r"\\[nrt]|\\(?=[\"'\\/])")
_QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "\u2212": "-"})


@dataclass(frozen=True)
class QuotedEvidence:
    """A quote and the turns that contain it."""

    quote: str
    turns: tuple[int, ...]
    """Empty when it was not found."""


class QuoteIndex:
    """The texts of a transcript that may be quoted, searched regardless of spacing."""

    def __init__(self, shown: JudgedTranscript) -> None:
        self._turns = [
            (turn.number, [_normalize_quote(text) for text in turn.texts if text])
            for turn in shown.turns
        ]

    def find(self, quote: str) -> QuotedEvidence:
        """Return the turns that contain a quote. `...` in it matches anything within one text."""
        parts = [
            part for piece in _GAP.split(quote) if (part := _normalize_quote(piece).strip(" \"'"))
        ]
        turns = tuple(
            number
            for number, texts in self._turns
            if parts and any(_occurs_in(parts, text) for text in texts)
        )
        return QuotedEvidence(quote, turns)

    def contains(self, text: str) -> bool:
        """Whether one text of the transcript contains all of `text`, regardless of spacing."""
        wanted = _strip_spaces(text)
        return any(wanted in _strip_spaces(each) for _, texts in self._turns for each in texts)


def _occurs_in(parts: list[str], text: str) -> bool:
    position = 0
    for part in parts:
        position = text.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return True


def _normalize_quote(text: str) -> str:
    # Judges copy quotes out of JSON lines, with its escapes, and typeset the quotation marks.
    plain = _QUOTE_ESCAPE.sub(lambda match: " " if match[0] != "\\" else "", text)
    return " ".join(unicodedata.normalize("NFC", plain).translate(_QUOTES).split())


def _strip_spaces(text: str) -> str:
    return "".join(_normalize_quote(text).split())
