"""Episodes that MCP clients name themselves, each with a session once it is looked at."""

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json, to_json

from assay.types import Message, ToolCall

from ..environment import Step
from .episodes import AtCapacity, NoSuchSession, Session, SessionPool

_MAX_EPISODE_NAME_CHARS = 200
_NAMES_PER_SESSION = 100
_MAX_UNOPENED_S = 120.0
MAX_WAITING_BYTES = 32 * 1024 * 1024


@dataclass(eq=False)
class Episode:
    """One name of a client's. Its session is opened when something of it is first asked for."""

    sessions: SessionPool
    seed: int | None = None
    task: bytes = b"{}"
    """As JSON: parsed values take up to thirty times the memory of their text."""

    used: float = 0.0
    _session: Session | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _calls: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def is_open(self) -> bool:
        """Whether it holds a session that has not expired."""
        return self._session is not None and not self._session.closed

    async def session(self) -> Session:
        """Its session. Raises `NoSuchSession` if that has expired: an episode has one only."""
        async with self._lock:
            return await self._open_session()

    async def step(self, name: str, arguments: Mapping[str, Any]) -> tuple[Message, ...]:
        """Let the environment answer one tool call."""
        async with self._lock:
            session = await self._open_session()
            call = ToolCall(id=f"call_{next(self._calls)}", name=name, arguments=dict(arguments))
            action = Message(role="assistant", tool_calls=(call,))
            stored = await self.sessions.step(session.id, action, len(session.steps))
        return stored.step.replies

    def steps(self) -> list[Step]:
        """What was done so far. Raises the fault that broke the environment."""
        if self._session is None:
            return []
        session = self.sessions.find(self._session.id)
        if session.fault is not None:
            raise session.fault
        return [stored.step for stored in session.steps]

    async def close(self) -> None:
        """End its session, also in the middle of a step."""
        if self._session is None:
            async with self._lock:
                pass  # it may be opening
        # Not under the lock: a step that hangs holds it, and is cancelled by this.
        if self._session is not None and self.is_open:
            await self.sessions.close(self._session.id)

    async def _open_session(self) -> Session:
        if self._session is None:
            self._session = await self.sessions.open(seed=self.seed, task=from_json(self.task))
        return self.sessions.find(self._session.id)


class Episodes:
    """All names in use, and the lines of clients of the handshake era.

    A name costs little until its session is opened: of the tasks that come with names, all
    without a session together hold at most `MAX_WAITING_BYTES`. Such names are forgotten when
    they were not used for as long as a session may idle, at most two minutes.
    """

    def __init__(self, sessions: SessionPool, clock: Callable[[], float] = time.monotonic) -> None:
        self._sessions = sessions
        self._clock = clock
        self._named: dict[str, Episode] = {}
        self._lines: dict[str, tuple[str, float]] = {}
        """From the id of a line to the name of its episode, and when it was last used."""

        self._bytes = 0
        """Of all tasks since they were last counted: never less than there is."""

    def named(self, name: str, extra: Mapping[str, Any] | None = None) -> Episode:
        """The episode of this name, begun if there is none."""
        episode = self._named.get(name)
        if episode is None:
            episode = self._create_episode(extra or {})
            self._make_room(name, len(episode.task))
            self._named[name] = episode
        episode.used = self._clock()
        return episode

    def known(self, name: str) -> Episode:
        """The episode of this name. Raises `NoSuchSession` if there is none."""
        if name not in self._named:
            raise NoSuchSession(f"Session {name[:6]}… not found", hint="ask for its initial state")
        return self.named(name)

    async def reset(
        self, name: str, seed: int | None, task: Mapping[str, Any] | None = None
    ) -> None:
        """Begin the episode anew, with its old task unless there is another.

        The seed is there before its environment is.
        """
        old = self._named.get(name)
        if task is not None or old is None:
            begun = Episode(self._sessions, seed, to_json(task or {}))
        else:
            begun = Episode(self._sessions, seed, old.task)
        self._make_room(name, len(begun.task))  # first: a refusal leaves the old one as it is
        if old is not None:
            self._named.pop(name, None)
            await old.close()
        begun.used = self._clock()
        self._named[name] = begun

    async def close(self, name: str) -> None:
        """End the episode and forget its name. Raises `NoSuchSession` if there is none."""
        episode = self.known(name)
        del self._named[name]
        await episode.close()

    def start_transport(self, extra: Mapping[str, Any]) -> str:
        """A line for a client of the handshake era; its id."""
        line = secrets.token_hex(16)
        name = extra.get("session_id")
        if not isinstance(name, str) or not name:
            name = line
        self._make_room(name, 0)
        self.named(name, extra)
        self._lines[line] = (name, self._clock())
        return line

    def find_by_transport(self, line: str) -> Episode | None:
        """The episode of a line; None if there is no such line, or its episode was closed."""
        name, _ = self._lines.get(line, ("", 0.0))
        if name not in self._named:
            return None
        self._lines[line] = (name, self._clock())
        return self.named(name)

    async def end_transport(self, line: str) -> bool:
        """End a line and its episode; False if there is no such line."""
        name, _ = self._lines.pop(line, ("", 0.0))
        if name in self._named:
            await self.close(name)
        return bool(name)

    def _create_episode(self, extra: Mapping[str, Any]) -> Episode:
        seed, task = extra.get("seed"), extra.get("config")
        task = task if isinstance(task, dict) else {}
        seed = seed if type(seed) is int else None
        return Episode(self._sessions, seed, to_json(task))

    def _make_room(self, name: str, size: int) -> None:
        """Forget what is idle. Raises `AtCapacity` if that does not help."""
        if len(name) > _MAX_EPISODE_NAME_CHARS:
            raise NoSuchSession(f"a name of {len(name)} characters is too long")
        most = _NAMES_PER_SESSION * self._sessions.capacity
        self._bytes += size
        if max(len(self._named), len(self._lines)) < most and self._bytes <= MAX_WAITING_BYTES:
            return
        limit = self._clock() - min(self._sessions.idle_s, _MAX_UNOPENED_S)
        self._named = {
            name: episode
            for name, episode in self._named.items()
            if episode.is_open or episode.used > limit
        }
        self._lines = {line: entry for line, entry in self._lines.items() if entry[1] > limit}
        waiting = sum(len(each.task) for each in self._named.values() if not each.is_open)
        self._bytes = waiting
        if max(len(self._named), len(self._lines)) >= most:
            raise AtCapacity(f"{most} episodes are named already", retry_after_s=1.0)
        if waiting + size > MAX_WAITING_BYTES:
            raise AtCapacity("the tasks of episodes without a session are many", retry_after_s=1.0)
        self._bytes += size
