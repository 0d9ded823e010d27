"""The turn loop: who ends it, what is kept, and what a failure leaves behind."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from assay.agents import Limits, RolloutFailed, run_agent
from assay.environments import BasicEnvironment, CalculatorEnvironment, Environment, Step
from assay.errors import EndpointError
from assay.providers import Reply
from assay.types import (
    AgentSession,
    Boundary,
    Endpoint,
    Message,
    ModelCall,
    Status,
    ToolCall,
    ToolSpec,
    Trajectory,
    Usage,
)
from make import asked, called, said
from scripted import Scripted


def rollout(client: Scripted, environment: Environment, limits: Limits | None = None) -> Trajectory:
    return asyncio.run(run_agent(client, environment, [asked("5 + 3?")], limits=limits, seed=7))


class Hanging(Scripted):
    """Never answers."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class Corridor:
    """Three steps to the right reach the goal."""

    tools: Sequence[ToolSpec] = (ToolSpec(name="right"),)

    def __init__(self, *, rewards: Sequence[float] = (0.0, 0.0, 1.0), breaks_at: int = 99) -> None:
        self._rewards = rewards
        self._breaks_at = breaks_at
        self._place = 0
        self.seed: int | None = None
        self.closed = 0

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        self.seed = seed
        return (Message(role="user", content="place 0"),)

    async def step(self, action: Message) -> Step:
        if self._place == self._breaks_at:
            raise ConnectionError("the server is gone")
        reward = self._rewards[self._place]
        self._place += 1
        return Step(
            replies=(Message(role="user", content=f"place {self._place}"),),
            reward=reward,
            terminated=self._place == len(self._rewards),
            info={"place": self._place},
        )

    async def close(self) -> None:
        self.closed += 1


STEP = said(None, called("right"))


def test_a_tool_conversation_ends_when_the_agent_answers() -> None:
    client = Scripted(said(None, called("calculate", expression="5+3")), said("8"))

    trajectory = rollout(client, CalculatorEnvironment())

    assert [message.role for message in trajectory.messages] == (
        ["user", "assistant", "tool", "assistant"]
    )
    assert trajectory.messages[2].text == "8"
    assert trajectory.termination_reason == "agent"
    assert trajectory.terminated
    assert not trajectory.truncated
    assert trajectory.steps == 2
    assert trajectory.duration is not None
    assert trajectory.evaluation_result is None


def test_every_model_call_is_recorded_with_its_place() -> None:
    client = Scripted(said(None, called("calculate", expression="5+3")), said("8"))

    trajectory = rollout(client, CalculatorEnvironment())

    assert [call.message_index for call in trajectory.calls] == [1, 3]
    assert client.asked[1] == trajectory.messages[:3]
    assert client.seeds == [7, 7]


def test_the_tools_that_the_model_was_told_of_are_recorded() -> None:
    told = rollout(Scripted(STEP, STEP, STEP), Corridor())
    untold = rollout(Scripted(said("8")), BasicEnvironment())

    assert (told.model_extra or {})["tools"] == [{"name": "right"}]
    assert not untold.model_extra


def test_rewards_become_steps_and_one_result() -> None:
    environment = Corridor()

    trajectory = rollout(Scripted(STEP, STEP, STEP), environment)

    result = trajectory.evaluation_result
    assert result is not None
    assert result.step_outputs is not None
    assert result.reward == 1.0
    assert [step.step_index for step in result.step_outputs] == [0, 1, 2]
    assert [step.base_reward for step in result.step_outputs] == [0.0, 0.0, 1.0]
    assert [step.terminated for step in result.step_outputs] == [False, False, True]
    assert result.step_outputs[0].metrics == {"tool_calls": ["right"]}
    assert result.final_control_plane_info == {"place": 3}
    assert result.reason == trajectory.termination_reason == "environment"
    assert result.trajectory_info == {
        "duration": trajectory.duration,
        "steps": 3,
        "termination_reason": "environment",
    }
    assert (environment.seed, environment.closed) == (7, 1)


def test_the_control_plane_is_never_shown_to_the_agent() -> None:
    trajectory = rollout(Scripted(STEP, STEP, STEP), Corridor())

    assert "1.0" not in str([message.content for message in trajectory.messages])


@pytest.mark.parametrize(
    ("limits", "usage", "reason"),
    [
        (Limits(max_turns=2), None, "max_turns"),
        (Limits(max_tokens=25), Usage(input_tokens=8, output_tokens=5), "max_tokens"),
        (Limits(max_tokens=25), None, "max_tokens (usage unknown)"),
        (Limits(max_cost_usd=0.02), Usage(cost_usd=0.01), "max_cost_usd"),
        (Limits(max_cost_usd=0.02), Usage(input_tokens=1), "max_cost_usd (price unknown)"),
    ],
)
def test_a_limit_cuts_the_rollout_short_and_says_which(
    limits: Limits, usage: Usage | None, reason: str
) -> None:
    trajectory = rollout(Scripted(STEP, STEP, STEP, usage=usage), Corridor(), limits)

    assert trajectory.termination_reason == reason
    assert trajectory.truncated
    assert not trajectory.terminated
    assert trajectory.evaluation_result is not None
    assert trajectory.evaluation_result.final_control_plane_info is None


def test_an_answer_that_ends_the_episode_is_no_limit() -> None:
    trajectory = rollout(Scripted(said("8")), BasicEnvironment(), Limits(max_turns=1))

    assert trajectory.termination_reason == "agent"
    assert not trajectory.truncated


def test_the_wall_clock_cuts_a_hanging_model_off() -> None:
    environment = Corridor()

    trajectory = rollout(Hanging(), environment, Limits(max_seconds=0.02))

    assert trajectory.termination_reason == "max_seconds"
    assert trajectory.truncated
    assert environment.closed == 1


def test_a_broken_environment_keeps_the_steps_so_far_and_gives_no_score() -> None:
    environment = Corridor(breaks_at=2)

    with pytest.raises(RolloutFailed, match="the server is gone") as caught:
        rollout(Scripted(STEP, STEP, STEP), environment)

    failed = caught.value
    assert failed.boundary is Boundary.ENVIRONMENT
    assert isinstance(failed.__cause__, ConnectionError)
    assert failed.trajectory.termination_reason == "error"
    assert len(failed.trajectory.calls) == 3
    result = failed.trajectory.evaluation_result
    assert result is not None
    assert result.step_outputs is not None
    assert len(result.step_outputs) == 2
    assert result.reward is None
    assert environment.closed == 1


def test_a_broken_endpoint_is_told_apart_from_a_broken_environment() -> None:
    environment = Corridor()

    with pytest.raises(RolloutFailed) as caught:
        rollout(Scripted(STEP, EndpointError("overloaded", status=529)), environment)

    assert caught.value.boundary is Boundary.ENDPOINT
    assert isinstance(caught.value.__cause__, EndpointError)
    assert len(caught.value.trajectory.messages) == 4
    assert environment.closed == 1


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_a_fault_of_the_environment(reward: float) -> None:
    with pytest.raises(RolloutFailed, match="the reward is") as caught:
        rollout(Scripted(STEP, STEP), Corridor(rewards=(0.0, reward)))

    assert caught.value.boundary is Boundary.ENVIRONMENT


def test_an_environment_that_cannot_be_closed_does_not_undo_what_happened() -> None:
    class Sticky(Corridor):
        async def close(self) -> None:
            raise OSError("will not go")

    trajectory = rollout(Scripted(STEP, STEP, STEP), Sticky())

    assert trajectory.evaluation_result is not None
    assert trajectory.evaluation_result.reward == 1.0
    assert (trajectory.model_extra or {})["close_error"] == "OSError: will not go"


def test_cancelling_closes_the_environment_and_is_no_failure() -> None:
    environment = Corridor()

    async def cancelled() -> None:
        task = asyncio.create_task(run_agent(Hanging(), environment, []))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())

    assert environment.closed == 1


def test_cancelling_also_ends_closing() -> None:
    class Slow(Corridor):
        async def close(self) -> None:
            self.closed += 1
            await asyncio.Event().wait()

    environment = Slow()

    async def cancelled() -> None:
        task = asyncio.create_task(run_agent(Scripted(STEP, STEP, STEP), environment, []))
        while not environment.closed:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


TOO_LONG = EndpointError("400: maximum context length is 10 tokens", status=400, retryable=False)


def test_a_conversation_that_fills_the_context_is_truncated_and_keeps_its_rewards() -> None:
    trajectory = rollout(Scripted(STEP, STEP, TOO_LONG), Corridor(rewards=(0.25, 0.5, 1.0)))

    assert trajectory.termination_reason == "context"
    assert (trajectory.truncated, trajectory.terminated) == (True, False)
    assert len(trajectory.calls) == trajectory.steps == 2
    assert trajectory.evaluation_result is not None
    assert trajectory.evaluation_result.score == 0.75


def test_a_first_message_that_does_not_fit_is_a_failure_of_the_endpoint() -> None:
    with pytest.raises(RolloutFailed) as caught:
        rollout(Scripted(TOO_LONG), Corridor())

    assert caught.value.boundary is Boundary.ENDPOINT
    assert caught.value.trajectory.termination_reason == "context"


def test_a_later_error_that_is_not_about_the_context_is_still_a_failure() -> None:
    with pytest.raises(RolloutFailed, match="overloaded"):
        rollout(Scripted(STEP, EndpointError("503: overloaded")), Corridor())


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ({"finish_reason": "length", "context_full": True}, "context"),
        ({"finish_reason": "model_context_window_exceeded"}, "context"),
        ({"finish_reason": "length"}, "agent"),
    ],
)
def test_half_an_answer_at_the_end_of_the_context_is_truncated(
    ending: dict[str, object], reason: str
) -> None:
    class Cut(Scripted):
        async def complete(
            self,
            messages: Sequence[Message],
            *,
            tools: Sequence[ToolSpec] = (),
            seed: int | None = None,
        ) -> Reply:
            reply = await super().complete(messages, tools=tools, seed=seed)
            return Reply(reply.message, ModelCall.model_validate(ending))

    trajectory = rollout(Cut(said("The answer is")), BasicEnvironment())

    assert trajectory.termination_reason == reason
    assert trajectory.truncated is (reason == "context")
    assert trajectory.messages[-1].text == "The answer is"


def test_an_environment_that_is_done_ended_the_rollout_though_the_context_is_full() -> None:
    class Full(Scripted):
        async def complete(
            self,
            messages: Sequence[Message],
            *,
            tools: Sequence[ToolSpec] = (),
            seed: int | None = None,
        ) -> Reply:
            reply = await super().complete(messages, tools=tools, seed=seed)
            full = ModelCall.model_validate({"finish_reason": "length", "context_full": True})
            return Reply(reply.message, full)

    trajectory = rollout(Full(STEP), Corridor(rewards=(1.0,)))

    assert (trajectory.termination_reason, trajectory.truncated) == ("environment", False)


def test_the_environment_and_the_model_have_seeds_of_their_own() -> None:
    model, corridor = Scripted(STEP, STEP, STEP), Corridor()

    asyncio.run(run_agent(model, corridor, [asked("Go.")], seed=0, sampling_seed=9))

    assert corridor.seed == 0
    assert model.seeds == [9, 9, 9]


def test_one_seed_is_for_both() -> None:
    model, corridor = Scripted(STEP, STEP, STEP), Corridor()

    asyncio.run(run_agent(model, corridor, [asked("Go.")], seed=0))

    assert (corridor.seed, model.seeds) == (0, [0, 0, 0])


class LeftAlone(Corridor):
    """Words end the rollout, and leave the corridor as it is."""

    async def step(self, action: Message) -> Step:
        if action.tool_calls:
            return await super().step(action)
        return Step(reward=0.0, ended_by_agent=True, acted=False, info={"place": self._place})


def test_an_agent_that_stops_does_not_terminate_the_environment() -> None:
    trajectory = rollout(Scripted(STEP, said("Enough.")), LeftAlone())

    assert (trajectory.terminated, trajectory.truncated) == (False, False)
    assert trajectory.termination_reason == "agent"
    assert trajectory.steps == 1
    result = trajectory.evaluation_result
    assert result is not None
    assert result.final_control_plane_info is None
    assert [step.terminated for step in result.step_outputs or ()] == [False]
    assert result.trajectory_info is not None
    assert result.trajectory_info["steps"] == 1


def test_a_penalty_for_a_step_that_was_not_taken_is_kept_as_one() -> None:
    class Strict(LeftAlone):
        async def step(self, action: Message) -> Step:
            step = await super().step(action)
            return step if action.tool_calls else replace(step, reward=-1.0)

    result = rollout(Scripted(STEP, said("Enough.")), Strict()).evaluation_result

    assert result is not None
    assert [step.base_reward for step in result.step_outputs or ()] == [0.0, -1.0]
    assert result.reward == -1.0


def test_the_session_and_the_actions_are_recorded() -> None:
    half = ToolCall.model_validate({"name": "right", "arguments": '{"by": '})
    by_two = said(None, called("right", by=2), half)

    trajectory = rollout(Scripted(STEP, by_two, STEP), Corridor())

    assert trajectory.session == {"environment": "Corridor", "seed": 7}
    assert trajectory.actions == ["right({})", 'right({"by":2})', 'right({"by": )', "right({})"]
    assert Trajectory.from_json(trajectory.to_json()) == trajectory


def test_the_actions_in_an_environment_without_tools_are_what_the_agent_wrote() -> None:
    class Guessing(Corridor):
        tools = ()

    trajectory = rollout(Scripted(said("4"), said("7"), said("8")), Guessing())

    assert trajectory.steps == 3
    assert trajectory.actions == ["4", "7", "8"]


def test_a_rollout_without_an_environment_has_no_session() -> None:
    trajectory = rollout(Scripted(said("8")), BasicEnvironment())

    assert (trajectory.session, trajectory.actions) == (None, [])


def test_an_environment_describes_its_session() -> None:
    class Numbered(Corridor):
        def describe_session(self) -> dict[str, object]:
            return {"session_id": "s1", "place": self._place}

    trajectory = rollout(Scripted(STEP, STEP, STEP), Numbered())

    assert trajectory.session == {
        "environment": "Numbered",
        "seed": 7,
        "session_id": "s1",
        "place": 0,
    }


def test_a_session_that_cannot_be_written_is_a_fault_of_the_environment() -> None:
    class Odd(Corridor):
        def describe_session(self) -> dict[str, object]:
            return {"handle": object()}

    with pytest.raises(RolloutFailed) as failed:
        rollout(Scripted(STEP), Odd())

    assert failed.value.boundary is Boundary.ENVIRONMENT
    assert failed.value.trajectory.session is None


def test_a_session_is_begun_and_then_continued() -> None:
    session = AgentSession(id="s", endpoint=Endpoint(provider="mock", model="scripted"))
    corridor = Corridor(rewards=(1.0,))

    asyncio.run(run_agent(Scripted(STEP), corridor, [asked("Go.")], session=session))
    begun = [message.text for message in session.messages]
    again = Scripted(said("Done."))
    asyncio.run(run_agent(again, Corridor(rewards=(1.0,)), [asked("And now?")], session=session))

    assert begun == ["Go.", "place 0", "", "place 1"]
    assert session.environment == {"environment": "Corridor"}
    # The environment is opened anew, and does not say again how it opens.
    assert [message.text for message in again.asked[0]] == [*begun, "And now?"]
    assert [m.text for m in session.messages] == [*begun, "And now?", "Done.", "place 1"]
    assert session.status is Status.COMPLETED


def test_a_session_keeps_what_happened_before_a_failure() -> None:
    session = AgentSession(id="s", endpoint=Endpoint(provider="mock", model="scripted"))
    broken = Scripted(STEP, EndpointError("503: overloaded"))

    with pytest.raises(RolloutFailed):
        asyncio.run(run_agent(broken, Corridor(), [asked("Go.")], session=session))

    assert session.status is Status.FAILED
    assert [message.text for message in session.messages] == ["Go.", "place 0", "", "place 1"]
