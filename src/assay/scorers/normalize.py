"""Normalise short answers so that equal texts and numbers compare equal."""

import math
import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal

# Longer runs of digits are compared as text: no answer needs them, and they cost time.
_MAX_ANSWER_DIGITS = 400

# Digits after a leading zero are a code, not a quantity: "007" is not 7.
_ANSWER_NUMBER = re.compile(
    r"(?P<sign>[-+]?)[$€£¥]?(?P<inner>[-+]?)"
    r"(?P<whole>[1-9][0-9]{0,2}(?:,[0-9]{3})+|0|[1-9][0-9]*)?"
    r"(?P<fraction>\.[0-9]*)?(?P<exponent>[eE][-+]?[0-9]{1,4})?\s?%?"
)
# A number amid other text. A digit after a letter or `^` belongs to a unit or a name, such as `m2`;
# a minus after an operand is a subtraction. Both separators together show which one is the decimal
# one: "1.234,50" is 1234.5, while "1.234" is read as in English.
_NUMBER_IN_TEXT = re.compile(
    r"(?<![\w.,/^])(?P<sign>(?<!\))-)?[$€£¥]?(?P<inner>-?)"
    r"(?:(?P<european>[1-9][0-9]{0,2}(?:\.[0-9]{3})+,[0-9]{1,2})"
    r"|(?P<plain>(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|0|[1-9][0-9]*)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?P<exponent>[eE][-+]?[0-9]{1,4})?)"
    r"(?:(?P<mixed>\s[1-9][0-9]*)?/(?P<divisor>[1-9][0-9]*)(?![0-9/]))?"
    r"(?![0-9]|(?:st|nd|rd|th)\b)"
)
_FRACTION = re.compile(
    r"(?P<whole>[0-9]?)\s?\\[dt]?frac\s?(?:\{(?P<over>[0-9]+)\}\{(?P<under>[0-9]+)\}"
    r"|(?P<digit>[0-9])(?P<other>[0-9]))"
)
# "1.5 × 10^3" and its LaTeX.
_POWER_OF_TEN = re.compile(r"(?<=[0-9])\s?(?:×|\*|\\times|\\cdot)\s?10\^\{?(-?[0-9]{1,4})\}?")
# Separators of thousands that cannot be mistaken for anything else. A plain space can.
_THOUSANDS = re.compile(r"(?<=[0-9])['’_\u00a0\u2009\u202f](?=[0-9]{3}(?![0-9]))")
_LATEX_WRAPPER = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\{([^{}]*)\}")
# A quotient with all digits of the precision of decimals is rounded.
_DECIMAL_DIGITS = 28
# Removed only as a pair around the whole answer: "(a) or (b)" keeps its brackets.
_PAIRS = ('""', "''", "“”", "‘’", "$$", "()", "[]")
_LATEX = (
    ("\\$", "$"),
    ("\\%", "%"),
    ("{,}", ","),
    ("\\,", ""),
    ("\\!", ""),
    ("\\(", ""),
    ("\\)", ""),
)


@dataclass(frozen=True)
class NormalizedAnswer:
    """An answer in normal form."""

    text: str
    number: Decimal | None

    def same_as(self, other: "NormalizedAnswer") -> bool:
        """Whether both are the same number, or else the same text. An empty text equals none."""
        if self.number is not None and other.number is not None:
            return self.number == other.number
        return self.text == other.text and self.text != ""


def normalize_answer(answer: str) -> NormalizedAnswer:
    """Remove case, spacing, quotes, markup and closing punctuation from a text."""
    text = _strip_wrapping(_remove_latex(answer))
    return NormalizedAnswer(text=text.casefold(), number=_parse_answer_number(text))


def list_numbers(text: str) -> list[str]:
    """Return the numbers in a text in order, without units, currency signs and separators.

    A fraction is a decimal number where that is exact: "1/2" and `\\frac{1}{2}` are "0.5".
    """
    plain = _POWER_OF_TEN.sub(r"e\1", _remove_latex(text)).replace("**", " ").replace("__", " ")
    return [
        _format_match(match)
        for match in _NUMBER_IN_TEXT.finditer(plain)
        if len(match[0]) <= _MAX_ANSWER_DIGITS
    ]


def _format_match(match: re.Match[str]) -> str:
    european = (match["european"] or "").replace(".", "").replace(",", ".")
    digits = european or match["plain"].replace(",", "") + (match["exponent"] or "")
    sign = "-" if match["sign"] or match["inner"] else ""
    if match["divisor"] is None:
        return sign + digits
    # "2 1/2" is 2 and a half; in "1/2" the first number is divided.
    over = Decimal(match["mixed"] or digits)
    whole = Decimal(digits) if match["mixed"] else Decimal(0)
    value = whole + over / Decimal(match["divisor"])
    exact = over % Decimal(match["divisor"]) == 0 or len(str(value)) < _DECIMAL_DIGITS
    return f"{sign}{value}" if exact else f"{sign}{match[0].lstrip('-$€£¥')}"


def _remove_latex(text: str) -> str:
    text = _THOUSANDS.sub(",", unicodedata.normalize("NFC", text).replace("\u2212", "-"))
    text = " ".join(text.split())
    for written, plain in _LATEX:
        text = text.replace(written, plain)
    return _FRACTION.sub(_format_fraction, _LATEX_WRAPPER.sub(r"\1", text))


def _format_fraction(match: re.Match[str]) -> str:
    fraction = f"{match['over'] or match['digit']}/{match['under'] or match['other']}"
    # A space only after a whole number: a minus sign in front belongs to the fraction.
    return f"{match['whole']} {fraction}" if match["whole"] else fraction


def normalize_number(value: int | float) -> NormalizedAnswer:
    """Return the normal form of a ground truth that is a number."""
    return NormalizedAnswer(text=repr(value), number=Decimal(repr(value)))


def is_close(answer: NormalizedAnswer, value: float) -> bool:
    """Whether a written number equals a float, up to the precision of floats."""
    return answer.number is not None and math.isclose(answer.number, value, rel_tol=1e-9)


def _strip_wrapping(text: str) -> str:
    while True:
        inner = text.lstrip(" *`").rstrip(" *`.,;:!?")
        pair = inner[:1] + inner[-1:]
        if len(inner) > 2 and pair in _PAIRS and not set(pair) & set(inner[1:-1]):
            inner = inner[1:-1]
        # An answer of punctuation only, such as "*", is kept.
        if not inner or inner == text:
            return text
        text = inner


def _parse_answer_number(text: str) -> Decimal | None:
    if len(text) > _MAX_ANSWER_DIGITS or not (match := _ANSWER_NUMBER.fullmatch(text)):
        return None
    whole, fraction = match["whole"] or "", match["fraction"] or ""
    # A sign may precede the currency sign or follow it, "-$5" or "$-5", but not both.
    if not (whole or fraction.strip(".")) or (match["sign"] and match["inner"]):
        return None
    digits = f"{whole.replace(',', '') or '0'}{fraction}"
    return Decimal(f"{match['sign'] or match['inner']}{digits}{match['exponent'] or ''}")
