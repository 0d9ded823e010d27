"""CSV with a header line. Cells stay text; a `messages` cell is parsed as JSON."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from assay.errors import BadRow, DatasetError

from .json_text import JsonProblem, find_duplicate, parse_json_object
from .open_file import open_bytes, skip_line
from .rows import FileRows, RowOutcome

# What spreadsheets write in place of commas, by the language of their user.
_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs"}
_MESSAGES_PREFIX = b'{"messages":'


class CsvTable(FileRows):
    """The rows of one table, numbered by the line they begin on."""

    def __iter__(self) -> Iterator[tuple[int, RowOutcome]]:
        with open_bytes(self.path, self.limits) as file:
            lines = _CsvLines(file, self.path, self.limits.max_row_bytes)
            # Strict: otherwise an unclosed quote would silently swallow the rest of the file.
            reader = csv.reader(lines, strict=True)
            header = self._check_header(self._read_cells(reader, lines))
            while (cells := self._read_cells(reader, lines)) is not None:
                if isinstance(cells, BadRow):
                    yield lines.row_line, cells
                elif cells:  # the reader returns an empty list for an empty line
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
            return BadRow(
                f"the row is not CSV: {error}",
                where=self.where(lines.row_line),
                hint="double each quote inside a quoted cell",
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
        if not cells:
            raise DatasetError("the file has no header line", where=self.where(1), hint=hint)
        mark = next((each for each in _OTHER_SEPARATORS if each in cells[0]), None)
        if len(cells) == 1 and mark is not None:
            raise DatasetError(
                f"the columns are separated by {_OTHER_SEPARATORS[mark]}, not by commas",
                where=self.where(1),
                hint="save the file with commas between its columns",
            )
        blank = next((n for n, name in enumerate(cells, start=1) if not name.strip()), None)
        repeated = find_duplicate(cells)
        if blank is not None or repeated is not None:
            unnamed = f"column {blank} has no name"
            problem = unnamed if blank is not None else f"two columns are named {repeated!r}"
            raise DatasetError(problem, where=self.where(1), hint=hint)
        return cells

    def _build_row(self, header: list[str], cells: list[str], line: int) -> RowOutcome:
        if len(cells) != len(header):
            return BadRow(
                f"the row has {len(cells)} cells, but the header has {len(header)}",
                where=self.where(line),
                hint="quote cells that contain a comma or a line break",
            )
        row: dict[str, Any] = dict(zip(header, cells, strict=True))
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
                hint="convert the file to UTF-8, for example with iconv",
            )
            return line.decode(errors="replace")
