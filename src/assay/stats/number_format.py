"""Format numbers and untrusted text: for lines of reports, Markdown and GitHub's commands."""

import math
import textwrap
import unicodedata
from collections.abc import Iterable

WIDTH = 80
_REPORT_LABEL_WIDTH = 14
_METRIC_NAME_WIDTH = 24
_MOST_DIGITS = 12
# Keeps "5 %" and "p = 0.5" on one line: `textwrap` breaks at ordinary spaces only.
_UNBROKEN = "\u00a0"
MAX_MARKDOWN_LENGTH = 300
# `@` would notify a user of GitHub, and `|` end a cell of a table.
_MARKDOWN_MARKS = frozenset("\\`*_[]|~#!@")


def format_number(value: float | None, *, beside: float | None = None, signed: bool = False) -> str:
    """Format `value` with three decimals, or as many as distinguish it from `beside`."""
    if value is None:
        return "unknown"
    sign = "+" if signed else ""
    if math.isinf(value):
        return "never" if value > 0 else "-inf"
    if abs(value) >= 100_000:
        return f"{value:{sign}.6g}"
    digits = 3
    # Numbers that differ by a rounding error only are shown as equal, without more digits.
    if beside is not None and f"{value:.{_MOST_DIGITS}f}" != f"{beside:.{_MOST_DIGITS}f}":
        while f"{value:.{digits}f}" == f"{beside:.{digits}f}":
            digits += 1
    return f"{value:{sign}.{digits}f}"


def format_percent(share: float) -> str:
    """Format a share as a percentage without needless digits: 0.95 is `95 %`."""
    return f"{share * 100:.4g} %"


def clean_text(text: str, width: int) -> str:
    """Put untrusted text on one line, without control characters, cut with `…`."""
    if width < 1:
        return ""
    # Escape sequences in a sample id could rewrite the terminal.
    shown = "".join(
        character if unicodedata.category(character)[0] != "C" else "\ufffd"
        for character in " ".join(text.split())
    )
    if _count_columns(shown) <= width:
        return shown
    # A character takes at least one column, so only this prefix needs measuring.
    shown = shown[: width - 1]
    while _count_columns(shown) > width - 1:
        shown = shown[:-1]
    return f"{shown}…"


def _count_columns(text: str) -> int:
    # East Asian wide characters take two columns of a terminal.
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def pad_text(text: str, width: int) -> str:
    """Clean text and pad it to `width` columns."""
    shown = clean_text(text, width)
    return shown + " " * (width - _count_columns(shown))


def format_labelled(label: str, text: str, *, width: int = WIDTH) -> list[str]:
    """Wrap `text` in a column next to a label, in lines of at most `width` columns."""
    return _wrap_beside(f"{label:<{_REPORT_LABEL_WIDTH}}", text, width) or [label]


def format_metric(name: str, text: str, *, width: int = WIDTH) -> list[str]:
    """Wrap `text` in a column next to the name of a metric, which is untrusted."""
    return _wrap_beside(f"  {pad_text(name, min(_METRIC_NAME_WIDTH, width // 3))} ", text, width)


def _wrap_beside(first: str, text: str, width: int) -> list[str]:
    wrapped = textwrap.wrap(
        text.replace(" %", f"{_UNBROKEN}%").replace(" = ", f"{_UNBROKEN}={_UNBROKEN}"),
        width,
        initial_indent=first,
        subsequent_indent=" " * _count_columns(first),
        break_on_hyphens=False,
    )
    return [line.replace(_UNBROKEN, " ") for line in wrapped]


def join_wrapped(lines: Iterable[str]) -> list[str]:
    """Join the wrapped lines of `format_labelled` again, for files and logs."""
    joined: list[str] = []
    for line in lines:
        if joined and line.startswith(" " * _REPORT_LABEL_WIDTH):
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line)
    return joined


def format_plural(count: int, word: str) -> str:
    """Format a count with its noun: `1 sample`, `2 samples`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def escape_markdown(text: str, longest: int = MAX_MARKDOWN_LENGTH) -> str:
    """Escape text for one line of Markdown, so that none of it is markup or HTML."""
    shown = clean_text(text, longest).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{each}" if each in _MARKDOWN_MARKS else each for each in shown)


def escape_command(text: str) -> str:
    """Escape the message of a workflow command of GitHub."""
    # A line break would end the command, and the next line could be another command.
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_command_property(text: str) -> str:
    """Escape a property of a workflow command of GitHub."""
    return escape_command(text).replace(":", "%3A").replace(",", "%2C")
