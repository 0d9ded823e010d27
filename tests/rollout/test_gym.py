"""Gymnasium environments, played for real."""

import asyncio

import pytest

from assay.errors import ConfigError
from assay.models import Message, Trajectory
from assay.rollout import GymEnvironment, environment_by_name, run_agent
from make import asked, called, said
from scripted import Scripted


def act(*actions: object) -> Message:
    calls = [called("act", f"call_{n}", action=action) for n, action in enumerate(actions)]
    return said(None, *calls)


def play(environment: GymEnvironment, *turns: Message, seed: int | None = 0) -> Trajectory:
    return asyncio.run(run_agent(Scripted(*turns), environment, [asked("Cross.")], seed=seed))


def lake() -> GymEnvironment:
    return GymEnvironment("FrozenLake-v1", options={"is_slippery": False})


GOOD = ("down", "down", "right", "right", "down", "right")


def test_the_goal_is_reached_and_rewarded() -> None:
    trajectory = play(lake(), *(act(action) for action in GOOD))

    result = trajectory.evaluation_result
    assert result is not None
    assert result.step_outputs is not None
    assert result.reward == 1.0
    assert [step.base_reward for step in result.step_outputs] == [0, 0, 0, 0, 0, 1]
    assert result.step_outputs[-1].terminated
    assert trajectory.termination_reason == "environment"
    assert trajectory.observations == [4, 8, 9, 10, 14, 15]


def test_the_agent_sees_the_board_and_a_tool_with_named_actions() -> None:
    trajectory = play(lake(), *(act(action) for action in GOOD))

    assert trajectory.messages[1].text.startswith("Observation: 0\n")
    assert "\n[S]FFF\n" in trajectory.messages[1].text
    assert "\x1b" not in "".join(message.text for message in trajectory.messages)
    assert lake().tools[0].parameters["properties"]["action"] == {
        "type": "string",
        "enum": ["left", "down", "right", "up"],
    }


def test_several_actions_in_one_turn_are_taken_in_order_until_the_end() -> None:
    trajectory = play(lake(), act(*GOOD, "left"))

    result = trajectory.evaluation_result
    assert result is not None
    assert result.reward == 1.0
    assert trajectory.messages[-1].text == "The episode is over."
    assert trajectory.steps == 1


@pytest.mark.parametrize("mistake", ["jump", 2, None])
def test_a_wrong_action_is_answered_in_words_and_takes_no_step(mistake: object) -> None:
    trajectory = play(lake(), act(mistake), *(act(action) for action in GOOD))

    result = trajectory.evaluation_result
    assert result is not None
    assert result.step_outputs is not None
    assert len(result.step_outputs) == 6
    assert trajectory.messages[3].text == (
        f"Error: {mistake!r} is no action; choose from ['left', 'down', 'right', 'up']"
    )


def test_talking_instead_of_acting_is_answered_in_words() -> None:
    trajectory = play(lake(), said("I go down."), *(act(action) for action in GOOD))

    assert trajectory.messages[3].text == "Nothing happened: use the tool `act` to take a step."


def test_the_seed_decides_the_episode_zero_included() -> None:
    def first_observation(seed: int | None) -> str:
        environment = GymEnvironment("Taxi-v4")
        return asyncio.run(environment.open(seed=seed))[0].text

    assert first_observation(0) == first_observation(0)
    assert first_observation(0) != first_observation(1)


def test_numbered_and_continuous_actions_are_checked() -> None:
    pole = GymEnvironment("CartPole-v1")
    pendulum = GymEnvironment("Pendulum-v1")

    assert pole.tools[0].parameters["properties"]["action"] == {
        "type": "integer",
        "minimum": 0,
        "maximum": 1,
    }
    wrong = asyncio.run(_one_step(pole, 2))
    right = asyncio.run(_one_step(pole, 1))
    swing = asyncio.run(_one_step(pendulum, [0.5]))
    too_far = asyncio.run(_one_step(pendulum, [99.0]))

    assert wrong == "Error: 2 is no action; choose 0 to 1"
    assert right.startswith("Observation: [")
    assert swing.startswith("Observation: [")
    assert too_far.startswith("Error: [99.0] is no element of Box")


async def _one_step(environment: GymEnvironment, action: object) -> str:
    await environment.open(seed=0)
    step = await environment.step(act(action))
    return step.replies[0].text


def test_a_formatter_decides_what_the_agent_reads() -> None:
    environment = GymEnvironment(
        "FrozenLake-v1", formatter=lambda observation, info: f"You stand on {observation}."
    )

    assert asyncio.run(environment.open(seed=0))[0].text == "You stand on 0."


def test_an_unknown_name_fails_when_the_environment_is_made() -> None:
    with pytest.raises(ConfigError, match=r"gym:NoSuchLake-v1: .*NoSuchLake"):
        GymEnvironment("NoSuchLake-v1")
    with pytest.raises(ConfigError, match="2 action names for 4 actions"):
        GymEnvironment("FrozenLake-v1", action_names=["a", "b"])


def test_environments_are_made_by_name() -> None:
    assert isinstance(environment_by_name("gym:FrozenLake-v1")(), GymEnvironment)
    with pytest.raises(ConfigError, match=r"no environment 'gym:'[\s\S]*'calculator'"):
        environment_by_name("gym:")
