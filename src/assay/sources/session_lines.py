"""Session files with one JSON object on each line, as agents append to them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.errors import BadRow, DatasetError

from .limits import ReadLimits
from .opened import open_bytes, pass_over_line
from .stored_json import LARGEST_FILE, parse_object


@dataclass
class SessionLines:
    """The objects of one file, and the lines that hold none."""

    path: Path
    records: list[dict[str, Any]] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)


def read_lines(path: Path) -> SessionLines:
    """Every object of a file. What cannot be read is named by file and line, never passed over."""
    found = SessionLines(path)
    for number, line in numbered_lines(path):
        if isinstance(line, BadRow):
            found.bad.append(line)
            continue
        try:
            found.records.append(parse_object(line, where=f"{path}:{number}"))
        except BadRow as problem:
            found.bad.append(_explained(problem, whole=line.endswith(b"\n")))
    return found


def _explained(problem: BadRow, *, whole: bool) -> BadRow:
    if whole:
        return problem.with_traceback(None)
    return BadRow(
        "the last line is cut off",
        where=problem.where,
        hint="the agent was ended while it wrote, or is still writing",
    )


def numbered_lines(path: Path, *, longest: int = LARGEST_FILE) -> Iterator[tuple[int, Any]]:
    """Lines as bytes with their numbers from 1, without empty ones; `BadRow` for endless ones."""
    try:
        file = open_bytes(path, ReadLimits())
    except DatasetError as error:
        raise BadRow(error.message, where=error.where, hint=error.hint) from None
    number = 0
    with file:
        while line := file.readline(longest + 1):
            number += 1
            if len(line) > longest and not line.endswith(b"\n"):
                pass_over_line(file)
                yield number, BadRow(f"is longer than {longest} bytes", where=f"{path}:{number}")
            elif line.strip(b" \t\r\n"):
                yield number, line


def session_files(path: Path, pattern: str, *, kind: str) -> list[Path]:
    """The file at `path`, or all below it. Raises `DatasetError` where there are none."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DatasetError("there is no such file or folder", where=str(path))
    found = sorted(file for file in path.rglob(pattern) if file.is_file())
    if not found:
        raise DatasetError(f"holds no {kind}", where=str(path), hint=f"looked for {pattern}")
    return found
