"""Numbers and foreign text as plain words that fit 80 columns."""

import math
import textwrap
import unicodedata
from collections.abc import Iterable

WIDTH = 80
_LABEL = 14
_MOST_DIGITS = 12
_UNBROKEN = "\u00a0"
"""A space at which no line ends."""


def number(value: float | None, *, beside: float | None = None, signed: bool = False) -> str:
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


def percent(share: float) -> str:
    """A share as a percentage without needless digits: 0.95 is `95 %`."""
    return f"{share * 100:.4g} %"


def plain(text: str, width: int) -> str:
    """Text that somebody else wrote: on one line, without control characters, cut with `…`."""
    shown = "".join(
        character if unicodedata.category(character)[0] != "C" else "\ufffd"
        for character in " ".join(text.split())
    )
    if _columns(shown) <= width:
        return shown
    while _columns(shown) > width - 1:
        shown = shown[:-1]
    return f"{shown}…"


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def padded(text: str, width: int) -> str:
    """`plain` text filled up to `width` columns."""
    shown = plain(text, width)
    return shown + " " * (width - _columns(shown))


def labelled(label: str, text: str) -> list[str]:
    """Lines that say `text` beside a label, wrapped under themselves."""
    wrapped = textwrap.wrap(
        text.replace(" %", f"{_UNBROKEN}%"),
        WIDTH,
        initial_indent=f"{label:<{_LABEL}}",
        subsequent_indent=" " * _LABEL,
        break_on_hyphens=False,
    )
    return [line.replace(_UNBROKEN, " ") for line in wrapped] or [label]


def join_wrapped(lines: Iterable[str]) -> list[str]:
    """The lines of `labelled` with each text on one line, for files and logs."""
    joined: list[str] = []
    for line in lines:
        if joined and line.startswith(" " * _LABEL):
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line)
    return joined


def plural(count: int, word: str) -> str:
    """`1 sample`, `2 samples`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
