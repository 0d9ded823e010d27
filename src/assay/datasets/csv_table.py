"""CSV with a header line, as programs and spreadsheets write it.

Cells stay text; a `messages` cell is parsed as JSON.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from assay.errors import BadRow, DatasetError

from .json_text import JsonProblem, find_duplicate, parse_json_object
from .layouts import ANSWER_KEYS, ID_KEYS, PROMPT_KEYS
from .open_file import open_bytes, skip_line
from .rows import FileRows, RowOutcome

# Spreadsheets write semicolons or tabs, depending on the language of their user.
_SEPARATORS = (",", ";", "\t")
# Excel writes and reads such a first line, which is not a row.
_SEPARATOR_LINE = re.compile(rb"sep=([,;\t])\r?\n")
_KNOWN_NAMES = frozenset({*PROMPT_KEYS, *ANSWER_KEYS, *ID_KEYS})
_QUOTED_NAME = re.compile(rb'"[^"]*"')
_MESSAGES_PREFIX = b'{"messages":'


class CsvTable(FileRows):
    """The rows of one table, numbered by the line they begin on."""

    def __iter__(self) -> Iterator[tuple[int, RowOutcome]]:
        with open_bytes(self.path, self.limits) as file:
            lines = _CsvLines(file, self.path, self.limits.max_row_bytes)
            head = file.peek()
            if declared := _SEPARATOR_LINE.match(head):
                next(lines)
                mark = declared[1].decode()
            else:
                names = _QUOTED_NAME.sub(b"", head).partition(b"\n")[0]
                mark = max(_SEPARATORS, key=lambda each: names.count(each.encode()))
            # Strict: otherwise an unclosed quote would silently swallow the rest of the file.
            reader = csv.reader(lines, delimiter=mark, strict=True)
            header = self._check_header(self._read_cells(reader, lines))
            while (cells := self._read_cells(reader, lines)) is not None:
                if isinstance(cells, BadRow):
                    yield lines.row_line, cells
                # An empty line has no cells, the unused row of a sheet only empty ones.
                elif any(cells):
                    yield lines.row_line, self._build_row(header, cells, lines.row_line)

    def _read_cells(
        self, reader: Iterator[list[str]], lines: "_CsvLines"
    ) -> list[str] | BadRow | None:
        """Return the next cells, the problem of the row, or None at the end."""
        lines.begin_row()
        # The field size limit is global to the process: it is changed only during this call.
        previous = csv.field_size_limit(self.limits.max_row_bytes)
        try:
            cells = next(reader, None)
        except csv.Error as error:
            # The module's own words advise the caller of `open()`.
            is_old_mac = "new-line character" in str(error)
            return BadRow(
                "a carriage return ends a line without a line feed"
                if is_old_mac
                else f"the row is not CSV: {error}",
                where=self.where(lines.row_line),
                hint="save the file as CSV UTF-8, not as CSV (Macintosh)"
                if is_old_mac
                else "double each quote inside a quoted cell",
            )
        except BadRow as problem:
            return problem
        finally:
            csv.field_size_limit(previous)
        return lines.problem if lines.problem is not None else cells

    def _check_header(self, cells: list[str] | BadRow | None) -> list[str]:
        if isinstance(cells, BadRow):
            raise DatasetError(cells.message, where=cells.where, hint=cells.hint)
        hint = "the first line must name every column, each once"
        names = [name.strip() for name in cells or ()]
        # Columns without a name after the last one are unused columns of a sheet.
        while names and not names[-1]:
            names.pop()
        if not names:
            raise DatasetError("the file has no header line", where=self.where(1), hint=hint)
        blank = next((n for n, name in enumerate(names, start=1) if not name), None)
        repeated = find_duplicate(names)
        if blank is not None or repeated is not None:
            unnamed = f"column {blank} has no name"
            problem = unnamed if blank is not None else f"two columns are named {repeated!r}"
            raise DatasetError(problem, where=self.where(1), hint=hint)
        # People write `Question` and `Answer` into sheets. Other names are kept as they are.
        spellings = Counter(name.lower() for name in names)
        return [
            name.lower() if name.lower() in _KNOWN_NAMES and spellings[name.lower()] == 1 else name
            for name in names
        ]

    def _build_row(self, header: list[str], cells: list[str], line: int) -> RowOutcome:
        if any(cells[len(header) :]) or len(cells) < len(header):
            return BadRow(
                f"the row has {len(cells)} cells, but the header has {len(header)}",
                where=self.where(line),
                hint="quote cells that contain a separator or a line break",
            )
        row: dict[str, Any] = dict(zip(header, cells, strict=False))
        if not row.get("messages"):
            return row
        try:
            text = _MESSAGES_PREFIX + row["messages"].encode() + b"}"
            read = parse_json_object(text, max_depth=self.limits.max_depth)
            if len(read) > 1:
                # A cell such as `[], "id": 1` would overwrite other columns.
                raise JsonProblem("contains more than one value", offset=0)
            return {**row, **read}
        except JsonProblem as problem:
            place = problem.offset - len(_MESSAGES_PREFIX) + 1
            at = f", at byte {place} of the cell" if place > 0 else ""
            return BadRow(
                f"the `messages` cell {problem.message}{at}",
                where=self.where(line),
                hint='write it as JSON: [{"role": "user", "content": "…"}]',
            )


class _CsvLines:
    """Decoded lines for the CSV reader, which continues with the next line after an error."""

    def __init__(self, file: BinaryIO, path: Path, longest: int) -> None:
        self._file = file
        self._path = path
        self._longest = longest
        self._number = 0
        self._row_bytes = 0
        self.row_line = 1
        """The line where the current row begins."""

        self.problem: BadRow | None = None
        """The problem of a line that was passed to the reader in spite of it."""

    def begin_row(self) -> None:
        self.row_line = self._number + 1
        self._row_bytes = 0
        self.problem = None

    def __iter__(self) -> "_CsvLines":
        return self

    def __next__(self) -> str:
        line = self._file.readline(self._longest + 1)
        if not line:
            raise StopIteration
        self._number += 1
        self._row_bytes += len(line)
        if self._row_bytes > self._longest:
            if not line.endswith(b"\n"):
                self._row_bytes += skip_line(self._file)
            raise BadRow(
                f"the row is over the limit of {self._longest} bytes",
                where=f"{self._path}:{self.row_line}",
                hint="raise ReadLimits(max_row_bytes=…), or look for an unclosed quote",
            )
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            # Passed on with substitutes: the reader needs the quotes to find the end of the row.
            self.problem = BadRow(
                f"the line is not UTF-8: byte 0x{line[error.start]:02x}",
                where=f"{self._path}:{self._number}:{error.start + 1}",
                hint="save the file as CSV UTF-8, or run iconv -f WINDOWS-1252 -t UTF-8",
            )
            return line.decode(errors="replace")
