"""An agent that is a model: the model of the manifest, or one at an address."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from assay.environments import BasicEnvironment, Environment, Step, Toolbox
from assay.providers import (
    REAL_TIME,
    ClientSettings,
    ModelNameRecorder,
    Timing,
    connect,
    format_endpoint_name,
)
from assay.types import (
    AgentDefinition,
    Endpoint,
    InlineTool,
    Message,
    Sample,
    ToolSpec,
    stable_id,
    thaw,
)

from .certified_agent import AgentAnswer
from .turn_loop import run_agent

# Seconds that the client slept between attempts, collected for each task.
_retry_waits: ContextVar[list[float] | None] = ContextVar("waited", default=None)


class EndpointAgent:
    """Calls a model with the system prompt and the tools of the manifest."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        definition: AgentDefinition | None,
        tools: "ToolCode | None" = None,
        settings: ClientSettings,
    ) -> None:
        self.endpoint = endpoint
        self.name = ("own model " if definition else "") + format_endpoint_name(endpoint)
        self.sha256 = None if tools is None else tools.sha256
        self._system = None if definition is None else build_system_prompt(definition)
        self._tools = tools
        self.identity = stable_id(
            [self.name, endpoint.to_dict(), self._system, self.sha256, endpoint.extra_params]
        )
        # The mock simulates latency with the same `sleep`: recorded, it would count as waiting.
        timing = REAL_TIME if endpoint.provider == "mock" else Timing(sleep=_sleep_and_record)
        self._client = ModelNameRecorder(connect(endpoint, settings, timing=timing))

    async def answer(self, sample: Sample, *, seed: int | None) -> AgentAnswer:
        """Run the model and its tools until it answers without a tool call."""
        waited: list[float] = []
        _retry_waits.set(waited)
        messages = sample.messages
        if self._system is not None:
            messages = [self._system, *messages]
        environment: Environment = BasicEnvironment()
        if self._tools is not None:
            environment = self._tools.environment()
        started = time.perf_counter()
        trajectory = await run_agent(self._client, environment, messages, seed=seed)
        seconds = time.perf_counter() - started
        return AgentAnswer(trajectory, max(seconds - sum(waited), 0.0))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


async def _sleep_and_record(seconds: float) -> None:
    started = time.perf_counter()
    try:
        await asyncio.sleep(seconds)
    finally:
        waited = _retry_waits.get()
        if waited is not None:
            waited.append(time.perf_counter() - started)


def build_system_prompt(definition: AgentDefinition) -> Message:
    """Build the system message from role, goal and backstory of the manifest."""
    parts = [
        f"You are {definition.name}. Your role: {definition.role}",
        f"Your goal: {definition.goal}",
    ]
    if definition.backstory:
        parts.append(definition.backstory)
    return Message(role="system", content="\n\n".join(parts))


class ToolCode:
    """The tools that a manifest describes, and the functions that implement them."""

    def __init__(
        self,
        tools: Sequence[InlineTool],
        functions: Sequence[Callable[..., Any]],
        sha256: str | None,
    ) -> None:
        self.sha256 = sha256
        self._toolbox = Toolbox(functions)
        self._specs = tuple(
            ToolSpec(
                name=tool.name,
                description=tool.description,
                parameters=thaw(tool.parameters),
            )
            for tool in tools
        )

    def environment(self) -> Environment:
        """Make a fresh environment for one sample."""
        return _ToolCallEnvironment(self._specs, self._toolbox)


class _ToolCallEnvironment(BasicEnvironment):
    """Answers calls of tools; an answer without a call ends the episode."""

    def __init__(self, specs: Sequence[ToolSpec], toolbox: Toolbox) -> None:
        self.tools = specs
        self._toolbox = toolbox

    async def step(self, action: Message) -> Step:
        if not action.tool_calls:
            return Step(terminated=True, ended_by_agent=True)
        return Step(replies=await self._toolbox.answer(action.tool_calls))
