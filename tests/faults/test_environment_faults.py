"""Environments that hang, and what is kept of their samples."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.environments import BasicEnvironment, Step
from assay.runner import EvalConfig, evaluate
from assay.types import Boundary, Endpoint, Message

CHATTY = Endpoint(
    provider="mock", model="script", extra_params={"replies": ["one", "two"], "loop": True}
)


class Hanging(BasicEnvironment):
    """Rewards the first step; hangs where it is told to."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._steps = 0

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        if self._at == "open":
            await asyncio.Event().wait()
        return [Message(role="user", content="Begin.")]

    async def step(self, action: Message) -> Step:
        self._steps += 1
        if self._steps == 2:
            await asyncio.Event().wait()
        return Step(reward=1.0, replies=(Message(role="user", content="More."),))


@pytest.mark.parametrize(
    ("at", "messages", "rewards"),
    [("open", ["Go."], []), ("step", ["Go.", "Begin.", "one", "More.", "two"], [1.0])],
)
def test_an_environment_that_hangs_fails_its_sample_and_keeps_the_steps_before(
    store: Path, at: str, messages: list[str], rewards: list[float]
) -> None:
    config = EvalConfig(endpoint=CHATTY, environment=lambda sample: Hanging(at), timeout_s=0.05)

    report = asyncio.run(evaluate([{"id": "r0", "prompt": "Go."}], config, store=store))

    (sample,) = report.samples
    assert sample.failure is not None
    assert sample.failure.boundary is Boundary.ENVIRONMENT
    assert sample.failure.kind == "TimeoutError"
    assert sample.failure.message == "the sample was not finished within 0.05 s"
    trajectory = sample.trajectory
    assert trajectory is not None
    assert trajectory.termination_reason == "timeout_s"
    assert [message.text for message in trajectory.messages] == messages
    assert len(trajectory.calls) == messages.count("one") + messages.count("two")
    result = trajectory.evaluation_result
    given = [] if result is None else [each.base_reward for each in result.step_outputs or []]
    assert given == rewards
    assert trajectory.steps == len(rewards)
    assert sample.reward is None
