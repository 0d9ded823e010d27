"""One call of an agent, from its request to the end of the answer."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json, to_json

from assay.providers import Reply
from assay.types import CallPurpose, Message

from .dialects import Dialect
from .request_parts import RequestParts, write_finite_json

NO_TURNS: frozenset[CallPurpose] = frozenset({"title", "probe"})
"""Purposes of calls that do not count against a limit of turns."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(eq=False)
class RecordedCall:
    """A call while it is made, and afterwards its record. It contains no key."""

    number: int
    """Its position among the calls of the session."""

    dialect: Dialect
    request: RequestParts
    hide_secrets: Callable[[bytes], bytes]
    """Returns JSON without keys."""

    size_bytes: int
    """The size of the body as received."""

    headers: dict[str, str] = field(default_factory=dict)
    """Those that declare the agent's conversation."""

    seed: int | None = None
    """The sampling seed, unless the agent sends its own."""

    purpose: CallPurpose = "turn"
    streamed: bool = False
    repeats: "RecordedCall | None" = None
    """The call whose answer this retry got."""

    started_at: str = field(default_factory=_now)
    status: int | None = None
    latency_s: float | None = None
    first_byte_s: float | None = None
    answer: dict[str, Any] | None = None
    """In the API of the agent."""

    reply: Reply | None = None
    error: str | None = None
    is_free: bool = False
    """Whether it failed before the model worked on it."""

    is_retried: bool = False
    """Whether it failed, and a retry of it was a new call."""

    sampling: dict[str, Any] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    """Counts of the parts of the request that the model's API cannot represent, by kind."""

    done: asyncio.Event = field(default_factory=asyncio.Event)
    _started: float = field(default_factory=time.perf_counter)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the request arrived."""
        return time.perf_counter() - self._started

    @property
    def idle_s(self) -> float:
        """Seconds since the call ended; 0 while it is in flight."""
        return 0.0 if self.latency_s is None else self.elapsed_s - self.latency_s

    @property
    def is_turn(self) -> bool:
        """Whether the call counts against a limit of turns."""
        return self.purpose not in NO_TURNS

    @property
    def succeeded(self) -> bool:
        """Whether the whole answer is recorded."""
        return self.done.is_set() and self.error is None and self.answer is not None

    def note_first_byte(self) -> None:
        """Record the time until the first byte of the answer."""
        if self.first_byte_s is None:
            self.first_byte_s = self.elapsed_s

    def finish(self, answer: dict[str, Any], reply: Reply | None, *, status: int = 200) -> None:
        """Record a whole answer, without NaN and keys that a model or a tool has repeated."""
        written = to_json(answer)
        if (cleaned := write_finite_json(self.hide_secrets(written))) != written:
            answer = from_json(cleaned)
            if reply is not None:
                message = write_finite_json(self.hide_secrets(to_json(reply.message.to_dict())))
                reply = reply._replace(message=Message.from_json(message))
        self.status, self.answer, self.reply = status, answer, reply
        self.latency_s = self.elapsed_s
        self.done.set()

    def fail(self, error: str, *, status: int | None = None, is_free: bool = False) -> None:
        """Record the reason for a missing or incomplete answer. The first one counts."""
        if not self.done.is_set():
            self.status = status
            self.is_free = is_free and self.first_byte_s is None
            self.error = self.hide_secrets(error.encode()).decode("utf-8", "replace")
            self.latency_s = self.elapsed_s
            self.done.set()
