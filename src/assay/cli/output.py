"""Output of commands: results to stdout as text or JSON, the rest to stderr, samples to files.

Texts of datasets and models are untrusted: they must never control the terminal.
"""

import json
import os
import shutil
import sys
import unicodedata
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from rich.cells import cell_len

from assay.errors import ConfigError
from assay.stats import WIDTH, format_labelled
from assay.types import Sample, check_file_target, create_private, replace_private

if TYPE_CHECKING:
    from rich.console import RenderableType

# By number: child processes inherit the descriptor, not `sys.stdout`.
_STDOUT_FD = 1
_REPLACEMENT = "\ufffd"
# Zero-width joiners are format characters too, but scripts and emoji are spelled with them.
_JOINERS = "\u200c\u200d"

# Columns of the label in a report line such as `run           r-1`.
LABEL_WIDTH = 14
_MAX_RENDER_WIDTH = 100
# For logs and pipes, where no terminal limits the line.
_PIPE_LINE_WIDTH = 250
# Narrower columns beside labels and scores could not be read.
_MIN_LINE_WIDTH = 50
_STYLE_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}


class Styled(NamedTuple):
    """A part of a line in a style: `bold`, `dim`, `red`, `green` or `yellow`."""

    text: str
    style: str


Line = str | Styled | Sequence[str | Styled]
"""A line of a report: plain, or in parts of which some are styled."""


def sanitize_to_line(text: str) -> str:
    """Return `text` on one line, with control, format and unknown characters as U+FFFD."""
    # The hint of an error has a line of its own; without it the text needs a separator.
    words = text.replace("\n  hint: ", "; hint: ").split()
    return "".join(map(_replace_control_character, " ".join(words)))


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


def has_cursor(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal whose lines can be replaced, and not one without control."""
    # The names are those that rich knows, which draws nothing there.
    is_dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    return stream is not None and stream.isatty() and not is_dumb


def has_colour(stream: TextIO | None) -> bool:
    """Whether to colour a stream: a terminal that shows colours, unless NO_COLOR or CI is set."""
    if not has_cursor(stream):
        return False
    return not os.environ.get("NO_COLOR") and not os.environ.get("CI")


def has_browser() -> bool:
    """Whether a browser window can appear in front of the user."""
    if sys.stdout is None or not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION"):
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    # Without a display Python would start a browser for text in this terminal.
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def format_lines(lines: Iterable[Line], stream: TextIO | None) -> str:
    """Sanitize and join lines, with their styles where the stream shows them."""
    coloured = has_colour(stream)

    def format_part(part: str | Styled) -> str:
        if isinstance(part, str):
            return sanitize_lines(part)
        text = sanitize_lines(part.text)
        return f"\x1b[{_STYLE_CODES[part.style]}m{text}\x1b[0m" if coloured else text

    parts = ([line] if isinstance(line, str | Styled) else line for line in lines)
    return "\n".join("".join(map(format_part, each)) for each in parts)


def render(content: "RenderableType") -> None:
    """Print a rich renderable: coloured on a terminal only, in ASCII if stdout has nothing else."""
    from rich.console import Console

    # Rendered first and printed by us: rich would end the process itself on a closed pipe.
    buffer = StringIO()
    console = Console(
        file=buffer,
        width=min(shutil.get_terminal_size().columns, _MAX_RENDER_WIDTH),
        force_terminal=has_colour(sys.stdout),
        highlight=False,
    )
    console.print(content)
    _write(buffer.getvalue(), sys.stdout)


def measure_line_width() -> int:
    """Return the columns of a list line: the terminal's width, or many without a terminal."""
    return _measure_terminal() or _PIPE_LINE_WIDTH


def measure_text_width() -> int:
    """Return the columns of wrapped text: the terminal's width, or 80 without a terminal."""
    return _measure_terminal() or WIDTH


def _measure_terminal() -> int | None:
    terminal = sys.stdout is not None and sys.stdout.isatty()
    # COLUMNS is honoured without a terminal, as argparse does.
    if not terminal and not os.environ.get("COLUMNS"):
        return None
    return max(shutil.get_terminal_size().columns, _MIN_LINE_WIDTH)


def print_report(args: Namespace, lines: Iterable[Line], value: Any) -> None:
    """Print the result of a command: `lines`, or with `--json` the same content as `value`."""
    # With `-o -` the samples go to stdout.
    stream = sys.stderr if getattr(args, "output", None) == "-" else sys.stdout
    text = _dump_json(value, indent=2) if args.json else format_lines(lines, stream)
    _write(f"{text}\n", stream)


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines of a result to stdout."""
    _write(f"{format_lines(lines, sys.stdout)}\n", sys.stdout)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON value in ASCII, so that no character of it acts on the terminal."""
    _write(f"{_dump_json(value, indent=indent)}\n", sys.stdout)


def _dump_json(value: Any, *, indent: int | None) -> str:
    return json.dumps(value, indent=indent, allow_nan=False).replace("\x7f", "\\u007f")


def print_message(text: str) -> None:
    """Print a problem, a hint or a note to stderr: stdout is for results."""
    _write(f"{sanitize_lines(text)}\n", sys.stderr)


def print_over_line(text: str, *, is_last: bool) -> None:
    """Print a line to stderr in place of the one before, of the same length or shorter."""
    _write(f"\r{sanitize_to_line(text)}" + ("\n" if is_last else ""), sys.stderr)


def ask_yes_or_no(question: str) -> bool:
    """Ask in the terminal; no answer is a no."""
    _write(f"{sanitize_lines(question)} [y/N] ", sys.stderr)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _write(text: str, stream: TextIO | None) -> None:
    # None when the process was started without the stream: `print` would use stdout instead.
    if stream is not None:
        stream.write(text)
        # At once: scripts read addresses and results while a command runs.
        stream.flush()


@contextmanager
def redirect_output_to_stderr() -> Iterator[None]:
    """Redirect the stdout of user code to stderr, for child processes as well."""
    with ExitStack() as restored:
        if _are_process_streams():
            kept = os.dup(_STDOUT_FD)
            restored.callback(os.close, kept)
            restored.callback(os.dup2, kept, _STDOUT_FD)
            # Flushed at both switches: buffered text belongs to the stream it was printed to.
            sys.stdout.flush()
            restored.callback(sys.stdout.flush)
            os.dup2(sys.stderr.fileno(), _STDOUT_FD)
        restored.enter_context(redirect_stdout(sys.stderr))
        yield


def _are_process_streams() -> bool:
    # False for closed and replaced streams: after stdout was closed, descriptor 1 may be any file.
    try:
        return sys.stdout.fileno() == _STDOUT_FD and sys.stderr.fileno() >= 0
    except (OSError, ValueError, AttributeError):
        return False


def write_samples(
    output: str | None,
    samples: Iterable[Sample],
    to_line: Callable[[Sample], str | None] = Sample.to_json,
) -> None:
    """Write samples as JSON lines to a file, or for `-` to stdout; without an output, read them.

    `to_line` returns None for a sample that cannot be written.
    """
    lines = (f"{line}\n".encode() for line in map(to_line, samples) if line is not None)
    if output is None:
        for _ in lines:
            pass
    elif output == "-":
        # Bytes: the encoding of the terminal may lack characters of the samples.
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()
    else:
        with write_whole(Path(output)) as unfinished, unfinished.open("r+b") as file:
            file.writelines(lines)


@contextmanager
def write_whole(target: Path) -> Iterator[Path]:
    """Yield an empty private file that becomes `target` at the end, so that it is never partial.

    Raises `ConfigError` if the file cannot be written.
    """
    check_file_target(target)
    # In the same folder, so that the rename is atomic; with the suffix, which readers go by.
    unfinished = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        unfinished.unlink(missing_ok=True)
        create_private(unfinished)
    except OSError as error:
        raise ConfigError(
            f"{target} cannot be written: {error.strerror}",
            hint="check that the folder exists and is writable",
        ) from None
    try:
        yield unfinished
        replace_private(unfinished, target)
    # Also on Ctrl-C: a partial file would look like a complete one.
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def cut(text: str, columns: int) -> str:
    """Sanitize `text` and shorten it to so many columns; `…` marks the cut."""
    if columns < 1:
        # Beside a long label or number no column may be left.
        return ""
    shown = sanitize_to_line(text)
    if cell_len(shown) <= columns:
        return shown
    # A character takes at least one column, so only this prefix needs measuring.
    shown = shown[: columns - 1]
    while cell_len(shown) > columns - 1:
        shown = shown[:-1]
    return f"{shown}…"


def wrap_beside(first: str, text: str, *, max_lines: int) -> list[str]:
    """Sanitize `text` and wrap it in the columns beside `first`; `…` marks a cut after the lines.

    Ids and URLs stay in one piece, so that they can be copied.
    """
    rest, indent = sanitize_to_line(text), " " * cell_len(first)
    room = measure_line_width() - len(indent)
    lines: list[str] = []
    while rest and len(lines) < max_lines - 1 and cell_len(rest) > room:
        fits = min(len(rest), room)
        while cell_len(rest[:fits]) > room:
            fits -= 1
        # The space may be the first character that does not fit. A longer word is broken.
        end = rest.rfind(" ", 0, fits + 1)
        end = end if end > 0 else fits
        lines.append(rest[:end])
        rest = rest[end:].lstrip()
    lines.append(cut(rest, room))
    return [f"{indent if number else first}{line}" for number, line in enumerate(lines)]


def format_field(label: str, text: object, *, columns: int | None = None) -> str:
    """Return a report line: the label in its column, then `text`, `cut` if `columns` is given."""
    return f"{label:<{LABEL_WIDTH}}{text if columns is None else cut(str(text), columns)}"


def format_wrapped(label: str, text: str) -> list[str]:
    """Return the lines of a report: the label in its column, then `text`, wrapped to the width."""
    return format_labelled(label, text, width=measure_text_width())


def format_fields(fields: Mapping[str, object], *, columns: int | None = None) -> list[str]:
    """Return the report lines of labels and texts: none for None, several for a list."""
    lines = []
    for label, value in fields.items():
        texts = value if isinstance(value, list) else [] if value is None else [value]
        for index, text in enumerate(texts):
            lines.append(format_field("" if index else label, text, columns=columns))
    return lines


def format_row(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return a line of a table: each cell `pad`ded to its width, further cells as they are."""
    padded = [pad(cell, width) for cell, width in zip(cells, widths, strict=False)]
    return " ".join([*padded, *cells[len(padded) :]]).rstrip()


def pad(text: str, columns: int) -> str:
    """`cut` the text, then fill it with spaces to so many columns."""
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
