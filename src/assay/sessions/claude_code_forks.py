"""Find Claude Code transcripts that start with the history of another one.

A fork, created with `--fork-session`, is a new file that repeats the records of its origin under
the same ids and does not name the origin. After a compaction it repeats only later records.
Records without an id, such as those of requests, are never repeated.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf
from pathlib import Path
from typing import Any

from assay.errors import BadRow

from .foreign_values import parse_iso_ms
from .session_lines import iterate_numbered_lines
from .stored_json import parse_stored_object

# Matches every id of a record. May match other text as well; the records are checked later.
_RECORD_ID = re.compile(rb'"uuid" ?: ?"([^"\\]{1,200})"')


@dataclass(frozen=True)
class ForkOrigin:
    """The session that a fork repeats."""

    session_id: str
    records: int
    """The number of the fork's first records with an id that are repeated."""


@dataclass
class _Member:
    """Digests and times of one of several transcripts that share records."""

    file: Path
    ids: "array[int]" = field(default_factory=lambda: array("Q"))
    times: "array[float]" = field(default_factory=lambda: array("d"))
    """When each record with an id was written."""

    began: float = inf
    """When the first record without an id was written."""


def find_fork_origins(files: Sequence[Path]) -> dict[Path, ForkOrigin]:
    """Return the origins of the files that repeat records of another one.

    Scans all files for ids once. Only files that share ids are parsed, and only digests of their
    ids are kept in memory.
    """
    roots: dict[bytes, list[Path]] = {}
    for file in files:
        ids = (each.get("uuid") for each in _iterate_readable_records(file))
        if (root := next((name for name in ids if isinstance(name, str)), None)) is not None:
            roots.setdefault(root.encode(errors="replace"), []).append(file)
    origins: dict[Path, ForkOrigin] = {}
    for family in _group_related_files(files, roots):
        origins |= _find_family_origins([_read_member(file) for file in family])
    return origins


def _iterate_readable_records(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file. Reading the session reports the unreadable lines."""
    for _, line in _iterate_readable_lines(file):
        try:
            yield parse_stored_object(line, where=str(file))
        except BadRow:
            continue


def _iterate_readable_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    try:
        for number, line in iterate_numbered_lines(file):
            if isinstance(line, bytes):
                yield number, line
    except BadRow:
        return


def _group_related_files(
    files: Sequence[Path], roots: Mapping[bytes, Sequence[Path]]
) -> Iterator[Sequence[Path]]:
    """Group files of which one contains the first record of another, by union-find."""
    family = {file: file for file in files}

    def find_root(file: Path) -> Path:
        while family[file] != file:
            family[file] = family[family[file]]
            file = family[file]
        return file

    # One file of each first record is enough to find the others: a session may have many forks.
    for first, *others in roots.values():
        family |= dict.fromkeys(others, first)
    for file in files:
        for _, line in _iterate_readable_lines(file):
            for name in _RECORD_ID.findall(line):
                if name in roots:
                    family[find_root(roots[name][0])] = find_root(file)
    members: dict[Path, list[Path]] = {}
    for file in files:
        members.setdefault(find_root(file), []).append(file)
    return (each for each in members.values() if len(each) > 1)


def _read_member(file: Path) -> _Member:
    member = _Member(file)
    for record in _iterate_readable_records(file):
        name, written = record.get("uuid"), parse_iso_ms(record.get("timestamp"))
        if isinstance(name, str):
            digest = blake2b(name.encode(errors="replace"), digest_size=8).digest()
            member.ids.append(int.from_bytes(digest))
            member.times.append(inf if written is None else written)
        elif written is not None:
            member.began = min(member.began, written)
    return member


def _find_family_origins(members: list[_Member]) -> dict[Path, ForkOrigin]:
    """Find the origin of each fork: the member with the earliest record of its own is older."""
    shared = Counter(name for member in members for name in set(member.ids))

    def age(member: _Member) -> tuple[float, int, str]:
        dated = zip(member.ids, member.times, strict=True)
        first = min([member.began, *(time for name, time in dated if shared[name] == 1)])
        # A member without records of its own is the history that the others repeat.
        return -inf if first == inf else first, len(member.ids), str(member.file)

    writer: dict[int, _Member] = {}
    origins: dict[Path, ForkOrigin] = {}
    for member in sorted(members, key=age):
        repeated = [name for name in dict.fromkeys(member.ids) if name in writer]
        if repeated and (origin := writer[repeated[-1]].file).stem != member.file.stem:
            origins[member.file] = ForkOrigin(origin.stem, len(repeated))
        for name in member.ids:
            writer.setdefault(name, member)
    return origins
