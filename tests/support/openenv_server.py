"""An OpenEnv server by its documented wire format: `/ws`, `/schema` and `/health`.

Beside the protocol, `/behave` says how to misbehave and `/journal` tells what was asked.
"""

import argparse
import asyncio
import json
import os
import random
import socket
from dataclasses import dataclass
from typing import Any

from aiohttp import WSMsgType, web

GOAL = 3
ACTION = {
    "title": "Walk",
    "description": "Walk through the corridor.",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "metadata": {"type": "object"},
        "direction": {"type": "string", "enum": ["left", "right"]},
    },
    "required": ["direction"],
}


@dataclass
class Behaviour:
    """How the server misbehaves, from which step of a session on."""

    fault: str = ""
    """`execution`, `hang`, `die`, `hang up`, `huge`, or a text to answer."""

    place: str = "step"
    at: int = 0
    capacity: int = 100
    schema: bool = True


class Server:
    def __init__(self) -> None:
        self.behaviour = Behaviour()
        self.open = 0
        self.most_open = 0
        self.resets: list[Any] = []
        self.closed = 0
        self.full = 0

    def application(self) -> web.Application:
        application = web.Application()
        application.add_routes(
            [
                web.post("/behave", self.behave),
                web.get("/journal", self.journal),
                web.get("/health", self.health),
                web.get("/schema", self.schema),
                web.get("/ws", self.talk),
            ]
        )
        return application

    async def behave(self, request: web.Request) -> web.Response:
        self.behaviour = Behaviour(**await request.json())
        self.resets, self.most_open, self.closed, self.full = [], self.open, 0, 0
        return web.json_response({})

    async def journal(self, request: web.Request) -> web.Response:
        told = ("open", "most_open", "resets", "closed", "full")
        return web.json_response({name: getattr(self, name) for name in told})

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "healthy"})

    async def schema(self, request: web.Request) -> web.Response:
        if not self.behaviour.schema:
            return web.Response(status=404)
        return web.json_response({"action": ACTION, "observation": {}, "state": {}})

    async def talk(self, request: web.Request) -> web.WebSocketResponse:
        line = web.WebSocketResponse()
        await line.prepare(request)
        if self.open >= self.behaviour.capacity:
            self.full += 1
            await line.send_json(error("CAPACITY_REACHED", "no session free", max_sessions=1))
            await line.close()
            return line
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await Session(self, line).serve()
        finally:
            self.open -= 1
        return line


class Session:
    def __init__(self, server: Server, line: web.WebSocketResponse) -> None:
        self.server = server
        self.line = line
        self.room = self.steps = 0
        self.dice = random.Random()
        self.reward: float | bool | None = None

    async def serve(self) -> None:
        async for message in self.line:
            if message.type is not WSMsgType.TEXT:
                continue
            asked = json.loads(message.data)
            if asked["type"] == "close":
                self.server.closed += 1
                return
            if not await self.misbehaves(asked["type"]):
                await self.line.send_json(self.answer(asked["type"], asked.get("data", {})))

    async def misbehaves(self, kind: str) -> bool:
        told = self.server.behaviour
        if not told.fault or told.place != kind or self.steps < told.at:
            return False
        match told.fault:
            case "execution":
                await self.line.send_json(error("EXECUTION_ERROR", "the floor gave way"))
            case "hang":
                await asyncio.sleep(3600)
            case "die":
                os._exit(1)
            case "hang up":
                await self.line.close()
            case "huge":
                await self.line.send_str(" " * (5 * 1024 * 1024))
            case text:
                await self.line.send_str(text)
        return True

    def answer(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        match kind:
            case "reset":
                self.server.resets.append(data)
                self.room = self.steps = 0
                self.dice = random.Random(data.get("seed"))
                self.reward = None
                return self.observation()
            case "step":
                if data.get("direction") not in ("left", "right"):
                    wrong = {"loc": ["direction"], "msg": "Input should be 'left' or 'right'"}
                    return error("VALIDATION_ERROR", "Invalid message", errors=[wrong])
                self.steps += 1
                self.room += 1 if data["direction"] == "right" else -1
                # The format allows true for 1.
                self.reward = True if self.room == GOAL else 0.25
                return self.observation()
            case "state":
                return {"type": "state", "data": {"step_count": self.steps}}
        return error("UNKNOWN_TYPE", f"Unknown message type: {kind}")

    def observation(self) -> dict[str, Any]:
        seen = {"room": self.room, "number": self.dice.randrange(10**6)}
        data = {"observation": seen, "reward": self.reward, "done": self.room == GOAL}
        return {"type": "observation", "data": data}


def error(code: str, message: str, **more: Any) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code, **more}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    listening = socket.create_server(("127.0.0.1", parser.parse_args().port), backlog=256)
    print(listening.getsockname()[1], flush=True)
    web.run_app(Server().application(), sock=listening, print=None, access_log=None)


if __name__ == "__main__":
    main()
