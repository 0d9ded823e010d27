"""Samples that a limit ends early: what is kept of them, and whose side the failure is on."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from assay.agents import Limits
from assay.environments import BasicEnvironment, Step
from assay.errors import EndpointError
from assay.providers import ModelClient
from assay.runner import EvalConfig, Stop
from assay.store import Store
from assay.types import Boundary, Message, Sample, Trajectory
from runner_runs import ECHO, NO_RETRIES, right, rows, run, scripted

MOMENT_S = 0.05


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
        if self._at == "step" and self._steps == 2:
            await asyncio.Event().wait()
        return Step(reward=1.0, replies=(Message(role="user", content="More."),))


def ended(store: Path, **settings: Any) -> Sample:
    config = EvalConfig(**{"score_fn": right, "timeout_s": MOMENT_S, **settings})
    (sample,) = run(rows(1), config, store=store).samples
    return sample


def trajectory_of(sample: Sample) -> Trajectory:
    assert sample.trajectory is not None
    return sample.trajectory


def boundary_of(sample: Sample) -> Boundary:
    assert sample.failure is not None
    assert sample.failure.kind == "TimeoutError"
    assert sample.failure.message == f"the sample was not finished within {MOMENT_S} s"
    return sample.failure.boundary


def test_a_timeout_while_the_environment_opens_is_the_environments(store: Path) -> None:
    sample = ended(store, endpoint=ECHO, environment=lambda sample: Hanging("open"))

    assert boundary_of(sample) is Boundary.ENVIRONMENT
    assert [message.text for message in trajectory_of(sample).messages] == ["Say 0"]


def test_a_timeout_while_the_model_answers_keeps_the_answers_before(store: Path) -> None:
    sample = ended(
        store,
        endpoint=scripted("one", {"error": {"status": 429, "retry_after": 20}}, "two"),
        environment=lambda sample: Hanging("never"),
    )

    assert boundary_of(sample) is Boundary.ENDPOINT
    trajectory = trajectory_of(sample)
    assert [m.text for m in trajectory.messages] == ["Say 0", "Begin.", "one", "More."]
    assert trajectory.termination_reason == "timeout_s"


def test_the_result_of_a_sample_that_ended_early_has_the_steps_before(store: Path) -> None:
    endpoint = scripted("one", "two")
    sample = ended(store, endpoint=endpoint, environment=lambda sample: Hanging("step"))

    assert boundary_of(sample) is Boundary.ENVIRONMENT
    assert sample.score is not None
    assert sample.reward is None
    assert [step.base_reward for step in sample.score.step_outputs or ()] == [1.0]
    assert sample.score.trajectory_info is not None
    assert sample.score.trajectory_info["steps"] == 1
    assert sample.score.trajectory_info["termination_reason"] == "timeout_s"


def test_a_timeout_while_scoring_keeps_the_whole_rollout(store: Path) -> None:
    async def hangs(sample: Sample) -> float:
        await asyncio.Event().wait()
        return 1.0

    sample = ended(store, endpoint=ECHO, score_fn=hangs)

    assert boundary_of(sample) is Boundary.SCORER
    assert trajectory_of(sample).termination_reason == "agent"
    assert sample.response == "Say 0"


def test_max_seconds_cuts_a_rollout_short_and_keeps_what_was_before(store: Path) -> None:
    sample = ended(
        store,
        endpoint=scripted("one", "two", loop=True),
        environment=lambda sample: Hanging("step"),
        score_fn=lambda sample: 0.5,
        timeout_s=60,
        limits=Limits(max_seconds=MOMENT_S),
    )

    assert sample.reward == 0.5
    trajectory = trajectory_of(sample)
    assert trajectory.termination_reason == "max_seconds"
    assert (trajectory.steps, len(trajectory.messages)) == (1, 5)


def test_any_other_refusal_is_no_full_context(store: Path) -> None:
    refused = scripted({"error": {"status": 400, "message": "no such sampling setting"}})

    sample = ended(store, endpoint=refused, client=NO_RETRIES)

    assert trajectory_of(sample).termination_reason == "error"


def test_a_stop_at_once_during_a_limited_sample_records_no_failure(store: Path) -> None:
    stop = Stop(grace_s=0)

    class Asking(Hanging):
        async def step(self, action: Message) -> Step:
            asyncio.get_running_loop().call_soon(stop.request)
            await asyncio.Event().wait()
            raise AssertionError

    config = EvalConfig(
        endpoint=ECHO,
        score_fn=right,
        timeout_s=3600,
        environment=lambda sample: Asking("step"),
    )

    assert run(rows(1), config, store=store, stop=stop).interrupted

    with Store.open(store) as opened:
        assert list(opened.run().results()) == []
        assert list(opened.run().attempts()) == []


def test_a_timeout_that_the_environment_swallows_ends_the_rollout_all_the_same(store: Path) -> None:
    class Deaf(BasicEnvironment):
        async def step(self, action: Message) -> Step:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(MOMENT_S / 2)
            return Step()

    sample = ended(
        store,
        endpoint=scripted("go", loop=True),
        environment=lambda sample: Deaf(),
        limits=Limits(max_turns=100_000),
    )

    assert sample.failure is not None
    assert sample.failure.kind == "TimeoutError"
    assert trajectory_of(sample).termination_reason == "timeout_s"
    assert (trajectory_of(sample).steps or 0) < 100


async def ask_twice(client: ModelClient | None, sample: Sample) -> Trajectory:
    assert client is not None
    messages = list(sample.messages)
    for _ in range(2):
        messages.append((await asyncio.gather(client.complete(messages)))[0].message)
    return Trajectory(messages=messages)


def test_a_timeout_in_a_rollout_function_keeps_the_conversation(store: Path) -> None:
    waits = scripted("one", {"error": {"status": 429, "retry_after": 20}}, "two")

    sample = ended(store, endpoint=waits, rollout_fn=ask_twice)

    assert boundary_of(sample) is Boundary.ENDPOINT
    assert [message.text for message in trajectory_of(sample).messages] == ["Say 0", "one"]
    assert len(trajectory_of(sample).calls) == 1
    assert trajectory_of(sample).termination_reason == "timeout_s"


def test_a_timeout_in_a_rollout_functions_own_code_is_the_environments(store: Path) -> None:
    async def ask_and_hang(client: ModelClient | None, sample: Sample) -> Trajectory:
        assert client is not None
        await client.complete(sample.messages)
        await asyncio.Event().wait()
        raise AssertionError

    sample = ended(store, endpoint=ECHO, rollout_fn=ask_and_hang)

    assert boundary_of(sample) is Boundary.ENVIRONMENT
    assert [message.text for message in trajectory_of(sample).messages] == ["Say 0", "Say 0"]


def test_a_model_that_fails_in_a_rollout_function_is_the_endpoints(store: Path) -> None:
    endpoint = scripted("one", {"error": {"status": 400}})

    sample = ended(
        store, endpoint=endpoint, client=NO_RETRIES, rollout_fn=ask_twice, timeout_s=None
    )

    assert sample.failure is not None
    assert sample.failure.kind == EndpointError.__name__
    assert sample.failure.boundary is Boundary.ENDPOINT
    assert len(trajectory_of(sample).calls) == 1
