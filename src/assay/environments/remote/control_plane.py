"""The control plane of an MCP environment: its seed, rewards and end, which no agent sees.

A reading that fails is a fault. It is never taken for a reward of 0.0.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from assay.errors import EnvironmentFault

from .http_client import Answer, Garbled, Link
from .retry_when_busy import Busy, patiently

SESSION_HEADER = "mcp-session-id"
"""Names the episode on the control plane. On the data plane MCP uses it for its own sessions."""

ABSENT: Final = object()
"""What stands for a state that the server does not offer."""

_NOT_THERE = (404, 405, 501)


@dataclass(frozen=True, slots=True)
class Status:
    """How far an episode is."""

    terminated: bool
    truncated: bool
    step_count: int | None
    total_reward: float | None

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated


@dataclass(frozen=True, slots=True)
class Reading:
    """The reward of the last step."""

    reward: float | None
    step_count: int | None


class ControlPlane:
    """The control plane of one episode."""

    def __init__(self, link: Link, endpoint: str, headers: Mapping[str, str]) -> None:
        self._link = link
        self._beside = urlsplit(endpoint)
        """The address of the data plane, beside which the control plane stands."""

        self._headers = headers

    async def initial_state(self) -> Any:
        """The first observation; `ABSENT` from a server without a control plane."""
        answer = await self._ask("GET", "initial_state")
        if answer.status in _NOT_THERE:
            return ABSENT
        return self._good(answer, "initial_state").json()

    async def reset(self, seed: int | None, task: Mapping[str, Any] | None = None) -> None:
        """Begin the episode anew with this seed. Servers that know `task` are told one."""
        told = {} if task is None else {"task": task}
        answer = await self._ask("POST", "reset_session", {"seed": seed, **told})
        self._good(answer, "reset_session")

    async def status(self) -> Status:
        fields = self._fields(await self._ask("GET", "status"), "status")
        return Status(
            terminated=self._flag(fields, "terminated"),
            truncated=self._flag({"truncated": False, **fields}, "truncated"),
            step_count=self._count(fields, "status"),
            total_reward=self._number(fields, "total_reward", "status"),
        )

    async def reward(self) -> Reading:
        fields = self._fields(await self._ask("GET", "reward"), "reward")
        if "reward" not in fields:
            raise self._unread("reward", "it has no `reward`")
        return Reading(self._number(fields, "reward", "reward"), self._count(fields, "reward"))

    async def info(self) -> Mapping[str, Any]:
        """What the environment says besides. It decides nothing, so a failure is told in it."""
        answer = await self._ask("GET", "info")
        if answer.status in _NOT_THERE:
            return {}
        try:
            return self._fields(answer, "info")
        except EnvironmentFault as fault:
            return {"info_error": fault.message}

    async def close(self) -> None:
        """Give the session back. A session that is gone already is closed."""
        answer = await self._ask("POST", "close_session")
        if answer.status not in _NOT_THERE:
            self._good(answer, "close_session")

    async def _ask(self, method: str, name: str, body: Any = None) -> Answer:
        async def attempt() -> Answer:
            answer = await self._link.ask(
                method, self._address(name), body=body, headers=self._headers
            )
            Busy.check(answer)
            return answer

        return await patiently(self._link, attempt)

    def _address(self, name: str) -> str:
        path = self._beside.path.rstrip("/").removesuffix("/mcp")
        return urlunsplit(self._beside._replace(path=f"{path}/control/{name}"))

    def _good(self, answer: Answer, name: str) -> Answer:
        if answer.status != 200:
            raise self._unread(name, f"HTTP {answer.status}: {answer.excerpt}")
        return answer

    def _fields(self, answer: Answer, name: str) -> dict[str, Any]:
        fields = self._good(answer, name).json()
        if not isinstance(fields, dict):
            raise Garbled(f"/control/{name} is not an object: {answer.excerpt}", where=answer.where)
        return fields

    def _flag(self, fields: Mapping[str, Any], key: str) -> bool:
        value = fields.get(key)
        if not isinstance(value, bool):
            raise self._unread("status", f"`{key}` is {value!r}, neither true nor false")
        return value

    def _count(self, fields: Mapping[str, Any], name: str) -> int | None:
        value = fields.get("step_count")
        if value is not None and (type(value) is not int or value < 0):
            raise self._unread(name, f"`step_count` is {value!r}, which counts nothing")
        return value

    def _number(self, fields: Mapping[str, Any], key: str, name: str) -> float | None:
        value = fields.get(key)
        if value is None:
            return None
        number = _finite(value)
        if number is None:
            raise self._unread(name, f"`{key}` is {value!r:.80}, which is no finite number")
        return number

    def _unread(self, name: str, why: str) -> EnvironmentFault:
        return EnvironmentFault(
            f"/control/{name} cannot be read: {why}",
            where=self._link.where,
            hint="no reward is known for this step; the log of the environment server says more",
        )


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
