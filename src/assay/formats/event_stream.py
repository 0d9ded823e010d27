"""Server-sent events: the stream format of model APIs, both directions."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from assay.errors import WireError

from .conversion import make_storable

# One event contains at most one answer, such as the last event of the Responses API.
_MAX_EVENT_BYTES = 64 * 1024 * 1024
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which readers of a stream ignore."""


class StreamEvent(NamedTuple):
    """One event of a stream."""

    name: str | None
    data: bytes
    """Empty for a comment."""

    raw: bytes
    """Its bytes as received, with the empty line that ends it."""


class EventReader:
    """Splits the bytes of a stream into events, independent of how they arrive in chunks."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def rest(self) -> bytes:
        """The bytes after the last complete event."""
        return self._rest

    def feed(self, chunk: bytes) -> Iterator[StreamEvent]:
        """Yield the events that the chunk completes. Raises `WireError` for a huge event."""
        data = self._rest + chunk if self._rest else chunk
        start = 0
        while (found := _find_event_end(data, start)) is not None:
            raw = data[start:found]
            start = found
            yield _parse_event(raw)
        self._rest = data[start:]
        if len(self._rest) > _MAX_EVENT_BYTES:
            raise WireError(f"an event of the stream has more than {_MAX_EVENT_BYTES:,} bytes")


def _find_event_end(data: bytes, start: int) -> int | None:
    plain = data.find(b"\n\n", start)
    if b"\r" not in data:
        return None if plain < 0 else plain + 2
    windows = data.find(b"\r\n\r\n", start)
    ends = [end for end in (plain + 2, windows + 4) if end > 3]
    return min(ends, default=None)


def _parse_event(raw: bytes) -> StreamEvent:
    if raw.startswith(b"data: ") and raw.count(b"\n") == 2:
        return StreamEvent(None, raw[6:-2], raw)  # nearly every event of chat completions
    name: str | None = None
    lines: list[bytes] = []
    for line in raw.splitlines():
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.strip().decode("utf-8", "replace")
    return StreamEvent(name, b"\n".join(lines), raw)


def write_event(data: object, *, name: str | None = None) -> bytes:
    """Return one event: a string as it is, any other value as JSON."""
    text = data.encode() if isinstance(data, str) else to_json(data)
    head = b"" if name is None else b"event: %s\n" % name.encode()
    return b"%sdata: %s\n\n" % (head, text)


def parse_event_json(data: bytes) -> dict[str, Any]:
    """Return the object of an event. Raises `WireError` for anything else."""
    try:
        value = from_json(data)
    except ValueError:
        # A lone surrogate, where a model was truncated inside an emoji.
        try:
            value = make_storable(json.loads(data))
        except (ValueError, RecursionError):
            raise WireError("an event of the stream is not JSON") from None
    if not isinstance(value, dict):
        raise WireError("an event of the stream is not a JSON object")
    return value
