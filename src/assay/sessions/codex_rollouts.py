"""Index the rollouts of a Codex folder: the files and the subagents of each session.

Only ids, paths and positions of each file are kept. Its first line alone contains instructions of
many kilobytes, and a folder contains thousands of files.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

from assay.errors import BadRow

from .foreign_values import dict_or_empty, text_or_none
from .session_lines import iterate_records

ROLLOUT_PATTERNS = ("rollout-*.jsonl", "rollout-*.jsonl.zst")
# A session moves to the second folder when the user archives it.
_FOLDERS = ("sessions", "archived_sessions")
# Start time, thread id, and the rollout's own id if the session was reverted.
_ROLLOUT_NAME = re.compile(r"rollout-(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)-([^_]+)(?:_(.+))?$")

# `session_meta` is the first line; a few damaged ones may precede it.
_HEAD_LINES = 10

# Nesting of subagents. Deeper ones are read as sessions of their own.
_MAX_THREAD_DEPTH = 8

_DATE = re.compile(r"\d{4}|\d\d")


@dataclass(frozen=True, slots=True)
class HistoryBase:
    """A position in another rollout: a session inherits all records before it."""

    rollout_id: str
    end_ordinal: int | None
    end_offset: int | None

    @property
    def is_usable(self) -> bool:
        return self.end_ordinal is not None or self.end_offset is not None

    def order(self) -> tuple[float, float]:
        """Return the sort key of positions in one rollout."""
        ordinal, offset = self.end_ordinal, self.end_offset
        return (inf if ordinal is None else ordinal, inf if offset is None else offset)

    def excludes(self, record: Mapping[str, Any], end: int) -> bool:
        """Whether a record that ends at this byte is past the position."""
        ordinal = _parse_position(record.get("ordinal"))
        if ordinal is not None and self.end_ordinal is not None:
            return ordinal >= self.end_ordinal
        return self.end_offset is not None and end > self.end_offset


@dataclass(frozen=True, slots=True)
class Rollout:
    """One file. A session that was reverted has several, of which the last one is current."""

    path: str
    thread_id: str
    rollout_id: str
    """The thread's id, unless the file replaces an earlier one of that thread."""

    created: str
    """Sort key of the files of one thread."""

    parent_id: str | None = None
    forked_from: str | None = None
    base: HistoryBase | None = None
    own_from: int | None = None
    """The ordinal of the first record of its own, if earlier ones were copied into it."""

    readable: bool = True
    """Whether its first lines identify the session. If not, it is a session of its own."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of a rollout that a session inherits."""

    rollout: Rollout
    until: HistoryBase


def read_parent_id(meta: Mapping[str, Any]) -> str | None:
    """Return the session that started this one as its subagent."""
    source = dict_or_empty(dict_or_empty(meta.get("source")).get("subagent"))
    parent = dict_or_empty(source.get("thread_spawn")).get("parent_thread_id")
    return text_or_none(parent) or text_or_none(meta.get("parent_thread_id"))


def wrap_in_envelope(record: dict[str, Any]) -> dict[str, Any]:
    """Convert a line to the format since 0.32. Earlier versions wrote items without an envelope."""
    if isinstance(record.get("payload"), dict) and isinstance(record.get("type"), str):
        return record
    stamp = record.get("timestamp")
    if "id" in record and "type" not in record and "timestamp" in record:
        return {"type": "session_meta", "timestamp": stamp, "payload": record}
    if isinstance(record.get("type"), str) and "payload" not in record:
        return {"type": "response_item", "timestamp": stamp, "payload": record}
    return {"type": "unknown", "timestamp": stamp, "payload": record}


def read_rollout(path: str) -> Rollout:
    """Read the ids and positions from the first lines of a file."""
    name = strip_rollout_suffix(path)
    parts = _ROLLOUT_NAME.match(name)
    meta = _read_meta(Path(path))
    thread_id = text_or_none(meta.get("id")) if meta is not None else None
    if meta is None or thread_id is None:
        rollout_id = (parts[3] or parts[2]) if parts else name
        return Rollout(path, name, rollout_id, created=name, readable=False)
    stamp = str(meta.get("timestamp") or "")
    seconds = parts[1] if parts else stamp.replace(":", "-")[:19]
    base = None
    if meta.get("history_base") is not None:
        position = dict_or_empty(meta["history_base"])
        base = HistoryBase(
            rollout_id=str(position.get("thread_id")),
            end_ordinal=_parse_position(position.get("end_ordinal_exclusive")),
            end_offset=_parse_position(position.get("end_byte_offset")),
        )
    rollout_id = name.partition(f"-{thread_id}_")[2] or thread_id
    if base is not None and base.rollout_id == rollout_id:
        # No rollout inherits from itself: the file was renamed, so its id is lost.
        rollout_id = name
    return Rollout(
        path=path,
        thread_id=thread_id,
        rollout_id=rollout_id,
        created=f"{seconds} {stamp} {name}",
        parent_id=read_parent_id(meta),
        forked_from=text_or_none(meta.get("forked_from_id")),
        base=base,
        own_from=_parse_position(meta.get("subagent_history_start_ordinal")),
    )


def strip_rollout_suffix(path: str) -> str:
    """Return a file's name without `.jsonl` and `.zst`."""
    return Path(path).name.removesuffix(".zst").removesuffix(".jsonl")


def find_session_name(path: str) -> str:
    """Return the session id in the name of a file, for a file that cannot be read."""
    name = strip_rollout_suffix(path)
    parts = _ROLLOUT_NAME.match(name)
    return parts[2] if parts else name


def _read_meta(path: Path) -> Mapping[str, Any] | None:
    try:
        for record, _ in islice(iterate_records(path), _HEAD_LINES):
            if isinstance(record, BadRow):
                continue
            line = wrap_in_envelope(record)
            if line["type"] == "session_meta":
                payload: Mapping[str, Any] = line["payload"]
                return payload
    except BadRow:
        pass
    return None


def _parse_position(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def find_codex_home(path: Path) -> Path:
    """Return the folder above `sessions/YYYY/MM/DD` of `path`, else the folder of `path`."""
    path = path.resolve()
    folder = path if path.is_dir() else path.parent
    while _DATE.fullmatch(folder.name):
        folder = folder.parent
    return folder.parent if folder.name in _FOLDERS else folder


def find_rollouts(home: Path) -> Iterator[Path]:
    """Yield all rollouts of a Codex home."""
    for folder in _FOLDERS:
        for pattern in ROLLOUT_PATTERNS:
            yield from (home / folder).rglob(pattern)


class RolloutIndex:
    """The rollouts below a path, and those elsewhere in its Codex home that they refer to."""

    def __init__(self, files: Iterable[Path], elsewhere: Iterable[Path] = ()) -> None:
        """Index `files`, which are read as sessions. Others are looked up by name on demand."""
        self.copies: dict[str, list[str]] = {}
        """Files of each session that were skipped: longer ones contain the same rollouts."""

        self.threads: dict[str, list[Rollout]] = {}
        """The files of each session, from the first to the current one."""

        self._by_id: dict[str, Rollout] = {}
        for path in _drop_compressed_copies(files):
            self._add(read_rollout(path))
        self._elsewhere: dict[str, str] = {}
        for path in _drop_compressed_copies(elsewhere):
            if parts := _ROLLOUT_NAME.match(strip_rollout_suffix(path)):
                self._elsewhere[parts[3] or parts[2]] = path
        for rollout_id, path in self._elsewhere.items():
            if find_session_name(path) in self.threads and rollout_id not in self._by_id:
                self._add(read_rollout(path))
        for rollouts in self.threads.values():
            rollouts.sort(key=lambda rollout: rollout.created)
        self._children: dict[str, list[str]] = {}
        parents = {
            thread_id: rollouts[-1].parent_id for thread_id, rollouts in self.threads.items()
        }
        for thread_id, parent in parents.items():
            if parent is not None and parent in parents:
                self._children.setdefault(parent, []).append(thread_id)
        roots = {each for each, parent in parents.items() if parent not in parents}
        reached: set[str] = set()
        for root in [each for each in parents if each in roots]:
            roots |= self._walk(root, reached)
        # Unreached sessions are in a cycle of parents: make the first one a root.
        for thread_id in parents:
            if thread_id not in reached:
                self._children[parents[thread_id] or ""].remove(thread_id)
                roots |= {thread_id, *self._walk(thread_id, reached)}
        self.roots = [each for each in parents if each in roots]
        """Sessions without a parent, in the order of their files."""

    def _add(self, rollout: Rollout) -> None:
        twin = self._by_id.get(rollout.rollout_id)
        if twin is not None and twin.thread_id == rollout.thread_id:
            # Sessions only grow: the longer of two copies contains the other.
            left, kept = sorted((twin, rollout), key=lambda each: (_get_size(each.path), each.path))
            self.copies.setdefault(rollout.thread_id, []).append(left.path)
            if kept is twin:
                return
            self.threads[twin.thread_id].remove(twin)
        if twin is None or twin.thread_id == rollout.thread_id or not twin.readable:
            self._by_id[rollout.rollout_id] = rollout
        self.threads.setdefault(rollout.thread_id, []).append(rollout)

    def _walk(self, root: str, reached: set[str]) -> set[str]:
        """Visit the subagents of a session at any depth; return those too deep as new roots."""
        cut: set[str] = set()
        waiting = deque([(root, 0)])
        while waiting:
            thread_id, depth = waiting.popleft()
            reached.add(thread_id)
            started = self._children.get(thread_id, [])
            if depth == _MAX_THREAD_DEPTH and started:
                cut.update(self._children.pop(thread_id))
                depth = -1
            waiting.extend((each, depth + 1) for each in started)
        return cut

    def children_of(self, thread_id: str) -> list[str]:
        return self._children.get(thread_id, [])

    def find_thread(self, path: Path) -> str:
        """Return the session that a file belongs to."""
        plain = str(path).removesuffix(".zst")
        every = (rollout for rollouts in self.threads.values() for rollout in rollouts)
        found = (each.thread_id for each in every if each.path.removesuffix(".zst") == plain)
        return next(found, None) or read_rollout(str(path)).thread_id

    def find(self, rollout_id: str) -> Rollout | None:
        """Return a rollout by its id, reading it if it is not indexed yet."""
        known = self._by_id.get(rollout_id)
        if known is None and rollout_id in self._elsewhere:
            return read_rollout(self._elsewhere[rollout_id])
        return known

    def trace_history(self, rollout: Rollout) -> tuple[list[Segment], BadRow | None]:
        """Return the inherited segments, oldest first, and why the first part is missing."""
        segments: list[Segment] = []
        places = {rollout.rollout_id: 0}
        base = rollout.base
        while base is not None:
            source = self.find(base.rollout_id)
            why = None
            place = len(segments)
            if source is None:
                why = f"rollout {base.rollout_id} does not exist"
            elif not base.is_usable:
                why = "`history_base` has no position"
            elif source.rollout_id in places:
                # A cycle: nothing can come before the rollout that closes it.
                place = places[source.rollout_id]
                why = f"rollout {source.rollout_id} inherits from itself"
            if source is None or why is not None:
                problem = BadRow(f"inherited history is missing: {why}", where=rollout.path)
                return segments[:place][::-1], problem
            segments.append(Segment(source, base))
            places[source.rollout_id] = len(segments)
            base = source.base
        return segments[::-1], None


def _drop_compressed_copies(files: Iterable[Path]) -> Iterator[str]:
    """Yield each path once: Codex keeps a plain copy next to a compressed one while in use."""
    paths = {str(file) for file in files}
    for path in sorted(paths):
        if not path.endswith(".zst") or path.removesuffix(".zst") not in paths:
            yield path


def _get_size(path: str) -> int:
    with suppress(OSError):
        return Path(path).stat().st_size
    return 0
