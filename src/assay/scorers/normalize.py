"""When two short texts are the same answer: one spelling for each text and each number."""

import math
import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal

_MAX_ANSWER_DIGITS = 400
"""Longer runs of digits are compared as text: no answer needs them, and they cost time."""

# A leading zero says that digits are a code, not a quantity: "007" is not 7.
_ANSWER_NUMBER = re.compile(
    r"(?P<sign>[-+]?)[$€£¥]?(?P<inner>[-+]?)"
    r"(?P<whole>[1-9][0-9]{0,2}(?:,[0-9]{3})+|0|[1-9][0-9]*)?"
    r"(?P<fraction>\.[0-9]*)?(?P<exponent>[eE][-+]?[0-9]{1,4})?\s?%?"
)
_LATEX_WRAPPER = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\{([^{}]*)\}")
_PAIRS = ('""', "''", "“”", "‘’", "$$", "()", "[]")
_LATEX = (("\\$", "$"), ("\\%", "%"), ("{,}", ","), ("\\,", ""), ("\\(", ""), ("\\)", ""))


@dataclass(frozen=True)
class NormalizedAnswer:
    """One answer in the spelling that equal answers share."""

    text: str
    number: Decimal | None

    def same_as(self, other: "NormalizedAnswer") -> bool:
        """Whether both are the same number, or failing that the same text. Nothing equals ""."""
        if self.number is not None and other.number is not None:
            return self.number == other.number
        return self.text == other.text and self.text != ""


def normalize_answer(answer: str) -> NormalizedAnswer:
    """The spelling of a text without case, spacing, quotes, markup and closing punctuation."""
    text = " ".join(unicodedata.normalize("NFC", answer).replace("\u2212", "-").split())
    for written, plain in _LATEX:
        text = text.replace(written, plain)
    text = _strip_wrapping(_LATEX_WRAPPER.sub(r"\1", text))
    return NormalizedAnswer(text=text.casefold(), number=_parse_answer_number(text))


def normalize_number(value: int | float) -> NormalizedAnswer:
    """The spelling of a ground truth that is a number already."""
    return NormalizedAnswer(text=repr(value), number=Decimal(repr(value)))


def is_close(answer: NormalizedAnswer, value: float) -> bool:
    """Whether a written number is this float, up to the digits a float can hold."""
    return answer.number is not None and math.isclose(answer.number, value, rel_tol=1e-9)


def _strip_wrapping(text: str) -> str:
    """`text` without what is around it; as it was when nothing else would be left."""
    while True:
        inner = text.lstrip(" *`").rstrip(" *`.,;:!?")
        pair = inner[:1] + inner[-1:]
        if len(inner) > 2 and pair in _PAIRS and not set(pair) & set(inner[1:-1]):
            inner = inner[1:-1]
        if not inner or inner == text:
            return text
        text = inner


def _parse_answer_number(text: str) -> Decimal | None:
    if len(text) > _MAX_ANSWER_DIGITS or not (match := _ANSWER_NUMBER.fullmatch(text)):
        return None
    whole, fraction = match["whole"] or "", match["fraction"] or ""
    if not (whole or fraction.strip(".")) or (match["sign"] and match["inner"]):
        return None
    digits = f"{whole.replace(',', '') or '0'}{fraction}"
    return Decimal(f"{match['sign'] or match['inner']}{digits}{match['exponent'] or ''}")
