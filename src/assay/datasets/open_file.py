"""Open files as bytes: decompressed within limits, without a byte order mark."""

import gzip
import io
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from assay.errors import DatasetError, MissingExtra

from .read_limits import ReadLimits

_BUFFER = 256 * 1024
_SKIP_CHUNK_BYTES = 1024 * 1024
# Below this much output no ratio is a bomb: short files of one repeated line compress well.
_RATIO_EXEMPT_BYTES = 16 * 1024 * 1024
# A zstd block of 4 bytes may expand to 128 KiB, so that this much input gives 16 MiB at most.
_ZSTD_INPUT = 512
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class _Decompressor(Protocol):
    """Raises `EOFError` for truncated input and `OSError` for invalid input."""

    def readinto(self, buffer: memoryview, /) -> int: ...

    def close(self) -> None: ...


def open_bytes(path: Path, limits: ReadLimits) -> io.BufferedReader:
    """Open a file (`.gz`, `.zst` or plain) as bytes after any UTF-8 byte order mark."""
    suffix = path.suffix.lower()
    if suffix == ".zst" and find_spec("zstandard") is None:
        missing = MissingExtra.build("zstd", by=f"reading {path.name}", package="zstandard")
        raise DatasetError(missing.message, where=str(path), hint=missing.hint)
    try:
        raw: io.RawIOBase = io.FileIO(path)
    except OSError as error:
        raise DatasetError(
            f"the file cannot be opened: {error.strerror}", where=str(path)
        ) from error
    if suffix in (".gz", ".zst"):
        raw = _BoundedDecompressor(raw, path, limits)
    file: io.BufferedReader = io.BufferedReader(raw, _BUFFER)
    try:
        start = file.peek(3)[:3]
        if start.startswith(_UTF16):
            raise DatasetError(
                "the file is UTF-16, not UTF-8",
                where=str(path),
                hint="save it as UTF-8 (in Excel: CSV UTF-8), or run iconv -f UTF-16 -t UTF-8",
            )
        if start == b"\xef\xbb\xbf":
            file.read(3)
    except BaseException:
        file.close()
        raise
    return file


def skip_line(file: BinaryIO) -> int:
    """Skip the rest of a line in bounded memory. Return its length."""
    length = 0
    while piece := file.readline(_SKIP_CHUNK_BYTES):
        length += len(piece)
        if piece.endswith(b"\n"):
            break
    return length


class _ZstdReader:
    """The content of a zstd file of any number of frames."""

    def __init__(self, file: io.BufferedReader) -> None:
        import zstandard

        self._file = file
        self._decompressor = zstandard.ZstdDecompressor()
        self._invalid = zstandard.ZstdError
        self._frame: Any = None
        self._input = b""
        self._output = memoryview(b"")

    def readinto(self, buffer: memoryview, /) -> int:
        # In small pieces, because one call expands all of its input.
        while not self._output:
            self._input = self._input or self._file.read(_ZSTD_INPUT)
            if not self._input:
                if self._frame is not None:
                    raise EOFError
                return 0
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
            try:
                self._output = memoryview(self._frame.decompress(self._input))
            except self._invalid as error:
                raise OSError(str(error)) from error
            self._input = b""
            if self._frame.eof:
                self._input, self._frame = self._frame.unused_data, None
        count = min(len(buffer), len(self._output))
        buffer[:count] = self._output[:count]
        self._output = self._output[count:]
        return count

    def close(self) -> None:
        self._output = memoryview(b"")


class _BoundedDecompressor(io.RawIOBase):
    """A compressed file whose reading stops when the output exceeds the limits."""

    def __init__(self, raw: io.RawIOBase, path: Path, limits: ReadLimits) -> None:
        self._file: io.BufferedReader = io.BufferedReader(raw, _BUFFER)
        self._format = "zstd" if path.suffix.lower() == ".zst" else "gzip"
        self._content: _Decompressor = (
            _ZstdReader(self._file) if self._format == "zstd" else gzip.GzipFile(fileobj=self._file)
        )
        self._where = str(path)
        self._suffix = path.suffix
        self._limits = limits
        self._expanded = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # Buffer in the stubs
        try:
            count = self._content.readinto(buffer)
        except EOFError as error:
            raise DatasetError(
                f"the compressed file is truncated after {self._expanded} bytes of content",
                where=self._where,
                hint="copy or download it again",
            ) from error
        except (OSError, zlib.error) as error:
            raise DatasetError(
                f"the file is not valid {self._format}: {error}",
                where=self._where,
                hint="copy or download it again; an uncompressed file must not end in "
                f"{self._suffix}",
            ) from error
        self._expanded += count
        allowed = self._limits.max_expansion * max(self._file.tell(), 1)
        for most, limit, words in (
            (self._limits.max_expanded_bytes, "max_expanded_bytes", "bytes"),
            (max(allowed, _RATIO_EXEMPT_BYTES), "max_expansion", "times its size"),
        ):
            if self._expanded > most:
                raise DatasetError(
                    f"the file expands to more than {getattr(self._limits, limit)} {words}",
                    where=self._where,
                    hint=f"raise ReadLimits({limit}=…) if the file is trusted",
                )
        return count

    def close(self) -> None:
        self._content.close()
        self._file.close()
        super().close()
