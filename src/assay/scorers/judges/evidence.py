"""Whether what a judge quotes really stands in the transcript."""

import re
import unicodedata
from dataclasses import dataclass

from .judged_transcript import JudgedTranscript

_GAP = re.compile(r"\[?(?:\.\.\.|…)\]?")
_QUOTE_ESCAPE = re.compile(r"\\[nrt]|\\(?=[\"'\\/])")
_QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "\u2212": "-"})


@dataclass(frozen=True)
class QuotedEvidence:
    """A quote, and the turns that it was found in."""

    quote: str
    turns: tuple[int, ...]

    @property
    def found(self) -> bool:
        return bool(self.turns)


class QuoteIndex:
    """What may be quoted of a transcript, looked up without regard to spacing."""

    def __init__(self, shown: JudgedTranscript) -> None:
        self._turns = [
            (turn.number, [_normalize_quote(text) for text in turn.texts if text])
            for turn in shown.turns
        ]

    def find(self, quote: str) -> QuotedEvidence:
        """Where a quote stands. `...` in it stands for anything within one text."""
        parts = [
            part for piece in _GAP.split(quote) if (part := _normalize_quote(piece).strip(" \"'"))
        ]
        turns = tuple(
            number
            for number, texts in self._turns
            if parts and any(_occurs_in(parts, text) for text in texts)
        )
        return QuotedEvidence(quote, turns)

    def holds(self, text: str) -> bool:
        """Whether some text of the transcript has all of `text` in it, spacing aside."""
        wanted = _strip_spaces(text)
        return any(wanted in _strip_spaces(each) for _, texts in self._turns for each in texts)


def _occurs_in(parts: list[str], text: str) -> bool:
    place = 0
    for part in parts:
        place = text.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return True


def _normalize_quote(text: str) -> str:
    """One spelling for texts that a judge may have copied out of JSON or set in other quotes."""
    plain = _QUOTE_ESCAPE.sub(lambda match: " " if match[0] != "\\" else "", text)
    return " ".join(unicodedata.normalize("NFC", plain).translate(_QUOTES).split())


def _strip_spaces(text: str) -> str:
    return "".join(_normalize_quote(text).split())
