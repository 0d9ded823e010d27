"""Rollout processors, called as another processor calls them."""

import asyncio
from typing import Any

import pytest

from assay.errors import ConfigError, EnvironmentFault
from assay.pytest_plugin.eval_protocol import (
    AgentRolloutProcessor,
    MCPGymRolloutProcessor,
    NoOpRolloutProcessor,
    RolloutProcessor,
    RolloutProcessorConfig,
    SingleTurnRolloutProcessor,
)
from assay.pytest_plugin.eval_protocol.processors import CustomRollouts
from assay.types import Sample, Trajectory
from make import asked, called, said
from scripted import Scripted

PARAMS = {"model": "mock:fixed", "extra_body": {"text": "from the params"}}
SETTINGS: dict[str, Any] = {"completion_params": PARAMS, "mcp_config_path": ""}


def row(**fields: Any) -> Sample:
    return Sample(prompt=[asked("?")], **fields)


def process(processor: RolloutProcessor, *rows: Sample, client: Scripted | None = None) -> Any:
    async def run() -> list[Sample]:
        config = RolloutProcessorConfig(
            dict(PARAMS),
            "",
            asyncio.Semaphore(2),
            client=client,
            client_params=None if client is None else PARAMS,
        )
        return await asyncio.gather(*processor(list(rows), config))

    return asyncio.run(run())


def test_a_single_turn_is_asked_of_the_evaluations_model() -> None:
    client = Scripted(said("from the client"))

    (rolled,) = process(SingleTurnRolloutProcessor(), row(), client=client)

    assert rolled.last_assistant_message() == said("from the client")
    assert rolled.prompt == [asked("?")]


def test_without_a_client_the_completion_params_are_asked() -> None:
    (rolled,) = process(SingleTurnRolloutProcessor(), row())

    assert rolled.response == "from the params"


def test_tools_of_a_row_are_offered_and_their_calls_end_the_turn() -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    client = Scripted(said(None, called("look")))

    (rolled,) = process(SingleTurnRolloutProcessor(), row(tools=[tool]), client=client)

    assert rolled.trajectory is not None
    assert rolled.trajectory.model_extra is not None
    assert rolled.trajectory.model_extra["tools"][0]["name"] == "look"
    assert [call.name for call in rolled.messages[-1].tool_calls] == ["look"]


def test_a_row_without_messages_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no messages to send to the model"):
        process(SingleTurnRolloutProcessor(), Sample())


def test_no_op_returns_the_rows() -> None:
    rows = [row(), row()]

    assert process(NoOpRolloutProcessor(), *rows) == rows


@pytest.mark.parametrize("processor", [AgentRolloutProcessor(), MCPGymRolloutProcessor()])
def test_processors_with_servers_are_options_only(processor: RolloutProcessor) -> None:
    with pytest.raises(ConfigError, match="cannot be called by another rollout processor"):
        process(processor, row())


class Recording(RolloutProcessor):
    """Does what it is told, and remembers when it was called."""

    def __init__(self, result: Any = None) -> None:
        self.result = result
        self.calls: list[str] = []
        self.config: RolloutProcessorConfig | None = None

    def setup(self) -> None:
        self.calls.append("setup")

    async def acleanup(self) -> None:
        self.calls.append("acleanup")

    def cleanup(self) -> None:
        self.calls.append("cleanup")

    def __call__(self, rows: list[Sample], config: RolloutProcessorConfig) -> Any:
        self.config = config
        config.completion_params["temperature"] = 1.0

        async def finish() -> Any:
            self.calls.append("row")
            return rows[0] if self.result is None else self.result

        return [asyncio.create_task(finish()) for _ in rows]


def roll_out(processor: RolloutProcessor, sample: Sample) -> Trajectory:
    async def run() -> Trajectory:
        rollouts = CustomRollouts(processor, SETTINGS)
        async with rollouts:
            return await rollouts.roll_out(None, sample)

    return asyncio.run(run())


def test_a_custom_processor_is_set_up_called_and_cleaned_up() -> None:
    processor = Recording()

    trajectory = roll_out(processor, row())

    assert trajectory.messages == [asked("?")]
    assert processor.calls == ["setup", "row", "acleanup", "cleanup"]
    # A copy: what one row does to its parameters is not seen by the next.
    assert "temperature" not in PARAMS


def test_another_row_that_is_returned_lends_its_fields() -> None:
    other = Sample(prompt=[asked("other")], ground_truth="new", metadata={"a": 1})
    sample = row()

    trajectory = roll_out(Recording(other), sample)

    assert (sample.ground_truth, sample.metadata) == ("new", {"a": 1})
    assert trajectory.messages == [asked("other")]


def test_a_processor_that_returns_something_else_is_refused() -> None:
    class Nothing(RolloutProcessor):
        def __call__(self, rows: list[Sample], config: RolloutProcessorConfig) -> Any:
            return []

    with pytest.raises(EnvironmentFault, match="returned a str, not an EvaluationRow"):
        roll_out(Recording("text"), row())
    with pytest.raises(ConfigError, match="did not return one task for one row"):
        roll_out(Nothing(), row())
