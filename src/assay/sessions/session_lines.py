"""Read session files with one JSON object per line, as agents append to them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.datasets import ReadLimits, open_bytes, skip_line
from assay.errors import BadRow, DatasetError

from .stored_json import LARGEST_FILE, parse_stored_object


@dataclass
class SessionLines:
    """The objects of one file, and the errors of its damaged lines."""

    path: Path
    records: list[dict[str, Any]] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)


def read_session_lines(path: Path) -> SessionLines:
    """Read every object of a file. Damaged lines are reported by file and line, never ignored."""
    found = SessionLines(path)
    for record, _ in iterate_records(path):
        if isinstance(record, BadRow):
            found.bad.append(record)
        else:
            found.records.append(record)
    return found


def iterate_records(path: Path) -> Iterator[tuple[dict[str, Any] | BadRow, int]]:
    """Yield each object of a file, or its error, with the offset of the byte after it."""
    for number, end, line in _split_lines(path, longest=LARGEST_FILE):
        if isinstance(line, BadRow):
            yield line, end
            continue
        try:
            yield parse_stored_object(line, where=f"{path}:{number}"), end
        except BadRow as problem:
            if not line.endswith(b"\n"):
                hint = "the agent was killed during a write, or is still writing"
                problem = BadRow("the last line is truncated", where=problem.where, hint=hint)
            yield problem.with_traceback(None), end


def iterate_numbered_lines(path: Path, *, longest: int = LARGEST_FILE) -> Iterator[tuple[int, Any]]:
    """Yield non-empty lines as bytes with their numbers from 1.

    Yields `BadRow` for a line that is too long, and when the rest of the file is unreadable.
    """
    for number, _, line in _split_lines(path, longest=longest):
        yield number, line


def _split_lines(path: Path, *, longest: int) -> Iterator[tuple[int, int, Any]]:
    """Yield number, end offset and content of each non-empty line."""
    try:
        file = open_bytes(path, ReadLimits())
    except DatasetError as error:
        raise BadRow(error.message, where=error.where, hint=error.hint) from None
    number = end = 0
    with file:
        while True:
            number += 1
            try:
                # With a limit: a line that never ends must not fill the memory.
                line = file.readline(longest + 1)
                end += len(line)
                if endless := len(line) > longest and not line.endswith(b"\n"):
                    end += skip_line(file)
            except (DatasetError, OSError) as error:
                # The rest of the file is unreadable.
                why, hint = f"the file cannot be read: {getattr(error, 'strerror', None)}", None
                if isinstance(error, DatasetError):
                    why, hint = error.message, error.hint
                yield number, end, BadRow(why, where=f"{path}:{number}", hint=hint)
                return
            if not line:
                return
            if endless:
                where = f"{path}:{number}"
                yield number, end, BadRow(f"the line exceeds {longest} bytes", where=where)
            elif line.strip(b" \t\r\n"):
                yield number, end, line


def find_session_files(path: Path, *patterns: str, kind: str) -> list[Path]:
    """Return the file at `path`, or all below it. Raises `DatasetError` if there are none."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DatasetError("the file or folder does not exist", where=str(path))
    matching = (file for pattern in patterns for file in path.rglob(pattern))
    found = sorted(file for file in matching if file.is_file())
    if not found:
        hint = f"file names must match {' or '.join(patterns)}"
        raise DatasetError(f"the folder contains no {kind}", where=str(path), hint=hint)
    return found
