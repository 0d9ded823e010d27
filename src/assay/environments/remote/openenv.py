"""Environments of OpenEnv servers over WebSocket: one connection per episode."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
    RedirectRefused,
    ServerBusy,
    TimedOut,
    retry_while_busy,
)

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

_TOOL = "act"
_SOCKET_CLOSE_S = 5.0
_HTTP_SCHEMES = {"ws": "http", "wss": "https"}
_SOCKET_SCHEMES = {"http": "ws", "https": "wss"}
# The protocol has no `Retry-After`. Sessions of this process that end wake the queue anyway.
_CAPACITY_RETRY_S = 0.5


class OpenEnvEnvironment:
    """One episode at an OpenEnv server, with one tool, `act`. Each call is one step.

    The fields of the task are additional parameters of the reset. The protocol has a single `done`:
    it counts as `terminated`, and truncation is unknown (`truncated` in the info of a step is
    None). Nor does the protocol confirm the use of the seed.
    """

    def __init__(self, client: EnvironmentClient, task: Mapping[str, Any] | None = None) -> None:
        self.tools: Sequence[ToolSpec] = ()
        self._client = client
        self._task = dict(task or {})
        self._socket: ClientWebSocketResponse | None = None
        self._over = False
        self._episode = uuid.uuid4().hex

    def describe_session(self) -> dict[str, Any]:
        return self._client.describe_session("openenv", self._episode)

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        # Refused here: the schema of the reset requires 0 or more.
        if seed is not None and seed < 0:
            raise ConfigError(
                f"the seed {seed} is negative", where="OpenEnv", hint="pass 0 or more, or None"
            )
        self.tools = (await self._fetch_tool(),)
        fields = {**self._task, "seed": seed, "episode_id": self._episode}
        reset = {key: value for key, value in fields.items() if value is not None}

        async def attempt() -> dict[str, Any]:
            self._socket = await self._connect()
            try:
                return await self._request_observation("reset", reset)
            except ServerBusy:
                # The server closes the connection: the next attempt needs another one.
                await self._close_socket()
                raise

        answer = await retry_while_busy(self._client, attempt)
        self._over = self._read_done(answer)
        return (Message(role="user", content=_format_observation(answer["observation"])),)

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
                last, reward = answer, answer.get("reward")
                # Booleans are allowed: the protocol defines them as 1 and 0.
                if reward is not None and (
                    not isinstance(reward, int | float) or not -1e300 < reward < 1e300
                ):
                    raise InvalidResponse(
                        f"the reward is {reward!r:.80}, not a finite number",
                        where=self._client.where,
                    )
                rewards.append(None if reward is None else float(reward))
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
        """Take one step. A mistake of the agent is answered without a step."""
        # Every call is answered: chat APIs reject a conversation with an open call.
        if self._over:
            return "The episode is over.", None
        if call.name != _TOOL:
            return f"Error: unknown tool {call.name!r}; use {_TOOL!r}", None
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
                # The result does not depend on it: the steps are already complete.
                info["state_error"] = fault.message
        return info

    async def _request_observation(self, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._request(kind, data, "observation")
        if "observation" not in answer:
            raise InvalidResponse(
                f"the answer to {kind} has no observation", where=self._client.where
            )
        return answer

    async def _request(
        self, kind: str, data: Mapping[str, Any] | None, expected: str
    ) -> dict[str, Any]:
        """Send a message and return the data of its answer."""
        if self._socket is None:
            raise EnvironmentFault("the environment is not open", where=self._client.where)
        message = {"type": kind} if data is None else {"type": kind, "data": data}
        answer = await self._exchange(self._socket, to_json(message).decode(), kind)
        if answer.get("type") == "error" and isinstance(answer.get("data"), dict):
            raise self._build_error(answer["data"], kind)
        if answer.get("type") != expected or not isinstance(answer.get("data"), dict):
            raise InvalidResponse(
                f"the answer to {kind} is a {answer.get('type')!r}, not an {expected}",
                where=self._client.where,
            )
        data = answer["data"]
        return dict(data)

    async def _exchange(
        self, socket: "ClientWebSocketResponse", text: str, kind: str
    ) -> dict[str, Any]:
        where = self._client.where
        try:
            # Not the timeout of `receive`: it begins anew with every ping of the server.
            async with asyncio.timeout(self._client.timeout_s):
                # A full server may close the connection during this; its error can still be read.
                with suppress(aiohttp.ClientError, ConnectionError):
                    if not socket.closed:
                        await socket.send_str(text)
                message = await socket.receive()
        except TimeoutError:
            raise TimedOut(
                f"the server did not answer {kind} within {self._client.timeout_s:g} s",
                where=where,
                hint=STEP_TIMEOUT_HINT,
            ) from None
        # 1009 is the close code for a message that is too big.
        if message.type is WSMsgType.ERROR and getattr(message.data, "code", None) == 1009:
            raise InvalidResponse(
                f"the answer is longer than {MAX_SERVER_RESPONSE_BYTES} bytes", where=where
            )
        if message.type is not WSMsgType.TEXT:
            raise EnvironmentFault(
                f"the server closed the connection before it answered {kind}",
                where=where,
                hint="the server exited or ended the session; see its log",
            )
        try:
            answer = from_json(message.data, allow_inf_nan=False)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise InvalidResponse(
                f"the answer to {kind} is not a JSON object: {message.data[:200]!r}", where=where
            )
        return answer

    def _build_error(self, data: Mapping[str, Any], kind: str) -> Exception:
        """Convert an error of the server to an exception."""
        code, words = data.get("code"), str(data.get("message"))[:500]
        if code == "CAPACITY_REACHED":
            return ServerBusy(_CAPACITY_RETRY_S)
        if code != "VALIDATION_ERROR" or kind != "step":
            return EnvironmentFault(
                f"the server answered {kind} with {code}: {words}", where=self._client.where
            )
        # An action that does not fit its schema is a mistake of the agent.
        errors, problems = data.get("errors"), "the action does not fit its schema"
        if isinstance(errors, list):
            problems = "; ".join(
                f"{'.'.join(map(str, error.get('loc') or ['action']))}: {error.get('msg')}"
                for error in errors[:10]
                if isinstance(error, dict)
            )
        return ToolError(f"{words}: {problems}")

    def _read_done(self, answer: Mapping[str, Any]) -> bool:
        done = answer.get("done")
        if not isinstance(done, bool):
            raise InvalidResponse(
                f"`done` is {done!r}, neither true nor false", where=self._client.where
            )
        return done

    async def _fetch_tool(self) -> ToolSpec:
        """Return the tool `act` with the action schema of the server."""
        answer = await self._client.ask("GET", build_route_url(self._client.url, "schema"))
        schemas = answer.json() if answer.status == 200 else None
        action = schemas.get("action") if isinstance(schemas, dict) else None
        if not isinstance(action, dict):
            raise EnvironmentFault(
                f"GET /schema returned no schema of an action (HTTP {answer.status})",
                where=self._client.where,
                hint="check that this is the address of an OpenEnv server",
            )
        kept = {key: value for key, value in action.items() if key not in ("title", "description")}
        properties = dict(kept.get("properties") or {})
        # All actions of the protocol have an optional `metadata`, which is not for the agent.
        if "metadata" not in kept.get("required", ()):
            properties.pop("metadata", None)
        return ToolSpec(
            name=_TOOL,
            description=str(action.get("description") or "Take one step in the environment."),
            parameters={**kept, "type": "object", "properties": properties},
        )

    async def _connect(self) -> "ClientWebSocketResponse":
        try:
            # aiohttp has a timeout of its own here, of five minutes.
            async with asyncio.timeout(self._client.timeout_s):
                return await self._client.http.ws_connect(
                    build_route_url(self._client.url, "ws", _SOCKET_SCHEMES),
                    headers=self._client.headers(),
                    max_msg_size=MAX_SERVER_RESPONSE_BYTES,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_SOCKET_CLOSE_S),
                    # No compression: a small message could expand to a very large one.
                    compress=0,
                )
        except TimeoutError:
            fault: EnvironmentFault = TimedOut(
                f"the server did not accept the WebSocket within {self._client.timeout_s:g} s",
                where=self._client.where,
                hint=STEP_TIMEOUT_HINT,
            )
        except RedirectRefused as redirect:
            fault = self._client.build_redirect_error(redirect.status)
        except aiohttp.WSServerHandshakeError as error:
            fault = EnvironmentFault(
                f"the server refused the WebSocket: HTTP {error.status}",
                where=self._client.where,
                hint=TOKEN_HINT if error.status in (401, 403) else None,
            )
        except (aiohttp.ClientError, OSError) as error:
            fault = self._client.build_connection_error(error)
        # Outside the handlers: the original exceptions may quote the URL with its query.
        raise fault

    async def close(self) -> None:
        if self._socket is None:
            return
        try:
            # A server that reads nothing blocks the sending.
            async with asyncio.timeout(_SOCKET_CLOSE_S):
                if not self._socket.closed:
                    await self._socket.send_str('{"type":"close"}')
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            pass  # the server has closed the connection, and the session with it
        finally:
            await self._close_socket()
            self._client.queue.release()

    async def _close_socket(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(2 * _SOCKET_CLOSE_S):
                    await socket.close()


def build_route_url(url: str, name: str, schemes: Mapping[str, str] = _HTTP_SCHEMES) -> str:
    """Return the URL of a route of an OpenEnv server."""
    parts = urlsplit(url)
    scheme = schemes.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/").removesuffix("/ws")
    return urlunsplit(parts._replace(scheme=scheme, path=f"{path}/{name}"))


def _format_observation(observation: Any) -> str:
    return observation if isinstance(observation, str) else to_json(observation).decode()
