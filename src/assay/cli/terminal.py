"""Output of untrusted text: a model's answer must never control the terminal."""

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
# Zero-width joiners are format characters too, but scripts and emoji are spelled with them.
_JOINERS = "\u200c\u200d"

# Columns of the label in a report line such as `run           r-1`.
_LABEL_WIDTH = 14
_MAX_RENDER_WIDTH = 100
# For logs and pipes, where no terminal limits the line.
_PIPE_LINE_WIDTH = 250


def sanitize_to_line(text: str) -> str:
    """Return `text` on one line, with control, format and unknown characters as U+FFFD."""
    return "".join(map(_replace_control_character, " ".join(text.split())))


def sanitize_lines(text: str) -> str:
    """Replace control characters line by line; indentation is kept."""
    return "\n".join("".join(map(_replace_control_character, line)) for line in text.split("\n"))


def sanitize_text(text: str) -> str:
    """Replace control characters; tabs become spaces and a carriage return ends a line."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4)
    return sanitize_lines(lines)


def _replace_control_character(character: str) -> str:
    category = unicodedata.category(character)
    # Line and paragraph separators break lines in some terminals.
    if category in ("Zl", "Zp"):
        return " "
    return _REPLACEMENT if category[0] == "C" and character not in _JOINERS else character


def render(content: "RenderableType") -> None:
    """Print a rich renderable: coloured on a terminal only, in ASCII if stdout has nothing else."""
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
    """Return the columns of a list line: the terminal's width, or many without a terminal."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    # COLUMNS is honoured without a terminal, as argparse does.
    if not terminal and not os.environ.get("COLUMNS"):
        return _PIPE_LINE_WIDTH
    return max(shutil.get_terminal_size().columns, 80)


def print_json(value: Any) -> None:
    """Print one JSON value in ASCII, so that no character of it acts on the terminal."""
    print(json.dumps(value, indent=2, allow_nan=False).replace("\x7f", "\\u007f"))


def cut(text: str, columns: int) -> str:
    """Sanitize `text` and shorten it to so many columns; `…` marks the cut."""
    from rich.cells import cell_len

    shown = sanitize_to_line(text)
    if cell_len(shown) <= columns:
        return shown
    # A character takes at least one column, so only this prefix needs measuring.
    shown = shown[: columns - 1]
    while cell_len(shown) > columns - 1:
        shown = shown[:-1]
    return f"{shown}…"


def format_field(label: str, text: object, *, columns: int | None = None) -> str:
    """Return a report line: the label in its column, then `text`, `cut` if `columns` is given."""
    return f"{label:<{_LABEL_WIDTH}}{text if columns is None else cut(str(text), columns)}"


def pad(text: str, columns: int) -> str:
    """`cut` the text, then fill it with spaces to so many columns."""
    from rich.cells import cell_len

    shown = cut(text, columns)
    return shown + " " * (columns - cell_len(shown))


def is_ascii_only() -> bool:
    """Whether stdout cannot encode the characters that tables are drawn with."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "─│…".encode(encoding)
    except UnicodeEncodeError:
        return True
    return False
