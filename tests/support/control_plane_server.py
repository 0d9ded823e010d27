"""An MCP environment with a control plane, as eval-protocol's McpGym serves it, quirks included.

A session is made by whatever first looks at it, with no seed. Resetting one that is not there does
nothing and says that it did. Seed 0 takes another way than the others. The reward is that of the
last step, whatever was called since. Only the handshake era is spoken.

Beside the protocol, `/behave` says how to misbehave and `/journal` tells what was asked.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

GOAL = 3
TOOLS = [
    {
        "name": "move",
        "description": "Walk through the corridor.",
        "inputSchema": {
            "type": "object",
            "properties": {"direction": {"type": "string", "enum": ["left", "right"]}},
            "required": ["direction"],
        },
    },
    {"name": "look", "description": "Look around.", "inputSchema": {"type": "object"}},
    {"name": "jump", "description": "Take two steps.", "inputSchema": {"type": "object"}},
]


@dataclass
class Corridor:
    """Rooms in a row with a number in each, which the seed decides."""

    seed: int | None
    made_by: str
    room: int = 0
    steps: int = 0
    reward: float = 0.0
    total: float = 0.0
    dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.number = self.dice.randrange(10**6)

    def move(self, direction: str) -> None:
        self.room += 1 if direction == "right" else -1
        self.steps += 1
        self.reward = 1.0 if self.room == GOAL else 0.25
        self.total += self.reward
        self.number = self.dice.randrange(10**6)

    def shown(self) -> dict[str, Any]:
        return {"room": self.room, "number": self.number}


@dataclass
class Behaviour:
    """How the server misbehaves, from which step of a session on."""

    place: str = ""
    """`initialize`, `list`, `tool`, `delete`, or the name of a route of the control plane."""

    fault: str = ""
    """`500`, `garbage`, `hang`, `die`, `full`, or a JSON text to answer."""

    at: int = 0
    times: int = 10**9
    answers: str = "sse"
    """`json`; `sse`; `ping`: asks something first; `cut`: ends the stream without the answer."""

    slash: bool = False
    """Serves /mcp/ only, and points there."""

    counts: bool = True
    control: bool = True


class Server:
    def __init__(self) -> None:
        self.behaviour = Behaviour()
        self.sessions: dict[str, Corridor] = {}
        self.lines: dict[str, str] = {}
        self.made: list[list[Any]] = []
        self.asked: list[list[Any]] = []
        self.hellos: list[Any] = []
        self.hung_up: list[str] = []
        self.pongs: asyncio.Queue[Any] = asyncio.Queue()
        self.connections: Counter[str] = Counter()

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self.watch])
        application.add_routes(
            [
                web.post("/behave", self.behave),
                web.get("/journal", self.journal),
                web.post("/mcp", self.post),
                web.post("/mcp/", self.post),
                web.delete("/mcp", self.delete),
                web.delete("/mcp/", self.delete),
                web.post("/control/reset_session", self.reset),
                web.get("/control/{name}", self.read),
            ]
        )
        return application

    @web.middleware
    async def watch(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path not in ("/behave", "/journal"):
            self.asked.append([request.method, request.path])
            assert request.transport is not None
            self.connections[str(request.transport.get_extra_info("peername"))] += 1
        response: web.StreamResponse = await handler(request)
        return response

    async def behave(self, request: web.Request) -> web.Response:
        self.behaviour = Behaviour(**await request.json())
        self.made, self.asked, self.hellos, self.hung_up = [], [], [], []
        self.connections.clear()
        return web.json_response({})

    async def journal(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "made": self.made,
                "asked": self.asked,
                "hellos": self.hellos,
                "hung_up": self.hung_up,
                "connections": len(self.connections),
            }
        )

    def make(self, name: str, seed: int | None, by: str) -> Corridor:
        # McpGym asks `if seed`, so that 0 is made like no seed, and reset with it.
        way = "with_seed" if seed else "then_reset"
        self.made.append([name, seed, by, way])
        self.sessions[name] = Corridor(seed, by)
        return self.sessions[name]

    async def misbehaves(self, place: str, steps: int) -> web.Response | None:
        told = self.behaviour
        if told.place != place or steps < told.at or told.times < 1:
            return None
        told.times -= 1
        match told.fault:
            case "500":
                return web.json_response({"error": "the plane is down"}, status=500)
            case "garbage":
                return web.Response(text="<html>not JSON", content_type="application/json")
            case "hang":
                await asyncio.sleep(3600)
            case "die":
                os._exit(1)
            case "full":
                return web.Response(status=429, headers={"Retry-After": "0.05"})
        return web.Response(text=told.fault, content_type="application/json")

    async def reset(self, request: web.Request) -> web.Response:
        if not self.behaviour.control:
            return web.Response(status=404, text="Not Found")
        name = request.headers.get("mcp-session-id")
        seed = (await request.json()).get("seed")
        if not name:
            return web.json_response({"error": "Missing mcp-session-id header"}, status=400)
        if wrong := await self.misbehaves("reset_session", 0):
            return wrong
        if name in self.sessions:
            self.make(name, seed, "reset_session")
        return web.json_response({"message": "Session reset successfully"})

    async def read(self, request: web.Request) -> web.Response:
        if not self.behaviour.control:
            return web.Response(status=404, text="Not Found")
        what = request.match_info["name"]
        name = request.headers.get("mcp-session-id")
        if not name:
            return web.json_response({"error": "Missing mcp-session-id header"}, status=400)
        corridor = self.sessions.get(name)
        if corridor is None:
            if what != "initial_state":
                return web.json_response({"error": f"Session {name} not found"}, status=404)
            corridor = self.make(name, None, "initial_state")
        if wrong := await self.misbehaves(what, corridor.steps):
            return wrong
        return web.json_response(self.reading(what, corridor))

    def reading(self, what: str, corridor: Corridor) -> dict[str, Any]:
        counted = {"step_count": corridor.steps} if self.behaviour.counts else {}
        match what:
            case "initial_state":
                return corridor.shown()
            case "reward":
                return {"reward": corridor.reward, **counted}
            case "status":
                over = corridor.room == GOAL
                totals = {"total_reward": corridor.total} if self.behaviour.counts else {}
                return {"terminated": over, "truncated": False, **counted, **totals}
        return {"wall": "blue"}

    async def delete(self, request: web.Request) -> web.Response:
        line = request.headers.get("mcp-session-id", "")
        if wrong := await self.misbehaves("delete", 0):
            return wrong
        self.hung_up.append(self.lines.pop(line, "?"))
        return web.Response(status=200)

    async def post(self, request: web.Request) -> web.StreamResponse:
        if self.behaviour.slash and request.path == "/mcp":
            raise web.HTTPTemporaryRedirect(f"http://{request.host}/mcp/")
        if "text/event-stream" not in request.headers.get("Accept", ""):
            return web.Response(status=406)
        message = await request.json()
        if "method" not in message:
            await self.pongs.put(message)
            return web.Response(status=202)
        line = request.headers.get("mcp-session-id")
        if message["method"] == "initialize":
            return await self.initialize(request, message)
        if line not in self.lines:
            error = {"code": -32600, "message": "Bad Request: Missing session ID"}
            body = {"jsonrpc": "2.0", "id": "server-error", "error": error}
            return web.json_response(body, status=400 if line is None else 404)
        if "id" not in message:
            return web.Response(status=202)
        return await self.answer(request, message, self.lines[line])

    async def initialize(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if wrong := await self.misbehaves("initialize", 0):
            return wrong
        params = message["params"]
        line = uuid.uuid4().hex
        extra = params["clientInfo"].get("_extra", {})
        self.hellos.append(extra)
        self.lines[line] = extra.get("session_id", line)
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "corridor", "version": "1"},
        }
        return await self.send(request, message["id"], {"result": result}, line)

    async def answer(
        self, request: web.Request, message: dict[str, Any], name: str
    ) -> web.StreamResponse:
        match message["method"]:
            case "tools/list":
                if wrong := await self.misbehaves("list", 0):
                    return wrong
                said: dict[str, Any] = {"result": {"tools": TOOLS}}
            case "tools/call":
                corridor = self.sessions.get(name) or self.make(name, None, "tools/call")
                if wrong := await self.misbehaves("tool", corridor.steps):
                    return wrong
                said = {"result": self.call(corridor, message["params"])}
            case _:
                said = {"error": {"code": -32601, "message": "Method not found"}}
        return await self.send(request, message["id"], said)

    def call(self, corridor: Corridor, params: dict[str, Any]) -> dict[str, Any]:
        direction = params["arguments"].get("direction")
        if params["name"] == "move" and direction not in ("left", "right"):
            words = f"Error executing tool move: no direction {direction!r}"
            return {"content": [{"type": "text", "text": words}], "isError": True}
        if params["name"] == "move":
            corridor.move(direction)
        if params["name"] == "jump":
            corridor.move("right")
            corridor.move("right")
        text = json.dumps(corridor.shown())
        return {"content": [{"type": "text", "text": text}], "isError": False}

    async def send(
        self, request: web.Request, number: Any, said: dict[str, Any], line: str | None = None
    ) -> web.StreamResponse:
        headers = {} if line is None else {"mcp-session-id": line}
        message = {"jsonrpc": "2.0", "id": number, **said}
        if self.behaviour.answers == "json":
            return web.json_response(message, headers=headers)
        response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": a comment\r\n\r\nid: 1\r\ndata:\r\n\r\n")
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
        await response.write(event(note))
        if self.behaviour.answers == "ping" and line is None:
            for number, method in enumerate(("ping", "sampling/createMessage")):
                await response.write(event({"jsonrpc": "2.0", "id": number, "method": method}))
                pong = await asyncio.wait_for(self.pongs.get(), 5)
                assert ("result" in pong) == (method == "ping"), pong
        if self.behaviour.answers != "cut" or line is not None:
            # In two pieces: where a network cuts is not where an event ends.
            data = event(message)
            await response.write(data[:20])
            await response.write(data[20:])
        await response.write_eof()
        return response


def event(message: dict[str, Any]) -> bytes:
    return f"event: message\r\ndata: {json.dumps(message)}\r\n\r\n".encode()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    listening = socket.create_server(("127.0.0.1", parser.parse_args().port), backlog=256)
    print(listening.getsockname()[1], flush=True)
    web.run_app(Server().application(), sock=listening, print=None, access_log=None)


if __name__ == "__main__":
    main()
