"""Showing text that somebody else wrote: a model's output never controls the terminal."""

import json
import os
import shutil
import sys
import unicodedata
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

_REPLACEMENT = "\ufffd"
_JOINERS = "\u200c\u200d"
"""Invisible, but part of how some scripts and emoji are spelled."""

_MAX_RENDER_WIDTH = 100
_PIPE_LINE_WIDTH = 250
"""Columns of a line that no terminal shows: a log, a pipe."""


def sanitize_to_line(text: str) -> str:
    """`text` on one line, each control, format or unknown character replaced by U+FFFD."""
    return "".join(map(_replace_control_character, " ".join(text.split())))


def sanitize_lines(text: str) -> str:
    """`text` made plain line by line, keeping its indentation."""
    return "\n".join("".join(map(_replace_control_character, line)) for line in text.split("\n"))


def sanitize_text(text: str) -> str:
    """Text of several lines made plain: tabs become spaces, a carriage return ends a line."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4)
    return sanitize_lines(lines)


def _replace_control_character(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Zl", "Zp"):
        return " "
    return _REPLACEMENT if category[0] == "C" and character not in _JOINERS else character


def render(content: "RenderableType") -> None:
    """Print something of rich's: coloured on a terminal only, in ASCII where there is no more."""
    from rich.console import Console

    # Rendered first and printed by us: rich would end the process itself on a closed pipe.
    buffer = StringIO()
    console = Console(
        file=buffer,
        width=min(shutil.get_terminal_size().columns, _MAX_RENDER_WIDTH),
        force_terminal=sys.stdout is not None and sys.stdout.isatty(),
        highlight=False,
    )
    console.print(content)
    print(buffer.getvalue(), end="")


def measure_line_width() -> int:
    """The columns of a line of a list: the terminal's, and many where there is none."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    if not terminal and not os.environ.get("COLUMNS"):
        return _PIPE_LINE_WIDTH
    return max(shutil.get_terminal_size().columns, 80)


def print_json(value: Any) -> None:
    """Print one JSON value in ASCII, so that no character of it acts on the terminal."""
    print(json.dumps(value, indent=2, allow_nan=False).replace("\x7f", "\\u007f"))


def cut(text: str, columns: int) -> str:
    """`text` made plain and shortened to so many columns, with `…` where something is missing."""
    from rich.cells import cell_len

    shown = sanitize_to_line(text)
    if cell_len(shown) <= columns:
        return shown
    # Each character takes a column at least, so the rest need not be measured.
    shown = shown[: columns - 1]
    while cell_len(shown) > columns - 1:
        shown = shown[:-1]
    return f"{shown}…"


def pad(text: str, columns: int) -> str:
    """`cut` text, filled up to so many columns."""
    from rich.cells import cell_len

    shown = cut(text, columns)
    return shown + " " * (columns - cell_len(shown))


def is_ascii_only() -> bool:
    """Whether stdout cannot hold the characters that tables are drawn with."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "─│…".encode(encoding)
    except UnicodeEncodeError:
        return True
    return False
