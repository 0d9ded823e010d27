"""Episodes that MCP clients name, each with a session that is opened on first use."""

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
# A name costs nothing but its task, so that the memory of tasks needs a limit of its own.
MAX_WAITING_BYTES = 32 * 1024 * 1024


@dataclass(eq=False)
class Episode:
    """The episode of one name. Its session is opened by the first request that needs it."""

    sessions: SessionPool
    seed: int | None = None
    task: bytes = b"{}"
    """As JSON text: parsed values take up to thirty times the memory."""

    used: float = 0.0
    _session: Session | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _calls: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def is_open(self) -> bool:
        """Whether the episode has a session that has not expired."""
        return self._session is not None and not self._session.closed

    @property
    def is_in_use(self) -> bool:
        """Whether the episode has a session, or a request is opening it."""
        return self.is_open or self._lock.locked()

    async def session(self) -> Session:
        """Return the session. Raises `NoSuchSession` if it expired: it is never opened twice."""
        async with self._lock:
            return await self._open_session()

    async def step(self, name: str, arguments: Mapping[str, Any]) -> tuple[Message, ...]:
        """Take a step with one tool call. Return the replies."""
        async with self._lock:
            session = await self._open_session()
            call = ToolCall(id=f"call_{next(self._calls)}", name=name, arguments=dict(arguments))
            action = Message(role="assistant", tool_calls=(call,))
            stored = await self.sessions.step(session.id, action, len(session.steps))
        return stored.step.replies

    def steps(self) -> list[Step]:
        """Return the steps so far. Raises the fault of the environment if there is one."""
        if self._session is None:
            return []
        session = self.sessions.find(self._session.id)
        if session.fault is not None:
            raise session.fault
        return [stored.step for stored in session.steps]

    async def replace(self, old: "Episode") -> None:
        """End another episode. Requests to this one wait until its session is closed."""
        async with self._lock:
            await old.close()

    async def close(self) -> None:
        """End the session, even during a step."""
        if self._session is None:
            async with self._lock:
                pass  # it may be opening
        # Without the lock: a step that hangs has acquired it, and is cancelled here.
        if self._session is not None and self.is_open:
            await self.sessions.close(self._session.id)

    async def _open_session(self) -> Session:
        if self._session is None:
            self._session = await self.sessions.open(seed=self.seed, task=from_json(self.task))
        return self.sessions.find(self._session.id)


class Episodes:
    """All named episodes, and the transports of clients of the handshake era.

    Tasks of episodes without a session take at most `MAX_WAITING_BYTES` together. Such episodes
    are dropped after the idle time of a session, at most two minutes.
    """

    def __init__(self, sessions: SessionPool, clock: Callable[[], float] = time.monotonic) -> None:
        self._sessions = sessions
        self._clock = clock
        self._named: dict[str, Episode] = {}
        self._transports: dict[str, tuple[str, float]] = {}
        """The name of the episode and the time of the last use by transport id."""

        self._bytes = 0
        """An upper bound of the size of all tasks, corrected when it reaches the limit."""

    def get_or_create(self, name: str, extra: Mapping[str, Any] | None = None) -> Episode:
        """Return the episode of this name, created if necessary."""
        episode = self._named.get(name)
        if episode is None:
            extra = extra or {}
            seed, task = extra.get("seed"), extra.get("config")
            # From a client: values of other types are ignored rather than refused.
            episode = Episode(
                self._sessions,
                seed if type(seed) is int else None,
                to_json(task if isinstance(task, dict) else {}),
            )
            self._make_room(name, len(episode.task))
            self._named[name] = episode
        episode.used = self._clock()
        return episode

    def get_existing(self, name: str) -> Episode:
        """Return the episode of this name. Raises `NoSuchSession` if it does not exist."""
        if name not in self._named:
            raise NoSuchSession(
                f"Session {name[:6]}… not found", hint="request its initial state first"
            )
        return self.get_or_create(name)

    async def reset(
        self, name: str, seed: int | None, task: Mapping[str, Any] | None = None
    ) -> None:
        """Restart the episode, with its old task unless another one is given.

        The seed is set before the environment is made.
        """
        old = self._named.get(name)
        if task is not None or old is None:
            restarted = Episode(self._sessions, seed, to_json(task or {}))
        else:
            restarted = Episode(self._sessions, seed, old.task)
        # Before closing: a refusal must leave the old episode unchanged.
        self._make_room(name, len(restarted.task))
        restarted.used = self._clock()
        # Also before closing: a request that arrives meanwhile must not create an episode of this
        # name, whose session nothing would close.
        self._named[name] = restarted
        if old is not None:
            await restarted.replace(old)

    async def close(self, name: str) -> None:
        """End the episode and drop its name. Raises `NoSuchSession` if it does not exist."""
        episode = self.get_existing(name)
        del self._named[name]
        await episode.close()

    def start_transport(self, extra: Mapping[str, Any]) -> str:
        """Open a transport for a client of the handshake era. Return its id."""
        transport = secrets.token_hex(16)
        name = extra.get("session_id")
        if not isinstance(name, str) or not name:
            name = transport
        self._make_room(name, 0)
        self.get_or_create(name, extra)
        self._transports[transport] = (name, self._clock())
        return transport

    def find_by_transport(self, transport: str) -> Episode | None:
        """Return the episode of a transport, or None if either does not exist."""
        name, _ = self._transports.get(transport, ("", 0.0))
        if name not in self._named:
            return None
        self._transports[transport] = (name, self._clock())
        return self.get_or_create(name)

    async def end_transport(self, transport: str) -> bool:
        """End a transport and its episode. Return False if it does not exist."""
        name, _ = self._transports.pop(transport, ("", 0.0))
        if name in self._named:
            await self.close(name)
        return bool(name)

    def _make_room(self, name: str, size: int) -> None:
        """Drop idle names if the limits are reached. Raises `AtCapacity` if that is not enough."""
        if len(name) > _MAX_EPISODE_NAME_CHARS:
            raise NoSuchSession(
                f"the episode name has {len(name)} characters, over {_MAX_EPISODE_NAME_CHARS}"
            )
        most = _NAMES_PER_SESSION * self._sessions.capacity
        self._bytes += size
        if max(len(self._named), len(self._transports)) < most and self._bytes <= MAX_WAITING_BYTES:
            return
        limit = self._clock() - min(self._sessions.idle_s, _MAX_UNOPENED_S)
        self._named = {
            name: episode
            for name, episode in self._named.items()
            if episode.is_in_use or episode.used > limit
        }
        self._transports = {
            transport: entry for transport, entry in self._transports.items() if entry[1] > limit
        }
        waiting = sum(len(each.task) for each in self._named.values() if not each.is_open)
        self._bytes = waiting
        if max(len(self._named), len(self._transports)) >= most:
            raise AtCapacity(f"the server already has {most} named episodes", retry_after_s=1.0)
        if waiting + size > MAX_WAITING_BYTES:
            raise AtCapacity(
                "the tasks of episodes without a session take too much memory", retry_after_s=1.0
            )
        self._bytes += size
