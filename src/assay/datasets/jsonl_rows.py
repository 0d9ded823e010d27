"""JSON Lines: one object on each line."""

from collections.abc import Iterator

from assay.errors import BadRow

from .json_text import JsonProblem, parse_json_object
from .open_file import open_bytes, skip_line
from .rows import FileRows, RowOutcome


class JsonLines(FileRows):
    """The lines of one file, numbered from 1. Empty lines are skipped."""

    def __iter__(self) -> Iterator[tuple[int, RowOutcome]]:
        longest = self.limits.max_row_bytes
        number = 0
        with open_bytes(self.path, self.limits) as file:
            while line := file.readline(longest + 1):
                number += 1
                if len(line) > longest and not line.endswith(b"\n"):
                    length = len(line) + skip_line(file)
                    yield (
                        number,
                        BadRow(
                            f"the line is {length} bytes, over the limit of {longest}",
                            where=f"{self.where(number)}:{longest + 1}",
                            hint="raise ReadLimits(max_row_bytes=…), or name a file that is one "
                            "array .json",
                        ),
                    )
                elif content := line.strip(b" \t\r\n"):
                    yield number, self._parse_line(number, content, line)

    def _parse_line(self, number: int, content: bytes, line: bytes) -> RowOutcome:
        try:
            return parse_json_object(content, max_depth=self.limits.max_depth)
        except JsonProblem as problem:
            column = line.index(content) + problem.offset + 1
            message, hint = f"the line {problem.message}", problem.hint
            # Without a line end it is the last line, and a writer was probably interrupted.
            if problem.cut_off and not line.endswith(b"\n"):
                message = "the last line is truncated"
                hint = "the write did not finish; copy the file again or remove the line"
            return BadRow(message, where=f"{self.where(number)}:{column}", hint=hint)
