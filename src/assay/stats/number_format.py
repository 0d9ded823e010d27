"""Numbers and foreign text as plain words that fit 80 columns."""

import math
import textwrap
import unicodedata
from collections.abc import Iterable

WIDTH = 80
_REPORT_LABEL_WIDTH = 14
_MOST_DIGITS = 12
_UNBROKEN = "\u00a0"
"""A space at which no line ends."""


def format_number(value: float | None, *, beside: float | None = None, signed: bool = False) -> str:
    """`value` with three decimals, or with as many as tell it apart from the one `beside` it."""
    if value is None:
        return "unknown"
    sign = "+" if signed else ""
    if math.isinf(value):
        return "never" if value > 0 else "-inf"
    if abs(value) >= 100_000:
        return f"{value:{sign}.6g}"
    digits = 3
    if beside is not None and value != beside:
        while digits < _MOST_DIGITS and f"{value:.{digits}f}" == f"{beside:.{digits}f}":
            digits += 1
    return f"{value:{sign}.{digits}f}"


def format_percent(share: float) -> str:
    """A share as a percentage without needless digits: 0.95 is `95 %`."""
    return f"{share * 100:.4g} %"


def clean_text(text: str, width: int) -> str:
    """Text that somebody else wrote: on one line, without control characters, cut with `…`."""
    shown = "".join(
        character if unicodedata.category(character)[0] != "C" else "\ufffd"
        for character in " ".join(text.split())
    )
    if _count_columns(shown) <= width:
        return shown
    while _count_columns(shown) > width - 1:
        shown = shown[:-1]
    return f"{shown}…"


def _count_columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def pad_text(text: str, width: int) -> str:
    """`clean_text` text filled up to `width` columns."""
    shown = clean_text(text, width)
    return shown + " " * (width - _count_columns(shown))


def format_labelled(label: str, text: str) -> list[str]:
    """Lines that say `text` beside a label, wrapped under themselves."""
    wrapped = textwrap.wrap(
        text.replace(" %", f"{_UNBROKEN}%"),
        WIDTH,
        initial_indent=f"{label:<{_REPORT_LABEL_WIDTH}}",
        subsequent_indent=" " * _REPORT_LABEL_WIDTH,
        break_on_hyphens=False,
    )
    return [line.replace(_UNBROKEN, " ") for line in wrapped] or [label]


def join_wrapped(lines: Iterable[str]) -> list[str]:
    """The lines of `format_labelled` with each text on one line, for files and logs."""
    joined: list[str] = []
    for line in lines:
        if joined and line.startswith(" " * _REPORT_LABEL_WIDTH):
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line)
    return joined


def format_plural(count: int, word: str) -> str:
    """`1 sample`, `2 samples`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
