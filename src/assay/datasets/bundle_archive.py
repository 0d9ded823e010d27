"""The archive of a bundle: a strict subset of tar.gz.

Writing is deterministic: the same members give the same bytes. Reading trusts nothing: plain files
with relative names are accepted, and everything else that tar can hold is refused.
"""

import gzip
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tarfile import REGTYPE, USTAR_FORMAT, HeaderError, TarInfo
from typing import BinaryIO

from assay.errors import ConfigError, DatasetError

from .open_file import open_bytes
from .read_limits import ReadLimits

MAX_MEMBERS = 10_000
MAX_FILE_BYTES = 64 * 1024 * 1024
"""The largest file of a bundle other than its samples."""

MAX_CODE_BYTES = 512 * 1024 * 1024
"""All files of the code together."""

MAX_MANIFEST_BYTES = 16 * 1024 * 1024

MAX_SAMPLES_BYTES = 8 * 1024**3 - 1
"""The largest file that a tar header of this format can describe."""

MANIFEST = "manifest.json"
RESULTS = "results.jsonl"
DATASET = "dataset.jsonl"
CODE = "code/"
_BLOCK = 512
_PIECE = 1024 * 1024
_PADDING = 10 * 1024
"""tar fills its last record with zeros up to this size."""

_LONGEST_NAME = 250
_LIMITS = ReadLimits(max_expanded_bytes=2 * MAX_SAMPLES_BYTES + 1024**3)
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True)
class Member:
    """One file of an archive."""

    name: str
    size: int


def write_archive(output: BinaryIO, members: Iterable[tuple[str, Path]]) -> None:
    """Write files under their names, in the given order, without times and owners."""
    with gzip.GzipFile("", "wb", compresslevel=6, fileobj=output, mtime=0) as archive:
        for name, path in members:
            size = path.stat().st_size
            archive.write(_header(name, size))
            with path.open("rb") as file:
                copied = 0
                while piece := file.read(_PIECE):
                    copied += len(piece)
                    archive.write(piece)
            if copied != size:
                raise ConfigError(f"{path} changed while it was read", hint="try again")
            archive.write(bytes(-size % _BLOCK))
        archive.write(bytes(2 * _BLOCK))


def _header(name: str, size: int) -> bytes:
    if problem := find_name_problem(name):
        raise ConfigError(f"{name!r} cannot be bundled: {problem}")
    if size > size_limit(name):
        raise ConfigError(f"{name} has {size} bytes, over the limit of {size_limit(name)}")
    info = TarInfo(name)
    info.size, info.mode = size, 0o600
    try:
        return info.tobuf(USTAR_FORMAT, "utf-8", "strict")
    except (ValueError, UnicodeError) as error:
        raise ConfigError(f"{name!r} cannot be bundled: {error}") from None


def read_archive(path: Path) -> Iterator[tuple[Member, Iterator[bytes]]]:
    """The members in order, each with its content in pieces. Content not asked for is skipped.

    Raises `DatasetError` at the first thing that a bundle never contains.
    """
    names = _Names(path)
    with open_bytes(path, _LIMITS) as archive:
        while block := _exactly(archive, _BLOCK, path):
            if not any(block):
                _check_end(archive, path)
                return
            member = _member(block, path)
            names.add(member.name)
            content = _content(archive, member, path)
            yield member, content
            for _ in content:
                pass
            _exactly(archive, -member.size % _BLOCK, path)
    raise _refusal(path, "it is cut off")


def find_name_problem(name: str) -> str | None:
    """Why a name cannot be one of a bundle's; None when it can."""
    if not name or len(name.encode("utf-8", "replace")) > _LONGEST_NAME:
        return f"its name is empty or longer than {_LONGEST_NAME} bytes"
    if not name.isprintable() or "\\" in name or "\ufffd" in name:
        return "its name contains characters that are not allowed"
    if name.startswith("/") or _DRIVE.match(name):
        return "its name is an absolute path"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "its name leads out of its folder"
    return None


def size_limit(name: str) -> int:
    """How large a member may be."""
    if name == MANIFEST:
        return MAX_MANIFEST_BYTES
    return MAX_SAMPLES_BYTES if name in (RESULTS, DATASET) else MAX_FILE_BYTES


def _member(block: bytes, path: Path) -> Member:
    try:
        info = TarInfo.frombuf(block, "utf-8", "strict")
    except (HeaderError, UnicodeError, ValueError) as error:
        raise _refusal(path, f"it is not a tar.gz file of assay ({error})") from None
    name = info.name
    if info.type != REGTYPE:
        raise _refusal(path, f"member {name!r} is not a plain file")
    if problem := find_name_problem(name):
        raise _refusal(path, f"member {name!r}: {problem}")
    if not 0 <= info.size <= size_limit(name):
        raise _refusal(path, f"member {name!r} has {info.size} bytes, over {size_limit(name)}")
    return Member(name, info.size)


class _Names:
    """The names of an archive, each once, also where a file system ignores case."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, name: str) -> None:
        """Raises `DatasetError` for a name that is taken, by a file or by a folder."""
        parts = name.casefold().split("/")
        *folders, whole = ("/".join(parts[: length + 1]) for length in range(len(parts)))
        if whole in self._files or whole in self._folders or not self._files.isdisjoint(folders):
            raise _refusal(self._path, f"member {name!r} appears twice")
        if len(self._files) >= MAX_MEMBERS:
            raise _refusal(self._path, f"it has more than {MAX_MEMBERS} members")
        self._files.add(whole)
        self._folders.update(folders)


def _content(archive: BinaryIO, member: Member, path: Path) -> Iterator[bytes]:
    left = member.size
    while left:
        piece = archive.read(min(left, _PIECE))
        if not piece:
            raise _refusal(path, f"it is cut off in member {member.name!r}")
        left -= len(piece)
        yield piece


def _exactly(archive: BinaryIO, size: int, path: Path) -> bytes:
    data = archive.read(size)
    if len(data) != size:
        raise _refusal(path, "it is cut off")
    return data


def _check_end(archive: BinaryIO, path: Path) -> None:
    rest = archive.read(_PADDING + 1)
    if len(rest) < _BLOCK or len(rest) > _PADDING or any(rest):
        raise _refusal(path, "it does not end where its members end")


def _refusal(path: Path, problem: str) -> DatasetError:
    return DatasetError(
        f"the bundle is refused: {problem}",
        where=str(path),
        hint="a bundle is written by `assay bundle`; copy or download it again",
    )
