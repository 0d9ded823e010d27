"""A JSON file that is one array, split into its elements with only one of them in memory."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from assay.errors import BadRow, DatasetError

from .json_text import JsonProblem, parse_json_object
from .open_file import open_bytes
from .rows import FileRows, RowOutcome

_CHUNK = 256 * 1024
_SPACE = re.compile(rb"[ \t\r\n]*+")
# Possessive quantifiers: input that does not match must not backtrack for ever.
_STRING_INSIDE = rb'(?:[^"\\]++|\\.)*+'
# To the next place that matters, which is the group that matches: none where the data ends.
_IN_WORD = re.compile(rb"[^ \t\r\n,\[\]{}]*+(?=([ \t\r\n,\[\]{}]))?")
_IN_STRING = re.compile(_STRING_INSIDE + rb'(?P<quote>")?', re.S)
# Over whole strings: most elements are a few brackets with strings between them.
_IN_BRACKETS = re.compile(
    rb'(?:[^"\[\]{}]++|"' + _STRING_INSIDE + rb'")*+'
    rb'(?:(?P<open>[\[{])|(?P<close>[\]}])|(?P<quote>"))?',
    re.S,
)


class JsonArray(FileRows):
    """The elements of the one array in a file, numbered from 0."""

    by_line = False

    def __iter__(self) -> Iterator[tuple[int, RowOutcome]]:
        with open_bytes(self.path, self.limits) as file:
            window = _FileWindow(file)
            first = window.peek()
            if first != b"[":
                problem = "is empty" if not first else "does not begin with `[`"
                message = f"the file {problem}, so it is not a JSON array"
                raise self._build_error(window, message)
            window.advance(1)
            number, separator = 0, b"["
            if window.peek() == b"]":
                separator = b"]"
            while separator != b"]":
                if window.peek() in (b",", b"]", b"}"):
                    message = f"expected an element after `{separator.decode()}`"
                    raise self._build_error(window, message)
                yield number, self._parse_element(window)
                if window.is_truncated:
                    return
                number += 1
                separator = window.peek()
                if separator == b",":
                    window.advance(1)
                elif separator not in (b"]", b""):
                    raise self._build_error(window, "expected `,` or `]` after an element")
            window.advance(1)
            if window.peek():
                raise self._build_error(window, "the file continues after the end of the array")

    def _parse_element(self, window: "_FileWindow") -> RowOutcome:
        longest = self.limits.max_row_bytes
        line, column = window.line, window.column
        data, length = window.read_element(longest)
        if window.is_truncated:
            return BadRow(
                "the file is truncated: it ends before the array does",
                where=f"{self.path}:{window.line}:{window.column}",
                hint="the write did not finish; copy the file again",
            )
        if data is None:
            return BadRow(
                f"the element is {length} bytes, over the limit of {longest}",
                where=f"{self.path}:{line}:{column}",
                hint="raise ReadLimits(max_row_bytes=…)",
            )
        try:
            return parse_json_object(data, max_depth=self.limits.max_depth)
        except JsonProblem as problem:
            # The position inside the element, moved to the line and column in the file.
            before = data[: problem.offset]
            lines = before.count(b"\n")
            column = len(before) - before.rfind(b"\n") if lines else column + len(before)
            where = f"{self.path}:{line + lines}:{column}"
            return BadRow(f"the element {problem.message}", where=where, hint=problem.hint)

    def _build_error(self, window: "_FileWindow", message: str) -> DatasetError:
        hint = "a .json file must be one array of objects; use .jsonl for one object per line"
        return DatasetError(message, where=f"{self.path}:{window.line}:{window.column}", hint=hint)


class _FileWindow:
    """The next bytes of a file, and the line and byte column of the first of them.

    It tracks strings and brackets only, to find the end of an element of any size: the JSON
    parser, which needs the whole element in memory, checks the rest.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.line = self.column = 1
        self.is_truncated = False
        """Whether the file ended inside the last element, or where one should have been."""

        self._file = file
        self._data = bytearray()

    def peek(self) -> bytes:
        """Move to the next byte that is not white space, and return it; b"" at the end."""
        while True:
            first = bytes(self._data[:1])
            if first and first not in b" \t\r\n":
                return first
            self.advance(_match(_SPACE, self._data).end())
            if not self._data and not self._read_chunk():
                return b""

    def advance(self, count: int) -> None:
        """Drop the first bytes."""
        if lines := self._data.count(b"\n", 0, count):
            self.line += lines
            self.column = count - self._data.rfind(b"\n", 0, count)
        else:
            self.column += count
        del self._data[:count]

    def read_element(self, longest: int) -> tuple[bytes | None, int]:
        """Return the bytes of one element, or None if it is over the limit, and its length."""
        first = self.peek()
        is_word, quoted = first not in (b'"', b"[", b"{"), first == b'"'
        at, depth, dropped = int(quoted), 0, 0
        while True:
            pattern = _IN_WORD if is_word else _IN_STRING if quoted else _IN_BRACKETS
            found = _match(pattern, self._data, at)
            at, place = found.end(), found.lastgroup
            if found.lastindex is None:
                # Too long: from here on the bytes are only counted, so that memory stays bounded.
                if dropped + at > longest:
                    self.advance(at)
                    at, dropped = 0, dropped + at
                if self._read_chunk():
                    continue
                self.is_truncated = True
                at = len(self._data)
                break
            if place == "open":
                depth += 1
            elif place == "close":
                depth -= 1
            elif place == "quote":
                quoted = not quoted
            if depth == 0 and not quoted:
                break
        length = dropped + at
        data = bytes(self._data[:at]) if length <= longest else None
        self.advance(at)
        return data, length

    def _read_chunk(self) -> bool:
        chunk = self._file.read(_CHUNK)
        self._data += chunk
        return bool(chunk)


def _match(pattern: re.Pattern[bytes], data: bytearray, at: int = 0) -> re.Match[bytes]:
    found = pattern.match(data, at)
    assert found is not None, "each of the patterns matches nothing, too"
    return found
