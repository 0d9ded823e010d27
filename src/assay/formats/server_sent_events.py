"""Server-sent events: the stream format of model APIs, both directions."""

import json
import re
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from assay.errors import WireError

from .conversion import make_storable

# An empty line: two line ends in a row, of which `\r\n` is one.
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r){2}")
# One event contains at most one answer, such as the last event of the Responses API.
_MAX_EVENT_BYTES = 64 * 1024 * 1024
# The longest answers with the log probabilities of each token have some tens of MB.
_MAX_STREAM_BYTES = 256 * 1024 * 1024
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
        # In pieces: joined with each chunk, a large event would be copied over and over.
        self._pieces: list[bytes] = []
        self._size = 0
        self._total = 0

    @property
    def rest(self) -> bytes:
        """The bytes after the last complete event."""
        return b"".join(self._pieces)

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """Return the events that the chunk completes.

        Raises `WireError` for a huge event, and for a stream that does not end.
        """
        self._total += len(chunk)
        if self._total > _MAX_STREAM_BYTES:
            raise WireError(f"the stream has more than {_MAX_STREAM_BYTES:,} bytes")
        events: list[StreamEvent] = []
        rest = chunk
        # The empty line may begin in the chunk before. Only here is it looked for: a search in
        # all pieces would read a large event over and over.
        seam = self._pieces[-1][-1:] + chunk if self._pieces else chunk
        has_return = b"\r" in seam
        if b"\n\n" in seam or (has_return and _EVENT_END.search(seam)):
            data = b"".join([*self._pieces, chunk]) if self._pieces else chunk
            self._pieces, self._size = [], 0
            # Split at once: a stream has thousands of events, many of them in one chunk.
            if has_return or b"\r" in data:
                start = 0
                for found in _EVENT_END.finditer(data):
                    events.append(_parse_event(data[start : found.end()]))
                    start = found.end()
                rest = data[start:]
            else:
                *pieces, rest = data.split(b"\n\n")
                events = [
                    StreamEvent(None, piece[6:], piece + b"\n\n")
                    if piece.startswith(b"data: ") and b"\n" not in piece
                    else _parse_event(piece + b"\n\n")
                    for piece in pieces
                ]
        if rest:
            self._pieces.append(rest)
            self._size += len(rest)
        if self._size > _MAX_EVENT_BYTES:
            raise WireError(f"an event of the stream has more than {_MAX_EVENT_BYTES:,} bytes")
        return events


def _parse_event(raw: bytes) -> StreamEvent:
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
