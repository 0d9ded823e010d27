"""The client of the native environment protocol: one round trip per step."""

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
    ServerBusy,
    ServerResponse,
    retry_while_busy,
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

_ATTEMPTS = 3
_FIRST_RETRY_S = 0.1
_SESSION_CLOSE_S = 5.0
# Gateways answer these while a server restarts, so that the request is retried.
_PROXY_ERRORS = frozenset({502, 503, 504})

ResponseModel = TypeVar("ResponseModel", bound=JsonModel)


class NativeEnvironment:
    """One episode at a server of the native protocol.

    Requests with a lost answer are retried: the server takes no step twice. Without a free session
    the episode queues. All other errors raise `EnvironmentFault`.
    """

    def __init__(self, client: EnvironmentClient, task: Mapping[str, Any] | None = None) -> None:
        self._client = client
        self._task = dict(task or {})
        self._opened: OpenResponse | None = None
        self._steps = 0

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return () if self._opened is None else self._opened.tools

    def describe_session(self) -> dict[str, Any]:
        # Without the session token: the id alone gives no access.
        session_id = None if self._opened is None else self._opened.session
        return self._client.describe_session("own", session_id)

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        if self._opened is not None or self._steps:
            raise EnvironmentFault(
                "the environment is single-use and was already opened", hint="make another one"
            )
        # The id makes the request idempotent, so that it can be retried.
        request = OpenRequest(seed=seed, task=self._task, episode_id=uuid.uuid4().hex)
        self._opened = await self._request("/sessions", request, OpenResponse)
        return self._opened.observation

    async def step(self, action: Message) -> Step:
        request = StepRequest(action=action, step_index=self._steps)
        done = await self._request(f"{self._path}/step", request, StepResponse)
        if done.step_index != self._steps:
            raise InvalidResponse(
                f"the server answered step {done.step_index} instead of step {self._steps}",
                where=self._client.where,
            )
        self._steps += 1
        return done.step()

    async def close(self) -> None:
        """End the session. If this fails, the server ends it after its idle time."""
        if self._opened is None:
            return
        url, headers = self._client.at(self._path), self._headers
        self._opened = None
        timeout_s = min(_SESSION_CLOSE_S, self._client.timeout_s)
        try:
            answer = await self._client.ask("DELETE", url, headers=headers, timeout_s=timeout_s)
        finally:
            self._client.queue.release()
        # 404: the session has already expired, which is as good as closed.
        if answer.status not in (204, 404):
            raise _build_native_fault(answer)

    @property
    def _path(self) -> str:
        if self._opened is None:
            raise EnvironmentFault("the environment is not open", where=self._client.where)
        return f"/sessions/{self._opened.session}"

    @property
    def _headers(self) -> dict[str, str]:
        return {} if self._opened is None else {SESSION_HEADER: self._opened.token}

    async def _request(
        self, path: str, request: JsonModel, model: type[ResponseModel]
    ) -> ResponseModel:
        """Post a request; queue while the server is full, and retry lost answers."""
        url, body, headers = self._client.at(path), request.to_json().encode(), self._headers

        async def attempt() -> ResponseModel:
            answer = await self._client.ask("POST", url, body=body, headers=headers)
            ServerBusy.check(answer)
            if answer.status not in (200, 201):
                raise _build_native_fault(answer)
            try:
                return model.from_json(answer.body)
            except ValueError as error:
                problem = list_problems(error)[0]
            raise InvalidResponse(
                "the answer does not fit the protocol: "
                f"{answer.format_text(problem)}: {answer.excerpt}",
                where=answer.where,
            )

        return await retry_while_busy(self._client, lambda: _retry_lost_response(attempt))


async def _retry_lost_response(attempt: Callable[[], Awaitable[ResponseModel]]) -> ResponseModel:
    """Retry `attempt` after lost answers. This is safe: the server takes no step twice."""
    for failed in range(1, _ATTEMPTS):
        try:
            return await attempt()
        except (ConnectionFailed, InvalidResponse):
            # Jitter: episodes that failed together must not retry together.
            await asyncio.sleep(_FIRST_RETRY_S * 2**failed * random.random())
    try:
        return await attempt()
    except (ConnectionFailed, InvalidResponse) as fault:
        message = f"{fault.message} ({_ATTEMPTS} attempts)"
        raise type(fault)(message, where=fault.where, hint=fault.hint) from fault


def _build_native_fault(answer: ServerResponse) -> EnvironmentFault:
    """Return the fault for an unsuccessful status, with the message of the server if any."""
    try:
        problem = ErrorResponse.from_json(answer.body).error
    except ValueError:
        # Not an error of the protocol: the page of a proxy, or another kind of server.
        error = ConnectionFailed if answer.status in _PROXY_ERRORS else EnvironmentFault
        return error(answer.summary, where=answer.where)
    hint = TOKEN_HINT if answer.status == 401 else problem.hint
    kind, message = answer.format_text(problem.kind), answer.format_text(problem.message, most=2000)
    return EnvironmentFault(
        f"HTTP {answer.status} ({kind}): {message}",
        where=answer.where,
        hint=None if hint is None else answer.format_text(hint),
    )
