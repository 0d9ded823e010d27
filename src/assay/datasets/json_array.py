"""A JSON file that is one array, split into its elements with only one of them in memory."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from assay.errors import BadRow, DatasetError

from .json_text import JsonProblem, parse_json_object
from .open_file import open_bytes
from .read_limits import ReadLimits
from .rows import RowOutcome

_CHUNK = 256 * 1024
_SPACE = re.compile(rb"[ \t\r\n]*")
# Possessive quantifiers: input that does not match must not backtrack for ever.
_STRING_INSIDE = rb'(?:[^"\\]++|\\.)*+'
_NO_BRACKET = rb'(?:[^"\[\]{}]++|"' + _STRING_INSIDE + rb'")*+'
_TO_BRACKET = re.compile(_NO_BRACKET + rb"[\[\]{}]", re.S)
_TO_LAST_STRING = re.compile(_NO_BRACKET, re.S)
_IN_STRING = re.compile(_STRING_INSIDE, re.S)
_BARE_WORD = re.compile(rb"[^\s,\[\]{}]*")
_OPENING = b"[{"
_ScanState = Literal["brackets", "string", "word"]
_START_STATES: dict[bytes, _ScanState] = {b"{": "brackets", b"[": "brackets", b'"': "string"}
_CUT_OFF = "the file is truncated: it ends before the array does"


@dataclass(frozen=True)
class JsonArray:
    """The elements of the one array in a file, numbered from 0."""

    path: Path
    limits: ReadLimits

    def where(self, position: int) -> str:
        return f"{self.path}[{position}]"

    def __iter__(self) -> Iterator[tuple[int, RowOutcome]]:
        with open_bytes(self.path, self.limits) as file:
            scanner = _ElementScanner(file, longest=self.limits.max_row_bytes)
            first = scanner.peek()
            if first != b"[":
                problem = "is empty" if not first else "does not begin with `[`"
                message = f"the file {problem}, so it is not a JSON array"
                raise self._build_error(scanner, message)
            scanner.skip()
            number = 0
            following = scanner.peek()
            if following == b",":
                raise self._build_error(scanner, "expected an element after `[`")
            while following != b"]":
                yield number, self._parse_element(scanner)
                if scanner.cut_off:
                    return
                number += 1
                following = self._read_separator(scanner)
            scanner.skip()
            if scanner.peek():
                raise self._build_error(scanner, "the file continues after the end of the array")

    def _read_separator(self, scanner: "_ElementScanner") -> bytes:
        """Return the first byte of the next element, b"]" after the last, b"" at the end."""
        following = scanner.peek()
        if following == b",":
            scanner.skip()
            following = scanner.peek()
            if following in (b",", b"]"):
                raise self._build_error(scanner, "expected an element after `,`")
        elif following not in (b"]", b""):
            raise self._build_error(scanner, "expected `,` or `]` after an element")
        return following

    def _parse_element(self, scanner: "_ElementScanner") -> RowOutcome:
        line, column = scanner.position()
        data, length = scanner.read_element()
        if scanner.cut_off:
            line, column = scanner.position()
            hint = "the write did not finish; copy the file again"
            return BadRow(_CUT_OFF, where=f"{self.path}:{line}:{column}", hint=hint)
        if data is None:
            return BadRow(
                f"the element is {length} bytes, over the limit of {self.limits.max_row_bytes}",
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

    def _build_error(self, scanner: "_ElementScanner", message: str) -> DatasetError:
        line, column = scanner.position()
        hint = "a .json file must be one array of objects; use .jsonl for one object per line"
        return DatasetError(message, where=f"{self.path}:{line}:{column}", hint=hint)


class _ElementScanner:
    """A position in a file that moves over whole elements.

    It tracks strings and brackets only; the JSON parser checks the rest.
    """

    def __init__(self, file: BinaryIO, *, longest: int) -> None:
        self.cut_off = False
        """Whether the file ended inside the last element, or where one should have been."""

        self._file = file
        self._longest = longest
        self._buffer = bytearray()
        self._dropped = 0
        self._at = 0
        self._kept = 0
        """The buffer before this offset may be dropped."""

        self._counted = 0
        """Line and column are counted up to this offset."""

        self._line = self._column = 1
        self._depth = 0
        self._state: _ScanState = "brackets"

    def peek(self) -> bytes:
        """Return the next byte that is not white space, or b"" at the end."""
        while True:
            self._at = self._kept = _find_match_end(_SPACE, self._buffer, self._at)
            if self._at < len(self._buffer):
                return bytes(self._buffer[self._at : self._at + 1])
            if not self._read_chunk():
                return b""

    def skip(self) -> None:
        """Skip the byte that `peek` returned."""
        self._at += 1

    def position(self) -> tuple[int, int]:
        """Return line and byte column of the next byte, from 1."""
        self._count_to(self._at)
        return self._line, self._column

    def read_element(self) -> tuple[bytes | None, int]:
        """Return the bytes of one element, or None if it is over the limit, and its length."""
        first = self.peek()
        start = self._dropped + self._at
        self._depth = 0
        self._state = _START_STATES.get(first, "word")
        self._at += self._state == "string"
        while not self._scan():
            # Too long: from here on the bytes are only counted, so that memory stays bounded.
            if self._dropped + self._at - start > self._longest:
                self._kept = self._at
            if not self._read_chunk():
                # A bare word may end with the file, but the array around it is still not closed.
                self.cut_off = True
                self._at = len(self._buffer)
                break
        length = self._dropped + self._at - start
        whole = length <= self._longest
        return (bytes(self._buffer[self._kept : self._at]) if whole else None), length

    def _scan(self) -> bool:
        """Scan as far as the buffer allows. Return whether the element ended."""
        buffer = self._buffer
        if self._state == "word":
            self._at = _find_match_end(_BARE_WORD, buffer, self._at)
            return self._at < len(buffer)
        while True:
            if self._state == "string":
                self._at = _find_match_end(_IN_STRING, buffer, self._at)
                if buffer[self._at : self._at + 1] != b'"':
                    return False
                self._at += 1
                self._state = "brackets"
                if self._depth == 0:
                    return True
            if found := _TO_BRACKET.match(buffer, self._at):
                self._at = found.end()
                self._depth += 1 if buffer[self._at - 1] in _OPENING else -1
                if self._depth <= 0:
                    return True
            else:
                self._at = _find_match_end(_TO_LAST_STRING, buffer, self._at)
                if self._at == len(buffer):
                    return False
                self._at += 1
                self._state = "string"

    def _read_chunk(self) -> bool:
        """Drop the bytes that are not kept and read more. Return False at the end of the file."""
        self._count_to(self._kept)
        del self._buffer[: self._kept]
        self._dropped += self._kept
        self._at -= self._kept
        self._counted -= self._kept
        self._kept = 0
        chunk = self._file.read(_CHUNK)
        self._buffer += chunk
        return bool(chunk)

    def _count_to(self, end: int) -> None:
        if end <= self._counted:
            return
        if lines := self._buffer.count(b"\n", self._counted, end):
            self._line += lines
            self._column = end - self._buffer.rfind(b"\n", self._counted, end)
        else:
            self._column += end - self._counted
        self._counted = end


def _find_match_end(pattern: re.Pattern[bytes], buffer: bytearray, at: int) -> int:
    found = pattern.match(buffer, at)
    return found.end() if found else at
