"""Files opened as bytes: decompressed within bounds, without a byte order mark."""

import gzip
import io
import zlib
from pathlib import Path
from typing import BinaryIO

from assay.errors import DatasetError

from .limits import ReadLimits

_BUFFER = 256 * 1024
_PIECE = 1024 * 1024
_ALWAYS_FINE = 16 * 1024 * 1024
"""Below this much output no ratio is a bomb: short files of one repeated line compress well."""

_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def open_bytes(path: Path, limits: ReadLimits) -> io.BufferedReader:
    """The bytes of a file, `.gz` or plain, after a UTF-8 byte order mark."""
    try:
        raw: io.RawIOBase = io.FileIO(path)
    except OSError as error:
        raise DatasetError(f"cannot be opened: {error.strerror}", where=str(path)) from error
    if path.suffix.lower() == ".gz":
        raw = _Expanding(raw, path, limits)
    file: io.BufferedReader = io.BufferedReader(raw, _BUFFER)
    try:
        return _without_mark(file, path)
    except BaseException:
        file.close()
        raise


def pass_over_line(file: BinaryIO) -> int:
    """Pass over what is left of a line without holding it; its length."""
    length = 0
    while piece := file.readline(_PIECE):
        length += len(piece)
        if piece.endswith(b"\n"):
            break
    return length


def _without_mark(file: io.BufferedReader, path: Path) -> io.BufferedReader:
    start = file.peek(3)[:3]
    if start.startswith(_UTF16):
        raise DatasetError(
            "is UTF-16, not UTF-8", where=str(path), hint="convert it: iconv -f UTF-16 -t UTF-8"
        )
    if start == b"\xef\xbb\xbf":
        file.read(3)
    return file


class _Expanding(io.RawIOBase):
    """A gzip file that stops when it grows out of proportion."""

    def __init__(self, raw: io.RawIOBase, path: Path, limits: ReadLimits) -> None:
        self._file: io.BufferedReader = io.BufferedReader(raw, _BUFFER)
        self._gzip = gzip.GzipFile(fileobj=self._file)
        self._where = str(path)
        self._limits = limits
        self._expanded = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # Buffer in the stubs
        try:
            count = self._gzip.readinto(buffer)
        except EOFError as error:
            raise DatasetError(
                f"the compressed file is cut off after {self._expanded} bytes of content",
                where=self._where,
                hint="copy or download it again",
            ) from error
        except (OSError, zlib.error) as error:
            raise DatasetError(
                f"is not a sound gzip file: {error}",
                where=self._where,
                hint="copy or download it again; a file that is not compressed must not end in .gz",
            ) from error
        self._expanded += count
        self._refuse_bomb()
        return count

    def _refuse_bomb(self) -> None:
        if self._expanded > self._limits.max_expanded_bytes:
            raise DatasetError(
                f"expands to more than {self._limits.max_expanded_bytes} bytes",
                where=self._where,
                hint="raise ReadLimits(max_expanded_bytes=…) if the file is trusted",
            )
        allowed = self._limits.max_expansion * max(self._file.tell(), 1)
        if self._expanded > max(allowed, _ALWAYS_FINE):
            raise DatasetError(
                f"expands to more than {self._limits.max_expansion} times its size",
                where=self._where,
                hint="raise ReadLimits(max_expansion=…) if the file is trusted",
            )

    def close(self) -> None:
        self._gzip.close()
        self._file.close()
        super().close()
