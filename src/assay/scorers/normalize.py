"""Normalise short answers so that equal texts and numbers compare equal."""

import math
import re
import unicodedata
from dataclasses import dataclass
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from fractions import Fraction

# Longer runs of digits are compared as text: no answer needs them, and they cost time.
_MAX_ANSWER_DIGITS = 400
_CURRENCY = "[$€£¥₹₩₽₺₫₪¢]"

# Digits after a leading zero are a code, not a quantity: "007" is not 7.
_ANSWER_NUMBER = re.compile(
    rf"(?P<sign>[-+]?)(?:{_CURRENCY}\s?)?(?P<inner>[-+]?)"
    r"(?P<whole>[1-9][0-9]{0,2}(?:,[0-9]{3})+|0|[1-9][0-9]*)?"
    rf"(?P<fraction>\.[0-9]*)?(?P<exponent>[eE][-+]?[0-9]{{1,4}})?\s?(?:[%°]|{_CURRENCY})?"
)
# Texts that make the number after them a part of an expression, with or without a minus.
_NOT_A_PART = "".join(
    rf"(?<!{before})(?<!{before}-)"
    for before in r"[/^√±] √[({] sqrt[({\[\s] frac\{ [\]}^_]\{ \\pm \\pm\s".split()
)
# A number amid other text. A digit after a letter or `^` belongs to a unit or a name, such as `m2`;
# a minus after an operand is a subtraction. A part of a root, a power, a fraction of variables or a
# multiple of pi is not the number. Both separators together show which one is the decimal one:
# "1.234,50" is 1234.5, while "1.234" is read as in English.
_NUMBER_IN_TEXT = re.compile(
    rf"(?<![\w.,]){_NOT_A_PART}(?P<sign>(?<!\))-)?{_CURRENCY}?(?P<inner>-?)"
    r"(?>(?P<european>[1-9][0-9]{0,2}(?:\.[0-9]{3})+,[0-9]{1,2}(?![0-9]))"
    r"|(?P<plain>(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|0|[1-9][0-9]*)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?P<exponent>[eE][-+]?[0-9]{1,4})?)"
    r"(?>(?:(?P<mixed>\s[1-9][0-9]*)?/(?P<divisor>[1-9][0-9]*)(?![0-9/]))?)"
    r"(?![0-9]|(?:st|nd|rd|th)\b|[\^_]|\s?(?:\\(?:sqrt|pi)(?![a-zA-Z])|[√π]))"
)
_FRACTION = re.compile(
    r"(?P<whole>[0-9]?)\s?\\frac\s?"
    r"(?:\{\s?(?P<over>-?[0-9]+)\s?\}\s?\{\s?(?P<under>[0-9]+)\s?\}"
    r"|(?P<digit>[0-9])\s?(?P<other>[0-9]))"
)
_FRACTION_COMMAND = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_FRACTION_CHARACTER = re.compile(r"(?P<whole>[0-9]?)(?P<fraction>[¼-¾⅐-⅞])(?![0-9])")
# "1.5 × 10^3", its LaTeX, and "1.5 × 10³".
_POWER_OF_TEN = re.compile(
    r"(?<=[0-9])\s?(?:[×*x]|\\times(?![a-zA-Z])|\\cdot(?![a-zA-Z]))\s?10"
    r"(?:\^\{?(?P<power>-?[0-9]{1,4})\}?|(?P<raised>⁻?[⁰¹²³⁴-⁹]{1,4}))"
)
_RAISED_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
# Separators of thousands that cannot be mistaken for anything else. A plain space can.
_THOUSANDS = re.compile(r"(?<=[0-9])(?:['’_\u00a0\u2009\u202f]|\\[,!])(?=[0-9]{3}(?![0-9]))")
_LATEX_WRAPPER = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|it|rm|sf|tt)|mbox|emph|operatorname)"
    r"\{([^{}]*)\}"
)
_WRAPPERS_DEEP = 3
# With the names of colors. A backslash after another one begins a new line of LaTeX.
_LATEX_SPACE = re.compile(
    r"(?<!\\)\\(?:[,;:>\s]|[hv]space\*?\{[^{}]{0,20}\}|(?:text)?color\{[^{}]{0,20}\}"
    r"|(?:q?quad|enspace|(?:neg)?(?:thin|med|thick)space|displaystyle)(?![a-zA-Z]))|~(?=\\)"
)
_LATEX_BRACKET_SIZE = re.compile(r"\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])\.?")
_EMPTY_MATH = re.compile(r"\\(?:boxed|fbox)\{\s*\}|\$\s+\$")
_DEGREE = re.compile(r"\^(?:\\circ|\{\s?\\circ\s?\})(?![a-zA-Z])|\\degrees?(?![a-zA-Z])")
_BRACKET_SPACE = re.compile(r"(?<=[(\[{])\s|\s(?=[)\]},])")
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
# Full-width forms, as models write them in Chinese and Japanese, and Arabic separators.
_OTHER_CHARACTERS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {
    0x2212: "-",
    0x2044: "/",
    0x3002: ".",
    0x066B: ".",
    0x066C: ",",
}
_WRITTEN_FRACTION = re.compile(r"-?(?:[0-9]{1,20} )?[0-9]{1,20}/[1-9][0-9]{0,19}")
# A quotient with more digits stays the fraction that was written.
_QUOTIENT = Context(prec=28, traps=[Inexact, InvalidOperation])
# Removed only as a pair around the whole answer: "(a) or (b)" keeps its brackets.
_PAIRS = ('""', "''", "“”", "‘’", "$$", "()", "[]")
_BRACKETS = ("()", "[]")
_LATEX = (
    ("\\$", "$"),
    ("\\%", "%"),
    ("{,}", ","),
    ("\\!", ""),
    ("\\(", ""),
    ("\\)", ""),
    ("\\[", ""),
    ("\\]", ""),
    ("$$", "$"),
)


@dataclass(frozen=True)
class NormalizedAnswer:
    """An answer in normal form."""

    text: str
    number: Decimal | None
    brackets: str = ""
    """The brackets around a list, which `text` excludes: "(1, 2)" is not "[1, 2]"."""

    def same_as(self, other: "NormalizedAnswer") -> bool:
        """Whether both are the same number, or else the same text. An empty text equals none.

        A list without brackets equals one with any.
        """
        if self.number is not None and other.number is not None:
            return self.number == other.number
        brackets = {self.brackets, other.brackets} - {""}
        return self.text == other.text and self.text != "" and len(brackets) < 2


def normalize_answer(answer: str) -> NormalizedAnswer:
    """Remove case, spacing, quotes, markup and closing punctuation from a text."""
    text, brackets = _strip_wrapping(_remove_latex(answer))
    number = _parse_answer_number(text)
    if number is None:
        # Of a number they would move the digits: "1, 234" is a list, not 1234.
        text = _BRACKET_SPACE.sub("", text).replace(", ", ",").replace(",", ", ").rstrip()
    is_list = number is None and "," in text
    return NormalizedAnswer(text.casefold(), number, brackets if is_list else "")


def list_numbers(text: str) -> list[str]:
    """Return the numbers in a text in order, without units, currency signs and separators.

    A fraction is a decimal number where that is exact: "1/2" and `\\frac{1}{2}` are "0.5".
    """
    plain = _remove_latex(text).replace("**", " ").replace("__", " ")
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
    context = _QUOTIENT.copy()
    try:
        value = context.add(whole, context.divide(over, Decimal(match["divisor"])))
    except DecimalException:
        return f"{sign}{match[0].lstrip('-$€£¥')}"
    return f"{sign}{value}"


def _remove_latex(text: str) -> str:
    text = _OTHER_DIGIT.sub(_format_digit, unicodedata.normalize("NFC", text))
    text = _FRACTION_CHARACTER.sub(_format_fraction_character, text.translate(_OTHER_CHARACTERS))
    text = _LATEX_SPACE.sub(" ", _THOUSANDS.sub(",", text))
    for written, plain in _LATEX:
        text = text.replace(written, plain)
    text = _DEGREE.sub("°", _LATEX_BRACKET_SIZE.sub("", text))
    for _ in range(_WRAPPERS_DEEP):
        text = _LATEX_WRAPPER.sub(r"\1", text)
    text = _FRACTION.sub(_format_fraction, _FRACTION_COMMAND.sub(r"\\frac", text))
    text = _POWER_OF_TEN.sub(_format_power_of_ten, text)
    text = _EMPTY_MATH.sub(" ", text.replace("\\{", "{").replace("\\}", "}"))
    return " ".join(text.split())


def _format_digit(match: re.Match[str]) -> str:
    return str(unicodedata.decimal(match[0]))


def _format_fraction_character(match: re.Match[str]) -> str:
    fraction = unicodedata.normalize("NFKC", match["fraction"]).replace("\u2044", "/")
    return f"{match['whole']} {fraction}" if match["whole"] else fraction


def _format_power_of_ten(match: re.Match[str]) -> str:
    return f"e{match['power'] or match['raised'].translate(_RAISED_DIGITS)}"


def _format_fraction(match: re.Match[str]) -> str:
    fraction = f"{match['over'] or match['digit']}/{match['under'] or match['other']}"
    # A space only after a whole number: a minus sign in front belongs to the fraction.
    return f"{match['whole']} {fraction}" if match["whole"] else fraction


def normalize_number(value: int | float) -> NormalizedAnswer:
    """Return the normal form of a ground truth that is a number."""
    return NormalizedAnswer(text=repr(value), number=Decimal(repr(value)))


def is_close(answer: NormalizedAnswer, value: float) -> bool:
    """Whether a written number or fraction equals a float, up to the precision of floats."""
    number: Decimal | Fraction | None = answer.number
    if number is None and _WRITTEN_FRACTION.fullmatch(answer.text):
        number = sum(map(Fraction, answer.text.lstrip("-").split()), Fraction(0))
        number = -number if answer.text.startswith("-") else number
    return number is not None and math.isclose(number, value, rel_tol=1e-9)


def _strip_wrapping(text: str) -> tuple[str, str]:
    """Return the text without wrapping, and the brackets that were removed."""
    brackets = ""
    while True:
        inner = text.lstrip(" *`").rstrip(" *`.,;:!?")
        pair = inner[:1] + inner[-1:]
        if inner[1:-1].strip() and pair in _PAIRS and not set(pair) & set(inner[1:-1]):
            inner = inner[1:-1]
            brackets += pair if pair in _BRACKETS else ""
        # An answer of punctuation only, such as "*", is kept.
        if not inner or inner == text:
            return text.strip(), brackets
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
