"""The rollout processors of eval-protocol: its own, and the calls of custom ones."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from assay.agents import Limits, run_agent
from assay.environments import BasicEnvironment
from assay.errors import ConfigError, EnvironmentFault
from assay.formats import read_tools
from assay.providers import ModelClient, connect
from assay.types import Message, Sample, ToolSpec, Trajectory

from .completion_params import CompletionParams, parse_completion_params

Tasks = list["asyncio.Task[Sample]"]


@dataclass
class RolloutProcessorConfig:
    """The arguments of a rollout processor besides the rows."""

    completion_params: CompletionParams
    mcp_config_path: str
    semaphore: asyncio.Semaphore
    server_script_path: str | None = None
    steps: int = 30
    logger: Any = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    exception_handler_config: Any = None
    post_processor: Any = None
    client: ModelClient | None = field(default=None, repr=False)
    """The client for the model of the evaluation, which `--assay-model` may have replaced."""

    client_params: CompletionParams | None = field(default=None, repr=False)
    """The `completion_params` that `client` was made for."""


class RolloutProcessor(ABC):
    """Rolls rows out. Subclasses may prepare rows and call another processor."""

    def setup(self) -> None:
        """Called once before the first row."""
        return None

    @abstractmethod
    def __call__(self, rows: list[Sample], config: RolloutProcessorConfig) -> Tasks:
        """Start the rollout of each row, and return one task for each."""

    async def acleanup(self) -> None:
        """Called once after the last row, before `cleanup`."""
        return None

    def cleanup(self) -> None:
        """Called once after the last row."""
        return None


class NoOpRolloutProcessor(RolloutProcessor):
    """Scores the rows without a model call."""

    def __call__(self, rows: list[Sample], config: RolloutProcessorConfig) -> Tasks:
        async def keep(row: Sample) -> Sample:
            return row

        return _start_tasks([keep(row) for row in rows], config)


class SingleTurnRolloutProcessor(RolloutProcessor):
    """Calls the model once. Tools of the row are offered; calls of them are not executed."""

    def __init__(self, *, drop_trailing_assistant_messages: bool = True) -> None:
        self.drop_trailing_assistant_messages = drop_trailing_assistant_messages

    def __call__(self, rows: list[Sample], config: RolloutProcessorConfig) -> Tasks:
        return _start_tasks([self._roll_out(row, config) for row in rows], config)

    def prepare(self, row: Sample) -> list[Message]:
        """Return the messages for the model."""
        messages = list(row.messages)
        while self.drop_trailing_assistant_messages and messages:
            if messages[-1].role != "assistant":
                break
            messages.pop()
        if not messages:
            raise ConfigError(f"row {row.id!r} has no messages to send to the model")
        return messages

    async def _roll_out(self, row: Sample, config: RolloutProcessorConfig) -> Sample:
        messages, environment = self.prepare(row), SingleTurn(row)
        # A processor may change the parameters: then the evaluation's client does not fit them.
        shared = config.client if config.completion_params == config.client_params else None
        client = shared or connect(parse_completion_params(config.completion_params))
        try:
            row.trajectory = await run_agent(
                client, environment, messages, limits=Limits(max_turns=1)
            )
        finally:
            if shared is None:
                await client.close()
        return row


class SingleTurn(BasicEnvironment):
    """Offers the tools of a row; the first answer ends the episode, whatever it calls."""

    def __init__(self, sample: Sample) -> None:
        given = (sample.model_extra or {}).get("tools") or ()
        tools = read_tools(given, f"row {sample.id}: tools") if given else []
        self.tools: Sequence[ToolSpec] = [ToolSpec(**tool["function"]) for tool in tools]


class _OptionOnlyProcessor(RolloutProcessor):
    def __call__(self, rows: list[Sample], config: RolloutProcessorConfig) -> Tasks:
        raise ConfigError(
            f"{type(self).__name__} cannot be called by another rollout processor",
            where="rollout_processor",
            hint=f"assay supports rollout_processor={type(self).__name__}() only",
        )


class AgentRolloutProcessor(_OptionOnlyProcessor):
    """Runs the model with the tools of the MCP servers in `mcp_config_path` until it answers."""


class MCPGymRolloutProcessor(_OptionOnlyProcessor):
    """Runs the model in the environment that `server_script_path` serves."""


class CustomRollouts:
    """Calls the processor for one row at a time. Entering the context sets it up.

    assay schedules and repeats the rows itself.
    """

    def __init__(self, processor: RolloutProcessor, settings: Mapping[str, Any]) -> None:
        self._processor = processor
        self._settings = dict(settings)

    async def __aenter__(self) -> Callable[[Sample], BasicEnvironment]:
        self._processor.setup()
        return lambda sample: BasicEnvironment()

    async def __aexit__(self, *error: object) -> None:
        await self._processor.acleanup()
        self._processor.cleanup()

    async def roll_out(self, client: ModelClient | None, sample: Sample) -> Trajectory:
        """Return the trajectory of one row. Changes of the processor to the row are kept."""
        config = RolloutProcessorConfig(
            **deepcopy(self._settings),  # a processor may change what it receives
            # assay limits concurrency itself; processors still expect a semaphore.
            semaphore=asyncio.Semaphore(1),
            client=client,
            client_params=self._settings["completion_params"],
        )
        tasks = self._processor([sample], config)
        if not isinstance(tasks, list) or len(tasks) != 1:
            raise ConfigError(
                f"{type(self._processor).__name__} did not return one task for one row",
                where="rollout_processor",
            )
        try:
            row = await tasks[0]
        finally:
            tasks[0].cancel()
        if not isinstance(row, Sample):
            raise EnvironmentFault(
                f"{type(self._processor).__name__} returned a {type(row).__name__}, "
                "not an EvaluationRow"
            )
        # The run records this sample, so that it takes over the changes of a new row.
        if row is not sample:
            sample.ground_truth, sample.metadata = row.ground_truth, row.metadata
        return row.trajectory or Trajectory(messages=row.messages)


def _start_tasks(
    rollouts: Sequence[Coroutine[Any, Any, Sample]], config: RolloutProcessorConfig
) -> Tasks:
    async def in_turn(rollout: Coroutine[Any, Any, Sample]) -> Sample:
        async with config.semaphore:
            return await rollout

    return [asyncio.create_task(in_turn(rollout)) for rollout in rollouts]
