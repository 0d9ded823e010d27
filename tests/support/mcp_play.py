"""Play episodes of the control plane's server over MCP."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

import control_plane_server
from assay.environments.remote.http_client import EnvironmentClient, normalize_server_url
from assay.environments.remote.mcp import McpEnvironment
from make import called, said
from started import Started

Made = TypeVar("Made")

PROGRAM = Path(control_plane_server.__file__)
RIGHT = said(None, called("move", direction="right"))


def at(
    server: Started,
    play: Callable[[EnvironmentClient], Awaitable[Made]],
    *,
    path: str = "/mcp/",
    timeout_s: float = 10.0,
) -> Made:
    """What a play over one link comes to."""

    async def run() -> Made:
        async with aiohttp.ClientSession() as http:
            return await play(
                EnvironmentClient(
                    normalize_server_url(server.url + path), http, timeout_s=timeout_s
                )
            )

    return asyncio.run(run())


async def opened(
    link: EnvironmentClient, seed: int | None = None
) -> tuple[McpEnvironment, dict[str, Any]]:
    environment = McpEnvironment(link)
    (first,) = await environment.open(seed=seed)
    return environment, json.loads(first.text)


async def seen(link: EnvironmentClient, seed: int | None, moves: int = 2) -> list[Any]:
    """What one episode shows, from the first observation on."""
    environment, first = await opened(link, seed)
    steps = [await environment.step(RIGHT) for _ in range(moves)]
    await environment.close()
    return [first, *(step.observation for step in steps)]
