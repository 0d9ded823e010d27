"""The client of assay's own environment protocol: one round trip for each step."""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from assay.errors import EnvironmentFault
from assay.types import JsonModel, Message, ToolSpec

from ..environment import Step
from .http_client import (
    TOKEN_HINT,
    ConnectionFailed,
    EnvironmentClient,
    InvalidResponse,
    ServerResponse,
)
from .protocol import (
    SESSION_HEADER,
    ErrorResponse,
    OpenRequest,
    OpenResponse,
    StepRequest,
    StepResponse,
    list_problems,
)
from .retry_when_busy import ServerBusy, retry_while_busy

_ATTEMPTS = 3
_FIRST_RETRY_S = 0.1
_SESSION_CLOSE_S = 5.0
_PROXY_ERRORS = frozenset({502, 503, 504})

ResponseModel = TypeVar("ResponseModel", bound=JsonModel)


class NativeEnvironment:
    """One episode at a server of assay's own protocol.

    A request whose answer got lost is made again: the server does no step twice. A server without
    a free session is waited for. All else that goes wrong raises `EnvironmentFault`.
    """

    def __init__(self, link: EnvironmentClient, task: Mapping[str, Any] | None = None) -> None:
        self._link = link
        self._task = dict(task or {})
        self._opened: OpenResponse | None = None
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
        self._opened = await self._request("POST", "/sessions", asked, OpenResponse)
        return self._opened.observation

    async def step(self, action: Message) -> Step:
        asked = StepRequest(action=action, step_index=self._steps)
        done = await self._request("POST", f"{self._build_path()}/step", asked, StepResponse)
        if done.step_index != self._steps:
            raise InvalidResponse(
                f"asked for step {self._steps}, the server answers step {done.step_index}",
                where=self._link.where,
            )
        self._steps += 1
        return done.step()

    async def close(self) -> None:
        """End the session. The server ends those by itself that it cannot be told about."""
        if self._opened is None:
            return
        path, headers = self._build_path(), self._build_headers()
        self._opened = None
        timeout_s = min(_SESSION_CLOSE_S, self._link.timeout_s)
        try:
            url = self._link.at(path)
            answer = await self._link.ask("DELETE", url, headers=headers, timeout_s=timeout_s)
        finally:
            self._link.room.release()
        if answer.status not in (204, 404):
            raise _build_native_fault(answer)

    def _build_path(self) -> str:
        if self._opened is None:
            raise EnvironmentFault("the environment is not open", where=self._link.where)
        return f"/sessions/{self._opened.session}"

    def _build_headers(self) -> dict[str, str]:
        return {} if self._opened is None else {SESSION_HEADER: self._opened.token}

    async def _request(
        self, method: str, path: str, asked: JsonModel, model: type[ResponseModel]
    ) -> ResponseModel:
        """One request: while the server is full made later, when its answer got lost made again."""
        url, body, headers = self._link.at(path), asked.to_json().encode(), self._build_headers()

        async def attempt() -> ResponseModel:
            answer = await self._link.ask(method, url, body=body, headers=headers)
            ServerBusy.check(answer)
            return _parse_response_model(answer, model)

        return await retry_while_busy(self._link, lambda: _retry_lost_response(attempt))


async def _retry_lost_response(attempt: Callable[[], Awaitable[ResponseModel]]) -> ResponseModel:
    """What `attempt` gives, at last. Repeating it is safe: the server does nothing twice."""
    for failed in range(1, _ATTEMPTS):
        try:
            return await attempt()
        except (ConnectionFailed, InvalidResponse):
            # Spread by chance: episodes that failed together do not come back together.
            await asyncio.sleep(_FIRST_RETRY_S * 2**failed * random.random())
    try:
        return await attempt()
    except (ConnectionFailed, InvalidResponse) as fault:
        message = f"{fault.message} ({_ATTEMPTS} attempts)"
        raise type(fault)(message, where=fault.where, hint=fault.hint) from fault


def _parse_response_model(answer: ServerResponse, model: type[ResponseModel]) -> ResponseModel:
    if answer.status not in (200, 201):
        raise _build_native_fault(answer)
    try:
        return model.from_json(answer.body)
    except ValueError as error:
        problem = list_problems(error)[0]
    raise InvalidResponse(
        f"the answer is not of the protocol: {answer.shown(problem)}: {answer.excerpt}",
        where=answer.where,
    )


def _build_native_fault(answer: ServerResponse) -> EnvironmentFault:
    """What a status other than success is told as, in the server's words where it has any."""
    try:
        problem = ErrorResponse.from_json(answer.body).error
    except ValueError:
        # Not in the protocol's words: a proxy's page, or another kind of server.
        told_as = ConnectionFailed if answer.status in _PROXY_ERRORS else EnvironmentFault
        return told_as(f"HTTP {answer.status}: {answer.excerpt}", where=answer.where)
    hint = TOKEN_HINT if answer.status == 401 else problem.hint
    kind, said = answer.shown(problem.kind), answer.shown(problem.message, most=2000)
    return EnvironmentFault(
        f"HTTP {answer.status} ({kind}): {said}",
        where=answer.where,
        hint=None if hint is None else answer.shown(hint),
    )
