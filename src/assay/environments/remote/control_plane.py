"""The control plane of an MCP environment: seed, rewards and status, hidden from the agent.

A request that fails is a fault. It never counts as a reward of 0.0.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from assay.errors import EnvironmentFault

from .http_client import (
    EnvironmentClient,
    InvalidResponse,
    ServerBusy,
    ServerResponse,
    retry_while_busy,
)

MCP_SESSION_HEADER = "mcp-session-id"
"""Names the episode on the control plane. On the data plane MCP uses it for its own sessions."""

ABSENT: Final = object()
"""The state of a server without a control plane. Not None, which is a valid state."""

# How servers without a route answer: not found, wrong method, not implemented.
_ABSENT_STATUSES = (404, 405, 501)


@dataclass(frozen=True, slots=True)
class EpisodeStatus:
    """The progress of an episode."""

    terminated: bool
    truncated: bool
    step_count: int | None
    total_reward: float | None

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated


class ControlPlane:
    """The control plane of one episode."""

    def __init__(
        self, client: EnvironmentClient, endpoint: str, headers: Mapping[str, str]
    ) -> None:
        self._client = client
        self._beside = urlsplit(endpoint)
        """The URL of the data plane; the control plane is next to it."""

        self._headers = headers

    async def initial_state(self) -> Any:
        """Return the first observation, or `ABSENT` if the server has no control plane."""
        answer = await self._request("GET", "initial_state")
        if answer.status in _ABSENT_STATUSES:
            return ABSENT
        return self._check_status(answer, "initial_state").json()

    async def reset(self, seed: int | None, task: Mapping[str, Any] | None = None) -> None:
        """Restart the episode with this seed, and with `task` if the server supports it."""
        extra = {} if task is None else {"task": task}
        answer = await self._request("POST", "reset_session", {"seed": seed, **extra})
        self._check_status(answer, "reset_session")

    async def status(self) -> EpisodeStatus:
        fields = self._read_fields(await self._request("GET", "status"), "status")
        return EpisodeStatus(
            terminated=self._read_flag(fields, "terminated"),
            # Optional: a server may report only `terminated`.
            truncated=self._read_flag({"truncated": False, **fields}, "truncated"),
            step_count=self._read_count(fields, "status"),
            total_reward=self._read_number(fields, "total_reward", "status"),
        )

    async def reward(self) -> tuple[float | None, int | None]:
        """Return the reward of the last step, and the step count."""
        fields = self._read_fields(await self._request("GET", "reward"), "reward")
        if "reward" not in fields:
            raise self._build_fault("reward", "`reward` is missing")
        return self._read_number(fields, "reward", "reward"), self._read_count(fields, "reward")

    async def info(self) -> Mapping[str, Any]:
        """Return additional data of the environment."""
        answer = await self._request("GET", "info")
        if answer.status in _ABSENT_STATUSES:
            return {}
        try:
            return self._read_fields(answer, "info")
        except EnvironmentFault as fault:
            # The result does not depend on it, so that a failure is recorded, not raised.
            return {"info_error": fault.message}

    async def close(self) -> None:
        """Close the session. A session that no longer exists counts as closed."""
        answer = await self._request("POST", "close_session")
        if answer.status not in _ABSENT_STATUSES:
            self._check_status(answer, "close_session")

    async def _request(self, method: str, name: str, body: Any = None) -> ServerResponse:
        path = self._beside.path.rstrip("/").removesuffix("/mcp")
        url = urlunsplit(self._beside._replace(path=f"{path}/control/{name}"))

        async def attempt() -> ServerResponse:
            answer = await self._client.ask(method, url, body=body, headers=self._headers)
            ServerBusy.check(answer)
            return answer

        return await retry_while_busy(self._client, attempt)

    def _check_status(self, answer: ServerResponse, name: str) -> ServerResponse:
        if answer.status != 200:
            raise self._build_fault(name, answer.summary)
        return answer

    def _read_fields(self, answer: ServerResponse, name: str) -> dict[str, Any]:
        fields = self._check_status(answer, name).json()
        if not isinstance(fields, dict):
            raise InvalidResponse(
                f"the answer of /control/{name} is not an object: {answer.excerpt}",
                where=answer.where,
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
            raise self._build_fault(name, f"`step_count` is {value!r}, not a count")
        return value

    def _read_number(self, fields: Mapping[str, Any], key: str, name: str) -> float | None:
        value = fields.get(key)
        if value is None:
            return None
        try:
            # A bool is an int in Python, but not a reward.
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            number = float(value) if is_number else math.nan
        except OverflowError:  # an integer beyond the range of a float
            number = math.inf
        if not math.isfinite(number):
            raise self._build_fault(name, f"`{key}` is {value!r:.80}, not a finite number")
        return number

    def _build_fault(self, name: str, why: str) -> EnvironmentFault:
        return EnvironmentFault(
            f"/control/{name} cannot be read: {why}",
            where=self._client.where,
            hint="the reward of this step is unknown; see the log of the environment server",
        )
