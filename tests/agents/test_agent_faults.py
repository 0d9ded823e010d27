"""What broken environments do to their own rollout, and to nothing else."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest

from assay.agents import Limits, RolloutFailed, run_agent
from assay.environments import Environment, Step
from assay.environments.environment import add_rewards
from assay.errors import EndpointError, EnvironmentFault
from assay.providers import Reply
from assay.types import Boundary, EvaluateResult, Message, ToolSpec, Trajectory
from make import asked, said
from scripted import Scripted

Answer = Callable[[], Awaitable[Any]]


class Given:
    """Gives what it is told to give, or does what it is told to do."""

    def __init__(self, *steps: Any, opening: Any = (), tools: Any = (), close: Any = None) -> None:
        self._steps = list(steps)
        self._opening = opening
        self._close = close
        self.tools: Sequence[ToolSpec] = tools

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        opening: Sequence[Message] = await given(self._opening)
        return opening

    async def step(self, action: Message) -> Step:
        step: Step = await given(self._steps.pop(0))
        return step

    async def close(self) -> None:
        await given(self._close)


async def given(what: Any) -> Any:
    return await what() if callable(what) else what


async def leaves() -> None:
    sys.exit(0)


async def waits_for_what_is_cancelled() -> None:
    task = asyncio.ensure_future(asyncio.Event().wait())
    task.cancel()
    await task


OVER = Step(reward=1.0, terminated=True)


def rollout(environment: Environment, *replies: Message | Exception) -> Trajectory:
    client = Scripted(*(replies or [said("hi")] * 9))
    return asyncio.run(run_agent(client, environment, [asked("?")], limits=Limits(max_turns=5)))


def result_of(trajectory: Trajectory) -> EvaluateResult:
    assert trajectory.evaluation_result is not None
    return trajectory.evaluation_result


def failed(environment: Any) -> RolloutFailed:
    with pytest.raises(RolloutFailed) as caught:
        rollout(environment)
    assert caught.value.trajectory.termination_reason == "error"
    return caught.value


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (Given(None), "`step` returned None, not a `Step`"),
        (Given(Step(replies="hello")), "`Step.replies` is 'hello'"),  # type: ignore[arg-type]
        (Given(Step(reward=1.0, reason=3)), "`Step.reason` is 3"),  # type: ignore[arg-type]
        (Given(Step(reward=1.0, info={"a": object()})), r"`Step.info['a']` cannot be written"),
        (Given(Step(observation=object())), "`Step.observation` cannot be written"),
        (Given(Step(reward=1e308), Step(reward=1e308)), "the rewards add up to inf"),
        (Given(opening="hello"), "`open` is 'hello'"),
        (Given(tools=[print]), "`tools` contains <built-in function print>"),
        (Given(tools=[ToolSpec(name="x", parameters={"default": object()})]), "serialize"),
        (None, "'NoneType' object has no attribute 'open'"),
    ],
)
def test_what_is_no_step_and_no_environment_fails_the_rollout_alone(broken: Any, told: str) -> None:
    failure = failed(broken)

    assert failure.boundary is Boundary.ENVIRONMENT
    assert told in str(failure)


@pytest.mark.parametrize("broken", [Given(leaves), Given(opening=leaves)])
def test_an_environment_that_leaves_the_process_fails_its_rollout(broken: Given) -> None:
    failure = failed(broken)

    assert failure.boundary is Boundary.ENVIRONMENT
    assert isinstance(failure.__cause__, EnvironmentFault)
    assert isinstance(failure.__cause__.__cause__, SystemExit)
    assert str(failure) == "environment: the environment called sys.exit(0)"


@pytest.mark.parametrize(
    "broken",
    [Given(waits_for_what_is_cancelled), Given(opening=waits_for_what_is_cancelled)],
)
def test_a_cancellation_from_within_is_a_fault(broken: Given) -> None:
    failure = failed(broken)

    assert failure.boundary is Boundary.ENVIRONMENT
    assert str(failure) == "environment: an operation that the environment awaited was cancelled"


def test_a_group_of_tasks_that_failed_before_does_not_make_it_one_from_outside() -> None:
    async def breaks() -> None:
        raise ValueError

    async def scenario() -> None:
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(breaks())
        with pytest.raises(RolloutFailed):
            await run_agent(Scripted(said("hi")), Given(waits_for_what_is_cancelled), [])

    asyncio.run(scenario())


def test_a_model_that_is_cancelled_or_leaves_is_the_endpoints_fault() -> None:
    class Gone(Scripted):
        async def complete(
            self,
            messages: Sequence[Message],
            *,
            tools: Sequence[ToolSpec] = (),
            seed: int | None = None,
        ) -> Reply:
            await self.leave()
            raise AssertionError("unreachable")

        leave: Answer = staticmethod(leaves)

    for leave, words in (
        (leaves, "the endpoint called sys.exit(0)"),
        (waits_for_what_is_cancelled, "an operation that the endpoint awaited was cancelled"),
    ):
        client = Gone()
        client.leave = leave
        with pytest.raises(RolloutFailed) as caught:
            asyncio.run(run_agent(client, Given(OVER), []))
        assert isinstance(caught.value.__cause__, EndpointError)
        assert str(caught.value) == f"endpoint: {words}"


def test_an_error_that_cannot_say_what_it_is_is_one_all_the_same() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    async def breaks() -> None:
        raise Mute

    assert isinstance(failed(Given(breaks)).__cause__, Mute)
    trajectory = rollout(Given(OVER, close=breaks))
    close_error = (trajectory.model_extra or {})["close_error"]
    assert "Mute: (reading the error message failed: ValueError)" in close_error


@pytest.mark.parametrize(
    ("close", "told"),
    [
        (leaves, "EnvironmentFault: the environment called sys.exit(0)"),
        (
            waits_for_what_is_cancelled,
            "EnvironmentFault: an operation that the environment awaited was cancelled",
        ),
    ],
)
def test_closing_badly_does_not_undo_what_happened(close: Answer, told: str) -> None:
    trajectory = rollout(Given(OVER, close=close))

    assert result_of(trajectory).reward == 1.0
    assert (trajectory.model_extra or {})["close_error"].startswith(told)


def test_an_environment_without_close_is_used_all_the_same() -> None:
    class Endless(Given):
        close = property()  # as if it had none

    trajectory = rollout(Endless(OVER))

    assert result_of(trajectory).reward == 1.0
    assert "AttributeError" in (trajectory.model_extra or {})["close_error"]


def test_what_an_environment_means_is_taken() -> None:
    hello = {"role": "user", "content": "hello"}
    environment = Given(
        Step(replies=[hello], reward=0.5, info=None),  # type: ignore[arg-type]
        Step(reward=0.5, terminated=True, info={"grid": np.zeros(2)}, observation=np.ones(1)),
        opening=[hello],
        tools=[{"name": "go"}],
    )

    trajectory = rollout(environment)

    result = result_of(trajectory)
    assert [message.text for message in trajectory.messages] == ["?", "hello", "hi", "hello", "hi"]
    assert result.reward == 1.0
    assert result.final_control_plane_info == {"grid": [0.0, 0.0]}
    assert trajectory.observations == [[1.0]]
    assert (trajectory.model_extra or {})["tools"] == [{"name": "go"}]
    assert Trajectory.from_json(trajectory.to_json()) == trajectory


def test_each_step_keeps_the_info_it_came_with() -> None:
    info = {"n": 0}

    class Counting(Given):
        async def step(self, action: Message) -> Step:
            info["n"] += 1
            return Step(reward=0.0, terminated=info["n"] == 2, info=info)

    outputs = result_of(rollout(Counting())).step_outputs

    assert [output.control_plane_info for output in outputs or ()] == [{"n": 1}, {"n": 2}]


def test_the_final_info_is_that_of_the_step_that_ended_the_episode() -> None:
    bought = Step(reward=0.5, info={"final": False})
    left = Step(terminated=True, ended_by_agent=True, info={"final": True})

    result = result_of(rollout(Given(bought, left)))

    assert result.final_control_plane_info == {"final": True}
    assert [output.base_reward for output in result.step_outputs or ()] == [0.5]
    assert result.reward == 0.5


def test_an_answer_that_is_no_step_of_the_control_plane_has_no_final_info() -> None:
    bought = Step(reward=0.5, info={"final": False})

    result = result_of(rollout(Given(bought, Step(terminated=True, ended_by_agent=True))))

    assert result.final_control_plane_info is None


@pytest.mark.parametrize("after", [[Step(reward=1.0, terminated=True)], [Step(terminated=True)]])
def test_a_reward_that_is_unknown_after_a_known_one_makes_the_result_invalid(
    after: list[Step],
) -> None:
    result = result_of(rollout(Given(Step(reward=0.5), Step(), *after)))

    assert (result.score, result.is_score_valid, result.reward) == (None, False, None)
    told = [output.base_reward for output in result.step_outputs or ()]
    assert told == [0.5, None, *(step.reward for step in after)]
    assert "the reward of step 1" in (result.error or "")
    assert "is unknown" in (result.error or "")
    assert EvaluateResult.from_json(result.to_json()) == result


def test_an_environment_may_give_its_first_reward_at_the_end() -> None:
    result = result_of(rollout(Given(Step(), Step(), OVER)))

    assert result.reward == 1.0
    assert result.error is None
    assert [output.step_index for output in result.step_outputs or ()] == [2]


@pytest.mark.parametrize(
    ("before", "rewards", "total"),
    [
        ([], (1.0, None), None),
        ([], (1.0, None, 1.0), None),
        ([], (None, 1.0), 2.0),
        ([Step(reward=0.5)], (None, 1.0), None),
        ([Step(reward=0.5)], (0.25, 0.25), 2.0),
        ([], (None, None), 1.0),
    ],
)
def test_an_unknown_reward_is_found_among_the_steps_of_one_exchange(
    before: list[Step], rewards: tuple[float | None, ...], total: float | None
) -> None:
    exchange = Step(reward=add_rewards(rewards), rewards=rewards)

    result = result_of(rollout(Given(*before, exchange, OVER)))

    assert (result.score, result.is_score_valid) == (total, total is not None)
    if total is None:
        told = [output.base_reward for output in result.step_outputs or ()]
        assert told == [*(step.reward for step in before), None, 1.0]


def test_an_exchange_in_which_the_environment_took_no_step_has_no_unknown_reward() -> None:
    mistake = Step(acted=False)

    result = result_of(rollout(Given(Step(reward=0.5), mistake, OVER)))

    assert result.reward == 1.5
    assert [output.step_index for output in result.step_outputs or ()] == [0, 2]


def test_an_episode_that_a_limit_ends_after_an_unknown_reward_is_invalid() -> None:
    result = result_of(rollout(Given(*[Step(reward=0.5)] * 4, Step())))

    assert (result.reward, result.reason) == (None, "max_turns")


def test_an_episode_that_was_cut_short_has_no_final_info() -> None:
    cut = Step(reward=1.0, truncated=True, info={"TimeLimit.truncated": True})

    trajectory = rollout(Given(Step(reward=0.0), cut))

    assert trajectory.termination_reason == "environment"
    assert trajectory.truncated
    assert not trajectory.terminated
    assert trajectory.steps == 2
    assert result_of(trajectory).final_control_plane_info is None
