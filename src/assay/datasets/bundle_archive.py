"""The archive of a bundle: a strict subset of tar.gz.

Writing is deterministic: the same members give the same bytes. Reading trusts nothing: it accepts
plain files with relative names and refuses everything else that tar supports.
"""

import gzip
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tarfile import REGTYPE, USTAR_FORMAT, HeaderError, TarInfo
from typing import BinaryIO
from unicodedata import normalize

from assay.errors import ConfigError, DatasetError

from .open_file import open_bytes
from .read_limits import ReadLimits

MAX_MEMBERS = 10_000
# The largest file of a bundle other than its samples.
MAX_FILE_BYTES = 64 * 1024 * 1024
# All files of the code together.
MAX_CODE_BYTES = 512 * 1024 * 1024
MAX_MANIFEST_BYTES = 16 * 1024 * 1024
# The size field of a ustar header has eleven octal digits; larger files need an extension.
MAX_SAMPLES_BYTES = 8 * 1024**3 - 1

MANIFEST = "manifest.json"
RESULTS = "results.jsonl"
DATASET_FILE = "dataset.jsonl"
CODE = "code/"
_TAR_BLOCK_BYTES = 512
_ARCHIVE_CHUNK_BYTES = 1024 * 1024
# tar pads its last record with zeros up to this size.
_MAX_PADDING_BYTES = 10 * 1024
# ustar has room for 155 bytes of folders and 100 bytes of file name.
_MAX_MEMBER_NAME_BYTES = 250
_ARCHIVE_READ_LIMITS = ReadLimits(max_expanded_bytes=2 * MAX_SAMPLES_BYTES + 1024**3)
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True)
class ArchiveMember:
    """One file of an archive."""

    name: str
    size: int


def write_archive(output: BinaryIO, members: Iterable[tuple[str, Path]]) -> None:
    """Write files under the given names and in the given order, without times and owners."""
    # No file name and no time in the gzip header: both would change the digest of the archive.
    with gzip.GzipFile("", "wb", compresslevel=6, fileobj=output, mtime=0) as archive:
        for name, path in members:
            size = path.stat().st_size
            if problem := find_name_problem(name):
                raise ConfigError(f"{name!r} cannot be bundled: {problem}")
            most = get_size_limit(name)
            if size > most:
                raise ConfigError(f"{name} has {size} bytes, over the limit of {most}")
            info = TarInfo(name)
            info.size, info.mode = size, 0o600
            try:
                archive.write(info.tobuf(USTAR_FORMAT, "utf-8", "strict"))
            except (ValueError, UnicodeError) as error:
                raise ConfigError(f"{name!r} cannot be bundled: {error}") from None
            with path.open("rb") as file:
                copied = 0
                while piece := file.read(_ARCHIVE_CHUNK_BYTES):
                    copied += len(piece)
                    archive.write(piece)
            # The header is already written: a file that grew would corrupt every later member.
            if copied != size:
                raise ConfigError(f"{path} changed while it was read", hint="run the command again")
            archive.write(bytes(-size % _TAR_BLOCK_BYTES))
        # Two empty blocks mark the end of a tar archive.
        archive.write(bytes(2 * _TAR_BLOCK_BYTES))


def read_archive(path: Path) -> Iterator[tuple[ArchiveMember, Iterator[bytes]]]:
    """Yield the members in order, each with its content in pieces. Unread content is skipped.

    Raises `DatasetError` at the first thing that a bundle must not contain.
    """
    names = _MemberNames(path)
    with open_bytes(path, _ARCHIVE_READ_LIMITS) as archive:
        while block := _read_exactly(archive, _TAR_BLOCK_BYTES, path):
            if not any(block):
                rest = archive.read(_MAX_PADDING_BYTES + 1)
                if not _TAR_BLOCK_BYTES <= len(rest) <= _MAX_PADDING_BYTES or any(rest):
                    raise build_bundle_error(path, "it does not end where its members end")
                return
            member = _parse_tar_header(block, path)
            names.add(member.name)
            content = _read_member_content(archive, member, path)
            yield member, content
            for _ in content:
                pass
            _read_exactly(archive, -member.size % _TAR_BLOCK_BYTES, path)
    raise build_bundle_error(path, "it is cut off")


def find_name_problem(name: str) -> str | None:
    """Return why a name is not allowed in a bundle, or None if it is."""
    if not name or len(name.encode("utf-8", "replace")) > _MAX_MEMBER_NAME_BYTES:
        return f"its name is empty or longer than {_MAX_MEMBER_NAME_BYTES} bytes"
    if not name.isprintable() or "\\" in name or "\ufffd" in name:
        return "its name contains characters that are not allowed"
    if name.startswith("/") or _DRIVE.match(name):
        return "its name is an absolute path"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "its name leads out of its folder"
    return None


def get_size_limit(name: str) -> int:
    """Return the size limit of a member."""
    if name == MANIFEST:
        return MAX_MANIFEST_BYTES
    return MAX_SAMPLES_BYTES if name in (RESULTS, DATASET_FILE) else MAX_FILE_BYTES


def _parse_tar_header(block: bytes, path: Path) -> ArchiveMember:
    try:
        info = TarInfo.frombuf(block, "utf-8", "strict")
    except (HeaderError, UnicodeError, ValueError) as error:
        raise build_bundle_error(
            path, f"it is not a tar.gz file written by assay ({error})"
        ) from None
    name = info.name
    if info.type != REGTYPE:
        raise build_bundle_error(path, f"member {name!r} is not a plain file")
    if problem := find_name_problem(name):
        raise build_bundle_error(path, f"member {name!r}: {problem}")
    if not 0 <= info.size <= get_size_limit(name):
        raise build_bundle_error(
            path, f"member {name!r} has {info.size} bytes, over {get_size_limit(name)}"
        )
    return ArchiveMember(name, info.size)


class _MemberNames:
    """The names of an archive, compared as the file systems of macOS and Windows compare them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, name: str) -> None:
        """Add a name. Raises `DatasetError` if a file or a folder already has it."""
        # On macOS and Windows `A.py` would overwrite `a.py`, and one spelling of `é` the other.
        parts = normalize("NFC", normalize("NFC", name).casefold()).split("/")
        *folders, whole = ("/".join(parts[: length + 1]) for length in range(len(parts)))
        if whole in self._files or whole in self._folders or not self._files.isdisjoint(folders):
            raise build_bundle_error(self._path, f"member {name!r} appears twice")
        if len(self._files) >= MAX_MEMBERS:
            raise build_bundle_error(self._path, f"it has more than {MAX_MEMBERS} members")
        self._files.add(whole)
        self._folders.update(folders)


def _read_member_content(archive: BinaryIO, member: ArchiveMember, path: Path) -> Iterator[bytes]:
    left = member.size
    while left:
        piece = archive.read(min(left, _ARCHIVE_CHUNK_BYTES))
        if not piece:
            raise build_bundle_error(path, f"it is cut off in member {member.name!r}")
        left -= len(piece)
        yield piece


def _read_exactly(archive: BinaryIO, size: int, path: Path) -> bytes:
    data = archive.read(size)
    if len(data) != size:
        raise build_bundle_error(path, "it is cut off")
    return data


def build_bundle_error(path: Path, problem: str) -> DatasetError:
    """The error for a bundle that is refused; `problem` is a clause."""
    return DatasetError(
        f"the bundle is refused: {problem}",
        where=str(path),
        hint="a bundle is written by `assay bundle`; copy or download it again",
    )
