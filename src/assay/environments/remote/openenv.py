"""Environments of OpenEnv servers, over their WebSocket: one connection is one episode."""

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from aiohttp import WSMsgType
from pydantic_core import from_json, to_json

from assay.errors import ConfigError, EnvironmentFault
from assay.types import Message, ToolCall, ToolSpec

from ..environment import Step, add_rewards
from ..tools import ToolError
from .http_client import (
    MAX_SERVER_RESPONSE_BYTES,
    STEP_TIMEOUT_HINT,
    TOKEN_HINT,
    EnvironmentClient,
    InvalidResponse,
    TimedOut,
)
from .retry_when_busy import ServerBusy, retry_while_busy

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse, WSMessage

_TOOL = "act"
_SOCKET_CLOSE_S = 5.0
_CAPACITY_RETRY_S = 0.5
"""The protocol names no time to wait; a session of ours that ends is noticed at once."""


class OpenEnvEnvironment:
    """One episode at an OpenEnv server, with one tool, `act`. Each call of it is one step.

    The task's fields are further parameters of the reset. The protocol has one `done`: it is
    taken for `terminated`, and whether the episode was cut short is not known (`truncated` in a
    step's info is None). Nor does it say whether the environment used the seed.
    """

    def __init__(self, link: EnvironmentClient, task: Mapping[str, Any] | None = None) -> None:
        self.tools: Sequence[ToolSpec] = ()
        self._link = link
        self._task = dict(task or {})
        self._socket: ClientWebSocketResponse | None = None
        self._over = False
        self._episode = uuid.uuid4().hex

    def describe_session(self) -> dict[str, Any]:
        return self._link.describe_session("openenv", self._episode)

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        if seed is not None and seed < 0:
            raise ConfigError(
                f"the seed is {seed}", where="OpenEnv", hint="its seeds begin at 0, or are None"
            )
        self.tools = (await self._fetch_tool(),)
        fields = {**self._task, "seed": seed, "episode_id": self._episode}
        reset = {key: value for key, value in fields.items() if value is not None}
        answer = await retry_while_busy(self._link, lambda: self._connect_and_reset(reset))
        self._over = self._read_done(answer)
        return (Message(role="user", content=_format_observation(answer["observation"])),)

    async def _connect_and_reset(self, reset: Mapping[str, Any]) -> dict[str, Any]:
        """Connect and reset. A server that is full says so and hangs up: `ServerBusy`."""
        self._socket = await self._connect()
        try:
            return await self._request_observation("reset", reset)
        except ServerBusy:
            await self._close_socket()
            raise

    async def step(self, action: Message) -> Step:
        if not action.tool_calls:
            words = f"Nothing happened: use the tool `{_TOOL}` to take a step."
            return Step(replies=(Message(role="user", content=words),), acted=False)
        replies: list[Message] = []
        last: dict[str, Any] | None = None
        rewards: list[float | None] = []
        for call in action.tool_calls:
            content, answer = await self._take_step(call)
            replies.append(
                Message(role="tool", content=content, tool_call_id=call.id, name=call.name)
            )
            if answer is not None:
                last = answer
                rewards.append(self._read_reward(answer))
        return Step(
            replies=tuple(replies),
            reward=add_rewards(rewards),
            rewards=tuple(rewards),
            acted=last is not None,
            terminated=self._over,
            info={} if last is None else await self._read_info(last),
            observation=None if last is None else last["observation"],
        )

    async def _take_step(self, call: ToolCall) -> tuple[str, dict[str, Any] | None]:
        """One step of the environment; a mistake of the agent takes none."""
        # Every call is answered: a model cannot be asked again while one is left open.
        if self._over:
            return "The episode is over.", None
        if call.name != _TOOL:
            return f"Error: there is no tool {call.name!r}; use {_TOOL!r}", None
        if call.malformed:
            return f"Error: the arguments of {_TOOL!r} are not a JSON object", None
        try:
            answer = await self._request_observation("step", call.arguments)
        except ToolError as mistake:
            return f"Error: {mistake}", None
        self._over = self._read_done(answer)
        return _format_observation(answer["observation"]), answer

    async def _read_info(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        info: dict[str, Any] = {"done": self._over, "reward": answer.get("reward")}
        if self._over:
            info["truncated"] = None
            try:
                info["state"] = await self._request("state", None, "state")
            except EnvironmentFault as fault:
                # It decides nothing: what the steps gave stands.
                info["state_error"] = fault.message
        return info

    async def _request_observation(self, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._request(kind, data, "observation")
        if "observation" not in answer:
            raise InvalidResponse(
                f"the answer to {kind} has no observation", where=self._link.where
            )
        return answer

    async def _request(
        self, kind: str, data: Mapping[str, Any] | None, expected: str
    ) -> dict[str, Any]:
        """Say one thing, and what comes back."""
        if self._socket is None:
            raise EnvironmentFault("the environment is not open", where=self._link.where)
        message = {"type": kind} if data is None else {"type": kind, "data": data}
        answer = await self._exchange(self._socket, to_json(message).decode(), kind)
        if answer.get("type") == "error" and isinstance(answer.get("data"), dict):
            raise self._build_error(answer["data"], kind)
        if answer.get("type") != expected or not isinstance(answer.get("data"), dict):
            raise InvalidResponse(
                f"the answer to {kind} is a {answer.get('type')!r}, not an {expected}",
                where=self._link.where,
            )
        data = answer["data"]
        return dict(data)

    async def _exchange(
        self, socket: "ClientWebSocketResponse", text: str, kind: str
    ) -> dict[str, Any]:
        try:
            # A server that is full may hang up while this is sent; what it said is still there.
            if not socket.closed:
                await socket.send_str(text)
        except (aiohttp.ClientError, ConnectionError):
            pass
        try:
            message = await socket.receive(timeout=self._link.timeout_s)
        except TimeoutError:
            fault = TimedOut(
                f"no answer to {kind} within {self._link.timeout_s:g} s",
                where=self._link.where,
                hint=STEP_TIMEOUT_HINT,
            )
        else:
            return self._parse_message(message, kind)
        raise fault

    def _parse_message(self, message: "WSMessage", kind: str) -> dict[str, Any]:
        if message.type is WSMsgType.ERROR and getattr(message.data, "code", None) == 1009:
            raise InvalidResponse(
                f"the answer is longer than {MAX_SERVER_RESPONSE_BYTES} bytes",
                where=self._link.where,
            )
        if message.type is not WSMsgType.TEXT:
            raise EnvironmentFault(
                f"the server hung up before it answered {kind}",
                where=self._link.where,
                hint="the environment server died, or ended the session; its log says more",
            )
        try:
            answer = from_json(message.data, allow_inf_nan=False)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise InvalidResponse(
                f"the answer to {kind} is not a JSON object: {message.data[:200]!r}",
                where=self._link.where,
            )
        return answer

    def _build_error(self, data: Mapping[str, Any], kind: str) -> Exception:
        """What an error of the server stands for."""
        code, words = data.get("code"), str(data.get("message"))[:500]
        if code == "CAPACITY_REACHED":
            return ServerBusy(_CAPACITY_RETRY_S)
        if code == "VALIDATION_ERROR" and kind == "step":
            return ToolError(f"{words}: {_format_validation_problems(data.get('errors'))}")
        return EnvironmentFault(
            f"the server answers {kind} with {code}: {words}", where=self._link.where
        )

    def _read_done(self, answer: Mapping[str, Any]) -> bool:
        done = answer.get("done")
        if not isinstance(done, bool):
            raise InvalidResponse(
                f"`done` is {done!r}, neither true nor false", where=self._link.where
            )
        return done

    def _read_reward(self, answer: Mapping[str, Any]) -> float | None:
        reward = answer.get("reward")
        if reward is None:
            return None
        # The protocol allows true and false, which stand for 1 and 0.
        if not isinstance(reward, int | float) or not -1e300 < reward < 1e300:
            raise InvalidResponse(
                f"the reward is {reward!r:.80}, which is no finite number", where=self._link.where
            )
        return float(reward)

    async def _fetch_tool(self) -> ToolSpec:
        """The tool that takes the server's action, by the schema that it publishes."""
        answer = await self._link.ask("GET", build_http_url(self._link.url, "schema"))
        schemas = answer.json() if answer.status == 200 else None
        action = schemas.get("action") if isinstance(schemas, dict) else None
        if not isinstance(action, dict):
            raise EnvironmentFault(
                f"GET /schema gives no schema of an action (HTTP {answer.status})",
                where=self._link.where,
                hint="is this the address of an OpenEnv server?",
            )
        return ToolSpec(
            name=_TOOL,
            description=str(action.get("description") or "Take one step in the environment."),
            parameters=_clean_action_schema(action),
        )

    async def _connect(self) -> "ClientWebSocketResponse":
        try:
            return await self._link.http.ws_connect(
                build_socket_url(self._link.url),
                headers=self._link.headers(),
                max_msg_size=MAX_SERVER_RESPONSE_BYTES,
                timeout=aiohttp.ClientWSTimeout(ws_close=_SOCKET_CLOSE_S),
                compress=0,
            )
        except TimeoutError:
            fault: EnvironmentFault = TimedOut("no connection in time", where=self._link.where)
        except aiohttp.WSServerHandshakeError as error:
            fault = EnvironmentFault(
                f"the server refuses a WebSocket: HTTP {error.status}",
                where=self._link.where,
                hint=TOKEN_HINT if error.status in (401, 403) else None,
            )
        except (aiohttp.ClientError, OSError) as error:
            fault = self._link.build_connection_error(error)
        # Outside the handlers: the original exceptions may quote the address with its query.
        raise fault

    async def close(self) -> None:
        if self._socket is None:
            return
        try:
            if not self._socket.closed:
                await self._socket.send_str('{"type":"close"}')
        except ConnectionError:
            pass  # it is gone, and with it its session
        finally:
            await self._close_socket()
            self._link.room.release()

    async def _close_socket(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()


def build_socket_url(url: str) -> str:
    """The address of the WebSocket of an OpenEnv server."""
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/").removesuffix("/ws")
    return urlunsplit(parts._replace(scheme=scheme, path=f"{path}/ws"))


def build_http_url(url: str, name: str) -> str:
    """The address of a plain HTTP route of an OpenEnv server."""
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/").removesuffix("/ws")
    return urlunsplit(parts._replace(scheme=scheme, path=f"{path}/{name}"))


def _clean_action_schema(action: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an action without what every action may carry and no agent needs."""
    schema = {key: value for key, value in action.items() if key not in ("title", "description")}
    properties = dict(schema.get("properties") or {})
    if "metadata" not in schema.get("required", ()):
        properties.pop("metadata", None)
    return {**schema, "type": "object", "properties": properties}


def _format_validation_problems(errors: Any) -> str:
    """What is wrong with an action, in words that the agent can act on."""
    if not isinstance(errors, list):
        return "the action does not fit its schema"
    told = [error for error in errors[:10] if isinstance(error, dict)]
    return "; ".join(
        f"{'.'.join(map(str, error.get('loc') or ['action']))}: {error.get('msg')}"
        for error in told
    )


def _format_observation(observation: Any) -> str:
    return observation if isinstance(observation, str) else to_json(observation).decode()
