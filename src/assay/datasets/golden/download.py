"""Downloads into the cache: limited in size, hashed, and stored completely or not at all."""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self

from assay.errors import DatasetError
from assay.types import compute_file_sha256, make_private_folder

_TABLE_SUFFIXES = (".jsonl", ".ndjson", ".csv", ".jsonl.gz", ".ndjson.gz", ".json.gz", ".csv.gz")
_DATASET_SUFFIXES = (".json", ".parquet", *_TABLE_SUFFIXES)
_SNIFFED_BYTES = 4096


class Download:
    """A file that is being fetched."""

    def __init__(self, file: BinaryIO, *, shown: str, max_bytes: int) -> None:
        self._file = file
        self._shown = shown
        self._max_bytes = max_bytes
        self._digest = hashlib.sha256()
        self._start = b""
        self.size = 0

    def expect(self, size: int | None) -> None:
        """Raise `DatasetError` if the announced size is over the limit."""
        if size is not None and size > self._max_bytes:
            raise self._build_size_error(f"the file has {size:,} bytes")

    def write(self, data: bytes) -> None:
        """Append bytes to the file. Raises `DatasetError` over the limit."""
        self.size += len(data)
        if self.size > self._max_bytes:
            raise self._build_size_error("the file is too large")
        if len(self._start) < _SNIFFED_BYTES:
            self._start += data[: _SNIFFED_BYTES - len(self._start)]
        self._digest.update(data)
        self._file.write(data)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @property
    def suffix(self) -> str:
        """The suffix of the file by its name, or else by its first bytes."""
        name = self._shown.rstrip("/").rpartition("/")[2].lower()
        named = max((end for end in _DATASET_SUFFIXES if name.endswith(end)), key=len, default="")
        if named not in ("", ".json"):
            return named
        # `.json` is used for arrays and for JSON Lines alike, so that the content decides.
        start = self._start.removeprefix(b"\xef\xbb\xbf").lstrip()
        if start.startswith(b"["):
            return ".json"
        if start.startswith(b"{") or not start:
            return ".jsonl"
        if named:
            return named
        if start.startswith(b"PAR1"):
            return ".parquet"
        raise DatasetError(
            "neither the name nor the first bytes of the file show its format",
            where=self._shown,
            hint=f"supported are {', '.join(_DATASET_SUFFIXES)}",
        )

    def _build_size_error(self, problem: str) -> DatasetError:
        return DatasetError(
            f"{problem}; at most {self._max_bytes:,} bytes are fetched",
            where=self._shown,
            hint="raise FetchRules(max_bytes=…)",
        )


class PartFile:
    """A temporary file in the cache that is removed unless it is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            make_private_folder(folder)
            handle, self._name = tempfile.mkstemp(dir=folder, prefix=".fetching-")
        except OSError as error:
            raise _build_cache_error(folder, error) from error
        self.file: BinaryIO = os.fdopen(handle, "wb")

    def keep(self, name: str) -> Path:
        """Move the file to its final name."""
        path = self._folder / name
        try:
            self.file.close()
            # Atomic: another process sees the whole file or none.
            os.replace(self._name, path)
        except OSError as error:
            raise _build_cache_error(self._folder, error) from error
        return path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.file.close()
        with suppress(FileNotFoundError):
            os.unlink(self._name)


def find_cached(folder: Path, sha256: str) -> Path | None:
    """Return the cached file with this digest, or None. The content is hashed again."""
    # A cached file may have been changed or damaged since it was fetched.
    for path in sorted(folder.glob(f"{sha256}.*")):
        if compute_file_sha256(path) == sha256:
            return path
    return None


def _build_cache_error(folder: Path, error: OSError) -> DatasetError:
    return DatasetError(
        f"the cache folder cannot be written to: {error.strerror}",
        where=str(folder),
        hint="choose a writable folder",
    )
