"""The client of assay's own environment protocol: one round trip for each step."""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from assay.errors import EnvironmentFault
from assay.types import Message, ToolSpec, Written

from ..environment import Step
from .http_client import TOKEN_HINT, Answer, Garbled, Link, Unanswered
from .protocol import (
    SESSION_HEADER,
    Opened,
    OpenRequest,
    Refusal,
    StepAnswer,
    StepRequest,
    problems_of,
)
from .retry_when_busy import Busy, patiently

_ATTEMPTS = 3
_FIRST_WAIT_S = 0.1
_CLOSE_S = 5.0
_PROXY_TROUBLE = frozenset({502, 503, 504})

Read = TypeVar("Read", bound=Written)


class OwnEnvironment:
    """One episode at a server of assay's own protocol.

    A request whose answer got lost is made again: the server does no step twice. A server without
    a free session is waited for. All else that goes wrong raises `EnvironmentFault`.
    """

    def __init__(self, link: Link, task: Mapping[str, Any] | None = None) -> None:
        self._link = link
        self._task = dict(task or {})
        self._opened: Opened | None = None
        self._steps = 0

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return () if self._opened is None else self._opened.tools

    def describe_session(self) -> dict[str, Any]:
        # Without its token: the id alone lets nobody act in it.
        session_id = None if self._opened is None else self._opened.session
        return self._link.describe_session("own", session_id)

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        if self._opened is not None or self._steps:
            raise EnvironmentFault("an environment is one episode", hint="make another")
        # An id of its own makes asking twice the same as asking once.
        asked = OpenRequest(seed=seed, task=self._task, episode_id=uuid.uuid4().hex)
        self._opened = await self._ask("POST", "/sessions", asked, Opened)
        return self._opened.observation

    async def step(self, action: Message) -> Step:
        asked = StepRequest(action=action, step_index=self._steps)
        done = await self._ask("POST", f"{self._path()}/step", asked, StepAnswer)
        if done.step_index != self._steps:
            raise Garbled(
                f"asked for step {self._steps}, the server answers step {done.step_index}",
                where=self._link.where,
            )
        self._steps += 1
        return done.step()

    async def close(self) -> None:
        """End the session. The server ends those by itself that it cannot be told about."""
        if self._opened is None:
            return
        path, headers = self._path(), self._headers()
        self._opened = None
        timeout_s = min(_CLOSE_S, self._link.timeout_s)
        try:
            url = self._link.at(path)
            answer = await self._link.ask("DELETE", url, headers=headers, timeout_s=timeout_s)
        finally:
            self._link.room.release()
        if answer.status not in (204, 404):
            raise _refused(answer)

    def _path(self) -> str:
        if self._opened is None:
            raise EnvironmentFault("the environment is not open", where=self._link.where)
        return f"/sessions/{self._opened.session}"

    def _headers(self) -> dict[str, str]:
        return {} if self._opened is None else {SESSION_HEADER: self._opened.token}

    async def _ask(self, method: str, path: str, asked: Written, model: type[Read]) -> Read:
        """One request: while the server is full made later, when its answer got lost made again."""
        url, body, headers = self._link.at(path), asked.to_json().encode(), self._headers()

        async def attempt() -> Read:
            answer = await self._link.ask(method, url, body=body, headers=headers)
            Busy.check(answer)
            return _understood(answer, model)

        return await patiently(self._link, lambda: _insistently(attempt))


async def _insistently(attempt: Callable[[], Awaitable[Read]]) -> Read:
    """What `attempt` gives, at last. Repeating it is safe: the server does nothing twice."""
    for failed in range(1, _ATTEMPTS):
        try:
            return await attempt()
        except (Unanswered, Garbled):
            # Spread by chance: episodes that failed together do not come back together.
            await asyncio.sleep(_FIRST_WAIT_S * 2**failed * random.random())
    try:
        return await attempt()
    except (Unanswered, Garbled) as fault:
        message = f"{fault.message} ({_ATTEMPTS} attempts)"
        raise type(fault)(message, where=fault.where, hint=fault.hint) from fault


def _understood(answer: Answer, model: type[Read]) -> Read:
    if answer.status not in (200, 201):
        raise _refused(answer)
    try:
        return model.from_json(answer.body)
    except ValueError as error:
        problem = problems_of(error)[0]
    raise Garbled(
        f"the answer is not of the protocol: {answer.shown(problem)}: {answer.excerpt}",
        where=answer.where,
    )


def _refused(answer: Answer) -> EnvironmentFault:
    """What a status other than success is told as, in the server's words where it has any."""
    try:
        problem = Refusal.from_json(answer.body).error
    except ValueError:
        # Not in the protocol's words: a proxy's page, or another kind of server.
        told_as = Unanswered if answer.status in _PROXY_TROUBLE else EnvironmentFault
        return told_as(f"HTTP {answer.status}: {answer.excerpt}", where=answer.where)
    hint = TOKEN_HINT if answer.status == 401 else problem.hint
    kind, said = answer.shown(problem.kind), answer.shown(problem.message, most=2000)
    return EnvironmentFault(
        f"HTTP {answer.status} ({kind}): {said}",
        where=answer.where,
        hint=None if hint is None else answer.shown(hint),
    )
