"""The tools of all MCP servers in a configuration file."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from assay.environments import BasicEnvironment, Environment, RemoteEnvironments, Step
from assay.errors import ConfigError, EnvironmentFault
from assay.types import Message, Sample, ToolSpec

from .mcp_stdio import StdioServer

_BEARER = "Bearer "


class McpServers:
    """The servers of `mcp_config_path`, connected while the async context is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Callable[[Sample], Environment]:
        servers = read_servers(self._path)
        try:
            makers = [await self._open(name, server) for name, server in servers.items()]
        except BaseException:
            await self._stack.aclose()
            raise
        return lambda sample: ToolServers([make() for make in makers])

    async def _open(self, name: str, server: Any) -> Callable[[], Environment]:
        where = f"{self._path}: mcpServers.{name}"
        given: dict[str, Any] = server if isinstance(server, dict) else {}
        if isinstance(given.get("command"), str):
            # Servers inherit the environment; `env` only lists the variables that they need.
            missing = [
                variable for variable in given.get("env") or () if variable not in os.environ
            ]
            if missing:
                raise ConfigError(f"the environment variable {missing[0]} is not set", where=where)
            command = [given["command"], *map(str, given.get("args") or ())]
            return partial(StdioServer, command, where)
        url, authorization = given.get("url"), given.get("authorization")
        if not isinstance(url, str):
            raise ConfigError("the server has neither a `url` nor a `command`", where=where)
        if authorization is not None and not str(authorization).startswith(_BEARER):
            raise ConfigError("assay supports an `authorization` of `Bearer …` only", where=where)
        token = None if authorization is None else str(authorization).removeprefix(_BEARER)
        remote = RemoteEnvironments(url, kind="mcp", token=token)
        await self._stack.enter_async_context(remote)
        return remote.make

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()


def read_servers(path: Path) -> Mapping[str, Any]:
    """Read the servers by name. Raises `ConfigError` for an invalid file."""
    try:
        servers = json.loads(path.read_bytes())["mcpServers"]
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "the file is not JSON with an object `mcpServers`", where=str(path)
        ) from error
    if not isinstance(servers, dict) or not servers:
        raise ConfigError("`mcpServers` names no server", where=str(path))
    return servers


class ToolServers:
    """One rollout with the tools of several servers; an answer without a call ends it."""

    def __init__(self, servers: Sequence[Environment]) -> None:
        self._servers = servers
        self._owners: dict[str, Environment] = {}
        self.tools: Sequence[ToolSpec] = ()

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        tools: list[ToolSpec] = []
        opening: list[Message] = []
        for server in self._servers:
            opening += await server.open(seed=seed)
            for tool in server.tools:
                if tool.name in self._owners:
                    raise EnvironmentFault(f"two MCP servers have a tool {tool.name!r}")
                self._owners[tool.name] = server
                tools.append(tool)
        self.tools = tools
        return opening

    async def step(self, action: Message) -> Step:
        if not action.tool_calls:
            return await BasicEnvironment().step(action)
        replies: list[Message] = []
        for call in action.tool_calls:
            # Any server answers a call of an unknown tool with an error for the model.
            owner = self._owners.get(call.name, self._servers[0])
            only = action.model_copy(update={"tool_calls": (call,)})
            replies += (await owner.step(only)).replies
        return Step(replies=tuple(replies))

    async def close(self) -> None:
        # The stack closes all servers even if one of them raises.
        async with AsyncExitStack() as stack:
            for server in self._servers:
                stack.push_async_callback(server.close)
