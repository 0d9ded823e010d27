"""What a step of an environment costs: in process, and behind each protocol on loopback.

The environment is always the same: FrozenLake without slipping, in which walking into the wall
never ends an episode before its 100th step. Servers run in a process of their own. CPU is told
apart by process; the model's side is left out, since there is no model. Figures of other people's
clients and servers are printed below ours as "reference": they were taken on another day and at
another load, so read them as orders of magnitude.

    python benchmarks/environments.py [--paths own,mcp] [--loads 1:90,50:40] [--json]
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from assay.environments import (
    Environment,
    EnvironmentServer,
    GymEnvironment,
    RemoteEnvironments,
    ServerKind,
    ServerSettings,
    launch_server,
)
from assay.types import Message, ToolCall

PATHS = ("in process", "own", "mcp", "openenv")
LOADS = "1:90,50:40,200:10"
MOST_STEPS = 99
"""A longer episode would end by its own limit."""

ACTION = Message(
    role="assistant", tool_calls=(ToolCall(id="1", name="act", arguments={"action": "left"}),)
)


@dataclass(frozen=True)
class Reference:
    """Somebody else's figures for one way of taking a step."""

    what: str
    sessions: int
    client_ms: float
    server_ms: float | None
    steps_per_s: float | None


REFERENCES = (
    Reference("Gymnasium, in process", 1, 0.07, None, 14_000),
    Reference("OpenEnv /ws, its own client", 50, 0.22, 0.47, 448),
    Reference("OpenEnv /ws, its own client", 200, 0.18, 0.55, 355),
    Reference("plain POST /step, httpx", 50, 5.6, 1.3, 22),
    Reference("MCP 2.3 modern, tool call only", 50, 2.65, 1.6, 148),
    Reference("MCP 2.3 modern, tool call only", 200, 3.2, 2.3, 95),
    Reference("MCP 2.3 legacy, tool call only", 50, 3.65, 3.2, 70),
    Reference("MCP 2.3 modern, reward and status read", 50, 14.0, 4.7, None),
    Reference("MCP 2.3 legacy, reward and status read", 50, 16.8, 5.8, None),
)


@dataclass(frozen=True)
class Figures:
    """What was measured for one path at one number of sessions."""

    path: str
    sessions: int
    steps: int
    steps_per_s: float
    client_ms: float
    """CPU of a step in the process that takes it."""

    server_ms: float | None
    """CPU of a step in the server; None without one, and where the system does not tell."""

    open_client_ms: float
    open_server_ms: float | None


def lake(task: Mapping[str, Any]) -> GymEnvironment:
    """A fresh environment of the kind that is measured."""
    return GymEnvironment("FrozenLake-v1", options={"is_slippery": False})


# Servers


async def serve_assay(port: int) -> None:
    """assay's own protocol and MCP, as `assay env serve` offers them."""
    tools = tuple(lake({}).tools)
    async with EnvironmentServer(lake, ServerSettings(port=port, capacity=1000), tools=tools):
        await asyncio.Event().wait()


async def serve_openenv(port: int) -> None:
    """The wire format of OpenEnv, as lean as aiohttp allows."""
    application = web.Application()
    application.add_routes(
        [
            web.get("/health", lambda request: _json({"status": "healthy"})),
            web.get("/schema", lambda request: _json({"action": lake({}).tools[0].parameters})),
            web.get("/ws", _talk),
        ]
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
    await asyncio.Event().wait()


async def _json(value: object) -> web.Response:
    return web.json_response(value)


async def _talk(request: web.Request) -> web.WebSocketResponse:
    line = web.WebSocketResponse()
    await line.prepare(request)
    environment = lake({})
    async for message in line:
        asked = json.loads(message.data) if message.type is WSMsgType.TEXT else {"type": "close"}
        if asked["type"] == "close":
            break
        await line.send_str(json.dumps(await _answered(environment, asked)))
    await environment.close()
    return line


async def _answered(environment: Environment, asked: Mapping[str, Any]) -> dict[str, Any]:
    if asked["type"] == "reset":
        (opening,) = await environment.open(seed=asked["data"].get("seed"))
        seen, reward, done = opening.text, None, False
    else:
        call = ToolCall(id="1", name="act", arguments=asked["data"])
        step = await environment.step(Message(role="assistant", tool_calls=(call,)))
        seen, reward = step.replies[0].text, step.reward
        done = step.terminated or step.truncated
    return {"type": "observation", "data": {"observation": seen, "reward": reward, "done": done}}


SERVERS: dict[str, Callable[[int], Coroutine[Any, Any, None]]] = {
    "own": serve_assay,
    "mcp": serve_assay,
    "openenv": serve_openenv,
}
KINDS: dict[str, ServerKind] = {"own": "own", "mcp": "mcp", "openenv": "openenv"}


# Measuring


@dataclass(frozen=True)
class Side:
    """Where the environments of one path come from."""

    make: Callable[[], Environment]
    server: int | None
    """The process of the server."""

    def server_cpu_s(self) -> float | None:
        """CPU that the server has used, where the system tells."""
        # By thread and in nanoseconds: what is told for the process counts in hundredths.
        threads = Path(f"/proc/{self.server}/task").glob("*/schedstat")
        used = [int(thread.read_text().split()[0]) for thread in threads]
        return sum(used) / 1e9 if used else None


@asynccontextmanager
async def side_of(path: str) -> AsyncIterator[Side]:
    """Start what the path needs."""
    if path == "in process":
        yield Side(lambda: lake({}), None)
        return
    command = [sys.executable, str(Path(__file__)), "--serve", path, "{port}"]
    async with launch_server(command, "http://127.0.0.1:{port}") as server:
        url = f"{server.url}/mcp" if path == "mcp" else server.url
        async with RemoteEnvironments(url, kind=KINDS[path]) as environments:
            yield Side(environments.make, server.pid)


@dataclass(frozen=True)
class Moment:
    wall_s: float
    client_s: float
    server_s: float | None

    @classmethod
    def now(cls, side: Side) -> "Moment":
        return cls(time.perf_counter(), time.process_time(), side.server_cpu_s())

    def server_ms_since(self, earlier: "Moment", times: int) -> float | None:
        if self.server_s is None or earlier.server_s is None:
            return None
        return (self.server_s - earlier.server_s) / times * 1000


async def walk(environment: Environment, steps: int) -> None:
    for _ in range(steps):
        step = await environment.step(ACTION)
        assert step.reward == 0.0
        assert not step.terminated


async def measured(path: str, side: Side, sessions: int, steps: int) -> Figures:
    """One round: open all sessions, take all steps, close all sessions."""
    environments = [side.make() for _ in range(sessions)]
    begun = Moment.now(side)
    await asyncio.gather(*(each.open(seed=seed) for seed, each in enumerate(environments)))
    opened = Moment.now(side)
    await asyncio.gather(*(walk(each, steps) for each in environments))
    done = Moment.now(side)
    await asyncio.gather(*(each.close() for each in environments))
    total = sessions * steps
    return Figures(
        path=path,
        sessions=sessions,
        steps=total,
        steps_per_s=total / (done.wall_s - opened.wall_s),
        client_ms=(done.client_s - opened.client_s) / total * 1000,
        server_ms=done.server_ms_since(opened, total),
        open_client_ms=(opened.client_s - begun.client_s) / sessions * 1000,
        open_server_ms=opened.server_ms_since(begun, sessions),
    )


async def measure_all(
    paths: Sequence[str], loads: Sequence[tuple[int, int]], rounds: int
) -> list[Figures]:
    """The best round of each path and load."""
    found = []
    for path in paths:
        async with side_of(path) as side:
            await measured(path, side, 1, 10)  # what is only paid once is not what is asked
            for sessions, steps in loads:
                tries = [await measured(path, side, sessions, steps) for _ in range(rounds)]
                found.append(max(tries, key=lambda each: each.steps_per_s))
    return found


# Showing


def table(found: Sequence[Figures]) -> str:
    """Ours, then the references."""
    lines = [_line("path", "sessions", "steps/s", "client ms", "server ms", "open ms", "server ms")]
    for each in found:
        pace, client, server = each.steps_per_s, each.client_ms, each.server_ms
        opened = (_shown(each.open_client_ms), _shown(each.open_server_ms))
        lines.append(
            _line(each.path, each.sessions, f"{pace:.0f}", _shown(client), _shown(server), *opened)
        )
    for other in REFERENCES:
        pace_seen = "-" if other.steps_per_s is None else f"{other.steps_per_s:.0f}"
        costs = (_shown(other.client_ms), _shown(other.server_ms))
        lines.append(_line(f"reference: {other.what}", other.sessions, pace_seen, *costs, "", ""))
    return "\n".join(line.rstrip() for line in lines)


def _line(path: str, *cells: object) -> str:
    return f"{path:<50}" + "".join(f"{cell:>10}" for cell in cells)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def read_loads(text: str) -> list[tuple[int, int]]:
    """`1:90,50:40` is 90 steps in one session, then 40 steps in each of 50."""
    loads = []
    for part in text.split(","):
        sessions, steps = (int(number) for number in part.split(":"))
        if sessions < 1 or not 1 <= steps <= MOST_STEPS:
            raise ValueError(f"{part}: at least one session, and 1 to {MOST_STEPS} steps")
        loads.append((sessions, steps))
    return loads


def read_paths(text: str) -> list[str]:
    paths = text.split(",")
    if wrong := [path for path in paths if path not in PATHS]:
        raise ValueError(f"{wrong} are no paths; choose from {PATHS}")
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of one step of an environment.")
    parser.add_argument("--paths", type=read_paths, default=list(PATHS))
    parser.add_argument("--loads", type=read_loads, default=read_loads(LOADS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", nargs=2, metavar=("PATH", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        path, port = options.serve
        asyncio.run(SERVERS[path](int(port)))
        return
    found = asyncio.run(measure_all(options.paths, options.loads, options.rounds))
    if options.json:
        ours, theirs = [asdict(each) for each in found], [asdict(each) for each in REFERENCES]
        print(json.dumps({"figures": ours, "reference": theirs}))
    else:
        print(table(found))


if __name__ == "__main__":
    main()
