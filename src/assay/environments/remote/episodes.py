"""The sessions of an environment server: an environment and its recorded steps each."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from assay.errors import AssayError, ConfigError, EnvironmentFault
from assay.types import Message, describe_error

from ..environment import (
    Environment,
    Step,
    check_items,
    check_step,
    to_plain_info,
    to_plain_json,
)

_ENVIRONMENT_CLOSE_S = 10.0
_RETRY_AFTER_S = 1.0

MakeEnvironment = Callable[[Mapping[str, Any]], Environment]
"""Makes a fresh environment for the task of a session."""


class SessionRefused(AssayError):
    """A request to a session is refused."""

    kind: ClassVar[str] = "refused"


class AtCapacity(SessionRefused):
    """All sessions are in use. Retry after `retry_after_s`."""

    kind = "capacity"

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        retry_after_s: float = _RETRY_AFTER_S,
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[object, ...]:
        rebuild, arguments = super().__reduce__()
        return (rebuild, arguments, {"retry_after_s": self.retry_after_s})


class NoSuchSession(SessionRefused):
    """The session does not exist, was closed, or expired."""

    kind = "no_session"


class OutOfOrder(SessionRefused):
    """The index of a step does not follow the previous one."""

    kind = "out_of_order"


class EpisodeOver(SessionRefused):
    """A step was requested after the end of the episode."""

    kind = "over"


class BadTask(SessionRefused):
    """No environment can be made for the task of a request."""

    kind = "bad_task"


@dataclass(frozen=True, slots=True)
class StoredStep:
    """A completed step, kept to answer a retry of its request."""

    step_index: int
    action: Message
    step: Step


@dataclass(eq=False)
class Session:
    """One episode of one caller."""

    id: str
    token: str = field(repr=False)
    """The secret that requests must contain besides the id."""

    environment: Environment
    opening: tuple[Message, ...]
    seed: int | None
    task: Mapping[str, Any]
    episode_id: str | None
    created: float
    last_used: float
    steps: list[StoredStep] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    fault: EnvironmentFault | None = None
    """The fault of the environment, after which all steps are refused."""

    closed: bool = False
    _running: "asyncio.Future[Step] | None" = field(default=None, repr=False)

    @property
    def over(self) -> bool:
        """Whether the last step ended the episode."""
        if not self.steps:
            return False
        last = self.steps[-1].step
        return last.terminated or last.truncated or last.ended_by_agent

    async def answer(self, action: Message) -> Step:
        """Take a step. Raises `EnvironmentFault` for any error of the environment."""
        self._running = asyncio.ensure_future(self.environment.step(action))
        try:
            # As in a rollout without a server: values of numpy and plain dictionaries are allowed.
            step = check_step(await self._running)
            return replace(
                step,
                info=to_plain_info(step.info),
                observation=to_plain_json(step.observation, "Step.observation"),
            )
        except asyncio.CancelledError:
            # Cancelled by `end`, or with the request: only the first is an answer to the caller.
            if not self.closed:
                raise
            raise _build_session_error(self.id, "was closed during this step") from None
        except Exception as error:
            self.fault = _to_environment_fault(error, f"step {len(self.steps)}")
            raise self.fault from error
        finally:
            self._running = None

    async def end(self) -> None:
        """Close the environment, even during a step."""
        self.closed = True
        if self._running is not None:
            self._running.cancel()
        async with asyncio.timeout(_ENVIRONMENT_CLOSE_S):
            await self.environment.close()


class SessionPool:
    """Sessions up to a capacity. Idle sessions are closed; retried steps are not repeated.

    Inside `async with`, a background task closes idle sessions; leaving it closes all of them. A
    step that takes longer than `idle_s` counts as idle.
    """

    def __init__(
        self,
        make: MakeEnvironment,
        *,
        capacity: int = 100,
        idle_s: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if capacity < 1:
            raise ConfigError(
                f"`capacity` is {capacity} sessions, not at least 1", hint="pass 1 or more"
            )
        if not idle_s > 0:
            raise ConfigError(
                f"`idle_s` is {idle_s}, not a positive number", hint="pass a time above 0"
            )
        self.capacity = capacity
        self.idle_s = idle_s
        self.close_errors: list[str] = []
        """Errors while closing environments, newest last; at most the last 100."""

        self._make = make
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._episodes: dict[str, asyncio.Future[Session]] = {}
        self._opening = 0
        self._sweeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """The number of sessions, including those that are being opened."""
        return len(self._sessions) + self._opening

    async def __aenter__(self) -> Self:
        self._sweeper = asyncio.create_task(self._sweep_forever())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        await asyncio.gather(*map(self._end, list(self._sessions.values())))

    async def open(
        self,
        *,
        seed: int | None = None,
        task: Mapping[str, Any] | None = None,
        episode_id: str | None = None,
    ) -> Session:
        """Make an environment, apply the seed and keep it as a session.

        Requests with the same `episode_id` before the first step return the same session, so that
        a caller can retry a request whose answer was lost.
        """
        task = task or {}
        if episode_id not in self._episodes and len(self) >= self.capacity:
            await self.sweep()
            if len(self) >= self.capacity:
                raise AtCapacity(
                    f"all {self.capacity} sessions are in use",
                    hint=f"retry in {_RETRY_AFTER_S:g} s, or serve with a larger capacity",
                )
        # Looked up after the await: a retry may have opened the same episode in the meantime.
        if episode_id is not None and (known := self._episodes.get(episode_id)) is not None:
            # Shielded: a caller that gives up must not cancel the opening for the others.
            session = await asyncio.shield(known)
            if session.steps or session.seed != seed or dict(session.task) != dict(task):
                raise OutOfOrder(
                    f"the episode {session.episode_id!r} has already started",
                    hint="give each episode a unique id",
                )
            return session
        self._opening += 1
        promise: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
        if episode_id is not None:
            self._episodes[episode_id] = promise
        try:
            session = await self._open_session(seed, task, episode_id)
        except BaseException as error:
            if episode_id is not None:
                del self._episodes[episode_id]
            if isinstance(error, Exception):
                promise.set_exception(error)
                # Mark it as retrieved: asyncio logs exceptions of futures that nothing awaits.
                promise.exception()
            else:
                promise.cancel()
            raise
        finally:
            self._opening -= 1
        self._sessions[session.id] = session
        promise.set_result(session)
        return session

    def find(self, session_id: str) -> Session:
        """Return the session with this id, and mark it as used. Raises `NoSuchSession`."""
        session = self._sessions.get(session_id)
        if session is None:
            raise _build_session_error(
                session_id, f"is not open; sessions idle for {self.idle_s:g} s are closed"
            )
        session.last_used = self._clock()
        return session

    async def step(self, session_id: str, action: Message, step_index: int) -> StoredStep:
        """Take a step, or return the stored one if this is a retry.

        Raises `OutOfOrder` for a gap, and for another action at the index of a stored step.
        """
        session = self.find(session_id)
        # One step at a time: a retry waits for the step that it repeats.
        async with session.lock:
            if session.closed:
                raise _build_session_error(session_id, "was closed before this step")
            following = f"the next step is {len(session.steps)}"
            if step_index < len(session.steps):
                stored = session.steps[step_index]
                if stored.action == action:
                    return stored
                raise OutOfOrder(
                    f"step {step_index} was already taken, with another action", hint=following
                )
            if session.fault is not None:
                raise _to_environment_fault(session.fault, "an earlier step")
            if session.over:
                raise EpisodeOver("the episode is over", hint="open another session")
            if step_index != len(session.steps):
                problem = (
                    f"does not follow step {len(session.steps) - 1}"
                    if session.steps
                    else "cannot be the first"
                )
                raise OutOfOrder(f"step {step_index} {problem}", hint=following)
            stored = StoredStep(step_index, action, await session.answer(action))
            session.steps.append(stored)
            session.last_used = self._clock()
            return stored

    async def close(self, session_id: str) -> None:
        """End the session and close its environment. Raises `NoSuchSession`.

        The capacity is released immediately. Errors while closing are kept in `close_errors`.
        """
        await self._end(self.find(session_id))

    async def sweep(self) -> int:
        """Close idle sessions. Return their number."""
        limit = self._clock() - self.idle_s
        idle = [session for session in self._sessions.values() if session.last_used <= limit]
        await asyncio.gather(*map(self._end, idle))
        return len(idle)

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(min(self.idle_s / 4, 30.0))
            await self.sweep()

    async def _open_session(
        self, seed: int | None, task: Mapping[str, Any], episode_id: str | None
    ) -> Session:
        try:
            environment = self._make(task)
        except ConfigError as error:
            # The task of the caller is at fault, not the environment: 422 instead of 500.
            raise BadTask(error.message, where=error.where, hint=error.hint) from error
        except Exception as error:
            raise _to_environment_fault(error, "making the environment") from error
        try:
            opening = tuple(check_items(Message, await environment.open(seed=seed), "open"))
        except BaseException as error:
            # Also after a cancellation: the environment may already have resources.
            await self._await_close(environment.close())
            if isinstance(error, Exception):
                raise _to_environment_fault(error, "opening the environment") from error
            raise
        now = self._clock()
        return Session(
            id=secrets.token_urlsafe(16),
            token=secrets.token_urlsafe(24),
            environment=environment,
            opening=opening,
            seed=seed,
            task=dict(task),
            episode_id=episode_id,
            created=now,
            last_used=now,
        )

    async def _end(self, session: Session) -> None:
        # Removed before the first await, so that a second call returns at once.
        if self._sessions.pop(session.id, None) is None:
            return
        if session.episode_id is not None:
            self._episodes.pop(session.episode_id, None)
        await self._await_close(session.end())

    async def _await_close(self, closing: Any) -> None:
        """Await the closing of an environment. The episode stays valid if it fails."""
        try:
            await closing
        except Exception as error:
            self.close_errors = [*self.close_errors[-99:], describe_error(error)]


def _build_session_error(session_id: str, problem: str) -> NoSuchSession:
    # Only a prefix of the id: a log must not give access to the session.
    return NoSuchSession(f"session {session_id[:6]!r}… {problem}", hint="open another session")


def _to_environment_fault(error: Exception, where: str) -> EnvironmentFault:
    if isinstance(error, AssayError):
        return EnvironmentFault(error.message, where=error.where or where, hint=error.hint)
    return EnvironmentFault(describe_error(error), where=where)
