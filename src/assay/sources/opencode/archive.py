"""What every layout of stored sessions looks like to the code that makes samples of them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic_core import from_json

from assay.errors import BadRow
from assay.models.wire.conversion import storable

LARGEST_FILE = 256 * 1024 * 1024
"""One JSON file or table cell. Attached images make some of them large; none is this large."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a session is chosen by, without its messages."""

    id: str
    title: str = ""
    parent_id: str | None = None
    created: int | None = None
    """Milliseconds since 1970, as OpenCode counts."""

    updated: int | None = None
    project: str | None = None
    directory: str | None = None


@dataclass(frozen=True)
class Unreadable:
    """A session that is there but cannot be read, and why."""

    session_id: str
    problem: BadRow


@dataclass(frozen=True)
class StoredMessage:
    """A message and its parts, as `opencode export` shows them."""

    info: dict[str, Any]
    parts: list[dict[str, Any]]


@dataclass(frozen=True)
class StoredSession:
    """A session as `opencode export` shows it, with its todo list."""

    info: dict[str, Any]
    messages: list[StoredMessage]
    todo: list[Any] = field(default_factory=list)
    stray_parts: list[dict[str, Any]] = field(default_factory=list)
    """Parts of messages that are not there."""


class Archive(Protocol):
    """Stored sessions of one layout. Nothing is ever written to it."""

    where: str
    notes: list[str]
    """What a reader should know about what was not read."""

    def heads(self) -> Iterator[Head | Unreadable]:
        """Every session, oldest first."""

    def children_of(self, session_id: str) -> list[str]:
        """The sessions of the subagents that a session started, oldest first."""

    def has(self, session_id: str) -> bool: ...

    def load(self, session_id: str) -> StoredSession:
        """The whole session. Raises `BadRow` when any part of it cannot be read."""

    def close(self) -> None: ...


def parse_json(text: str | bytes, *, where: str) -> Any:
    """A JSON value, or `BadRow`. Half a surrogate pair, as in a cut output, becomes U+FFFD."""
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        pass
    try:
        return storable(json.loads(text, parse_constant=_refuse))
    except (ValueError, RecursionError) as error:
        raise BadRow(f"is not JSON: {error}", where=where) from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def parse_object(text: str | bytes, *, where: str) -> dict[str, Any]:
    """A JSON object, or `BadRow`."""
    value = parse_json(text, where=where)
    if not isinstance(value, dict):
        raise BadRow(f"is a {type(value).__name__}, not an object", where=where)
    return value


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, or `BadRow`."""
    return parse_object(read_bytes(path), where=str(path))


def read_bytes(path: Path) -> bytes:
    """A file's content, or `BadRow` when it cannot be read or is too large to be true."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise BadRow(f"cannot be read: {error.strerror}", where=str(path)) from None
    if len(data) > LARGEST_FILE:
        raise BadRow(f"is larger than {LARGEST_FILE} bytes", where=str(path))
    return data


def head_of(info: dict[str, Any], session_id: str) -> Head:
    """The head of a session with this info. What has a wrong type is unknown."""
    time = info.get("time")
    time = time if isinstance(time, dict) else {}
    return Head(
        id=session_id,
        title=_text(info.get("title")) or "",
        parent_id=_text(info.get("parentID")),
        created=millis(time.get("created")),
        updated=millis(time.get("updated")),
        project=_text(info.get("projectID")),
        directory=_text(info.get("directory")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def millis(value: object) -> int | None:
    """A point in time as OpenCode writes it, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Year 9999: later ones cannot be written as a date.
    return int(value) if 0 <= value < 253_402_300_800_000 else None


def in_order(messages: list[StoredMessage]) -> list[StoredMessage]:
    """Messages by time, then id. Ids alone run backwards once in 795 days, when they wrap."""
    return sorted(messages, key=_moment)


def _moment(message: StoredMessage) -> tuple[int, str]:
    time = message.info.get("time")
    created = millis(time.get("created")) if isinstance(time, dict) else None
    return (created or 0, str(message.info.get("id", "")))
