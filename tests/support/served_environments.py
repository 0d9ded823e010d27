"""Environments to be served by another process, and a server that breaks at step 5 as told.

    python served_environments.py PORT

serves `Counting` under assay's own protocol; the `fault` of a session's task names what happens.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

from assay.environments import BasicEnvironment, EnvironmentServer, ServerSettings, Step
from assay.types import Message, ToolSpec

FAULTY_STEP = 5


class Counting:
    """Counts what it is told, with a reward of 0.25 for each step; the tenth is the last."""

    tools: Sequence[ToolSpec] = (ToolSpec(name="count"),)

    def __init__(self) -> None:
        self.seed: int | None = None
        self.steps = 0
        self.closed = 0

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        self.seed = seed
        return (Message(role="user", content=f"Count from seed {seed}."),)

    async def step(self, action: Message) -> Step:
        self.steps += 1
        replies = tuple(
            Message(role="tool", content=str(self.steps), tool_call_id=call.id)
            for call in action.tool_calls
        )
        return Step(
            replies=replies,
            reward=0.25,
            terminated=self.steps == 10,
            info={"count": self.steps, "seed": self.seed},
            reason="counted",
            observation=[self.steps],
        )

    async def close(self) -> None:
        self.closed += 1


class Faulty(Counting):
    """Counts, and breaks at step 5 in the way that its task names."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        super().__init__()
        self._fault = task.get("fault")
        self.stuck = asyncio.Event()
        """Set when a step has begun that never ends."""

    async def step(self, action: Message) -> Step:
        if self.steps == FAULTY_STEP:
            if self._fault == "raise":
                raise RuntimeError("the counter is jammed")
            if self._fault == "endless":
                self.stuck.set()
                await asyncio.Event().wait()
            if self._fault == "nan":
                return Step(reward=float("nan"))
            if self._fault == "unwritable":
                return Step(reward=0.25, info={"when": object()})
        return await super().step(action)


class NeedsTask(BasicEnvironment):
    """Cannot be made without the word that its task must hold."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        self._word = str(task["word"])

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        return (Message(role="user", content=self._word),)


class NeedsMore(BasicEnvironment):
    """Asks for an argument that no server can give."""

    def __init__(self, places: int) -> None:
        self.places = places


def no_environment() -> str:
    """Makes something else."""
    return "not an environment"


NUMBER = 3


def breaking(server: EnvironmentServer) -> Any:
    """Middleware that answers the faulty step as no environment would."""

    @web.middleware
    async def answer(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        session_id = request.match_info.get("id")
        if session_id is None or not request.path.endswith("/step"):
            return await handler(request)
        session = server.sessions.find(session_id)
        if len(session.steps) != FAULTY_STEP:
            return await handler(request)
        return await _broken(str(session.task.get("fault"))) or await handler(request)

    return answer


async def _broken(fault: str) -> web.StreamResponse | None:
    bodies = {
        "garbage": "<html>{not json",
        "no reward": '{"step_index": 5, "replies": [], "terminated": false}',
        "reward in words": (
            '{"step_index": 5, "replies": [], "reward": "1.0", "terminated": false,'
            ' "truncated": false, "ended_by_agent": false, "info": {}, "reason": null}'
        ),
        "huge": '"' + "x" * (5 * 1024 * 1024) + '"',
    }
    if fault in bodies:
        return web.Response(text=bodies[fault], content_type="application/json")
    if fault == "page":
        return web.Response(status=500, text="<h1>Internal Server Error</h1>")
    if fault == "elsewhere":
        return web.Response(status=307, headers={"Location": "http://127.0.0.1:9/elsewhere"})
    if fault == "hang":
        await asyncio.Event().wait()
    if fault == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return None


class BreakingServer(EnvironmentServer):
    """Answers most steps as it should."""

    def _build_application(self) -> web.Application:
        application = super()._build_application()
        application.middlewares.append(breaking(self))
        return application


async def main(port: int) -> None:
    """Serve until killed."""
    async with BreakingServer(Faulty, ServerSettings(port=port)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
