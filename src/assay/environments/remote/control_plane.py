"""The control plane of an MCP environment: its seed, rewards and end, which no agent sees.

A reading that fails is a fault. It is never taken for a reward of 0.0.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from assay.errors import EnvironmentFault

from .http_client import EnvironmentClient, InvalidResponse, ServerResponse
from .retry_when_busy import ServerBusy, retry_while_busy

MCP_SESSION_HEADER = "mcp-session-id"
"""Names the episode on the control plane. On the data plane MCP uses it for its own sessions."""

ABSENT: Final = object()
"""What stands for a state that the server does not offer."""

_ABSENT_STATUSES = (404, 405, 501)


@dataclass(frozen=True, slots=True)
class EpisodeStatus:
    """How far an episode is."""

    terminated: bool
    truncated: bool
    step_count: int | None
    total_reward: float | None

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated


@dataclass(frozen=True, slots=True)
class RewardReading:
    """The reward of the last step."""

    reward: float | None
    step_count: int | None


class ControlPlane:
    """The control plane of one episode."""

    def __init__(self, link: EnvironmentClient, endpoint: str, headers: Mapping[str, str]) -> None:
        self._link = link
        self._beside = urlsplit(endpoint)
        """The address of the data plane, beside which the control plane stands."""

        self._headers = headers

    async def initial_state(self) -> Any:
        """The first observation; `ABSENT` from a server without a control plane."""
        answer = await self._request("GET", "initial_state")
        if answer.status in _ABSENT_STATUSES:
            return ABSENT
        return self._check_status(answer, "initial_state").json()

    async def reset(self, seed: int | None, task: Mapping[str, Any] | None = None) -> None:
        """Begin the episode anew with this seed. Servers that know `task` are told one."""
        told = {} if task is None else {"task": task}
        answer = await self._request("POST", "reset_session", {"seed": seed, **told})
        self._check_status(answer, "reset_session")

    async def status(self) -> EpisodeStatus:
        fields = self._read_fields(await self._request("GET", "status"), "status")
        return EpisodeStatus(
            terminated=self._read_flag(fields, "terminated"),
            truncated=self._read_flag({"truncated": False, **fields}, "truncated"),
            step_count=self._read_count(fields, "status"),
            total_reward=self._read_number(fields, "total_reward", "status"),
        )

    async def reward(self) -> RewardReading:
        fields = self._read_fields(await self._request("GET", "reward"), "reward")
        if "reward" not in fields:
            raise self._build_fault("reward", "it has no `reward`")
        return RewardReading(
            self._read_number(fields, "reward", "reward"), self._read_count(fields, "reward")
        )

    async def info(self) -> Mapping[str, Any]:
        """What the environment says besides. It decides nothing, so a failure is told in it."""
        answer = await self._request("GET", "info")
        if answer.status in _ABSENT_STATUSES:
            return {}
        try:
            return self._read_fields(answer, "info")
        except EnvironmentFault as fault:
            return {"info_error": fault.message}

    async def close(self) -> None:
        """Give the session back. A session that is gone already is closed."""
        answer = await self._request("POST", "close_session")
        if answer.status not in _ABSENT_STATUSES:
            self._check_status(answer, "close_session")

    async def _request(self, method: str, name: str, body: Any = None) -> ServerResponse:
        async def attempt() -> ServerResponse:
            answer = await self._link.ask(
                method, self._build_url(name), body=body, headers=self._headers
            )
            ServerBusy.check(answer)
            return answer

        return await retry_while_busy(self._link, attempt)

    def _build_url(self, name: str) -> str:
        path = self._beside.path.rstrip("/").removesuffix("/mcp")
        return urlunsplit(self._beside._replace(path=f"{path}/control/{name}"))

    def _check_status(self, answer: ServerResponse, name: str) -> ServerResponse:
        if answer.status != 200:
            raise self._build_fault(name, f"HTTP {answer.status}: {answer.excerpt}")
        return answer

    def _read_fields(self, answer: ServerResponse, name: str) -> dict[str, Any]:
        fields = self._check_status(answer, name).json()
        if not isinstance(fields, dict):
            raise InvalidResponse(
                f"/control/{name} is not an object: {answer.excerpt}", where=answer.where
            )
        return fields

    def _read_flag(self, fields: Mapping[str, Any], key: str) -> bool:
        value = fields.get(key)
        if not isinstance(value, bool):
            raise self._build_fault("status", f"`{key}` is {value!r}, neither true nor false")
        return value

    def _read_count(self, fields: Mapping[str, Any], name: str) -> int | None:
        value = fields.get("step_count")
        if value is not None and (type(value) is not int or value < 0):
            raise self._build_fault(name, f"`step_count` is {value!r}, which counts nothing")
        return value

    def _read_number(self, fields: Mapping[str, Any], key: str, name: str) -> float | None:
        value = fields.get(key)
        if value is None:
            return None
        number = _parse_finite(value)
        if number is None:
            raise self._build_fault(name, f"`{key}` is {value!r:.80}, which is no finite number")
        return number

    def _build_fault(self, name: str, why: str) -> EnvironmentFault:
        return EnvironmentFault(
            f"/control/{name} cannot be read: {why}",
            where=self._link.where,
            hint="no reward is known for this step; the log of the environment server says more",
        )


def _parse_finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
