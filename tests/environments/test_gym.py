"""Gymnasium environments, played for real."""

import asyncio
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from assay.agents import Limits, run_agent
from assay.environments import GymEnvironment, environment_by_name
from assay.errors import ConfigError, EnvironmentFault
from assay.types import Message, ToolCall, Trajectory
from make import asked, called, said
from scripted import Scripted


def act(*actions: object) -> Message:
    calls = [called("act", f"call_{n}", action=action) for n, action in enumerate(actions)]
    return said(None, *calls)


def play(environment: GymEnvironment, *turns: Message, seed: int | None = 0) -> Trajectory:
    return asyncio.run(run_agent(Scripted(*turns), environment, [asked("Cross.")], seed=seed))


def lake() -> GymEnvironment:
    return GymEnvironment("FrozenLake-v1", options={"is_slippery": False})


class Room(gymnasium.Env[Any, Any]):
    """Takes any action of its space, and ends with it."""

    metadata = {"render_modes": []}  # noqa: RUF012  # as Gymnasium declares it
    closed = 0

    def __init__(self, **given: Any) -> None:
        self.action_space = given["action_space"]
        self.observation_space = spaces.Discrete(1)

    def reset(self, **given: Any) -> tuple[int, dict[str, Any]]:
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 0, 1.0, True, False, {"took": action}

    def close(self) -> None:
        Room.closed += 1


@pytest.fixture
def rooms() -> Iterator[None]:
    names = {"mine/Room-v0": spaces.Discrete(2), "mine/Taxi-v0": spaces.Discrete(3)}
    names |= {"mine/FrozenLake-v0": spaces.Discrete(4), "Taxi-v99": spaces.Discrete(2)}
    for name, space in names.items():
        gymnasium.register(
            name, entry_point=Room, disable_env_checker=True, kwargs={"action_space": space}
        )
    yield
    for name in names:
        del gymnasium.registry[name]


def room(space: Any) -> GymEnvironment:
    return GymEnvironment("mine/Room-v0", options={"action_space": space})


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
    assert [step.base_reward for step in result.step_outputs] == [0, 0, 0, 0, 0, 1]
    assert trajectory.steps == 6
    assert trajectory.messages[3].text == (
        f"Error: {mistake!r} is not an action; choose from ['left', 'down', 'right', 'up']"
    )


def test_talking_instead_of_acting_is_answered_in_words() -> None:
    trajectory = play(lake(), said("I go down."), *(act(action) for action in GOOD))

    assert trajectory.messages[3].text == "Nothing happened: use the tool `act` to take a step."


def test_an_agent_that_never_acts_is_judged_with_nothing() -> None:
    model = Scripted(said("I go down."), act("jump"), said("Done."))

    trajectory = asyncio.run(run_agent(model, lake(), [], limits=Limits(max_turns=3)))

    assert trajectory.termination_reason == "max_turns"
    assert trajectory.evaluation_result is not None
    assert trajectory.evaluation_result.reward == 0.0
    assert trajectory.evaluation_result.step_outputs == ()
    assert trajectory.steps == 0


def test_arguments_that_are_not_json_are_answered_in_words() -> None:
    call = ToolCall.model_validate({"name": "act", "arguments": '{"action": "do'})

    trajectory = play(lake(), said(None, call), *(act(action) for action in GOOD))

    assert trajectory.messages[3].text == (
        "Error: the arguments of 'act' are not a JSON object: '{\"action\": \"do'"
    )


def test_an_episode_that_takes_too_long_is_truncated() -> None:
    environment = GymEnvironment("FrozenLake-v1", options={"max_episode_steps": 2})

    trajectory = play(environment, act("left"), act("left"))

    assert trajectory.truncated
    assert not trajectory.terminated
    assert trajectory.termination_reason == "environment"


def test_an_environment_is_used_once() -> None:
    environment = lake()
    play(environment, act(*GOOD))

    with pytest.raises(EnvironmentFault, match="single-use"):
        asyncio.run(environment.open(seed=0))


@pytest.mark.usefixtures("rooms")
def test_what_was_opened_is_closed() -> None:
    before = Room.closed

    play(room(spaces.Discrete(2)), act(1))

    assert Room.closed == before + 1


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
    wrong, right = asyncio.run(_each(pole, 2, 1))
    swing, too_far, far_too_far = asyncio.run(_each(pendulum, [0.5], [99.0], [10**400]))

    assert wrong == "Error: 2 is not an action; choose 0 to 1"
    assert right.startswith("Observation: [")
    assert swing.startswith("Observation: [")
    assert too_far.startswith("Error: [99.0] is not an element of Box")
    assert far_too_far.startswith("Error: [1000")
    assert len(far_too_far) < 400


async def _each(environment: GymEnvironment, *actions: object) -> list[str]:
    await environment.open(seed=0)
    step = await environment.step(act(*actions))
    return [reply.text for reply in step.replies]


@pytest.mark.parametrize(
    ("space", "mistakes", "right", "items"),
    [
        (
            spaces.MultiDiscrete([3, 3]),
            ([0.9, 1.9], [3, 0], [-1, 0], [2**70, 1], [1], 1, None, {"a": 1}, "x"),
            [0, 2],
            "integer",
        ),
        (spaces.MultiBinary(2), ([0.5, 1.9], [2, 0], [300, 0]), [0, 1], "integer"),
        (spaces.Box(0, 255, (1,), np.uint8), ([1.5], [300], [-1], [300.0]), [200], "integer"),
        (
            spaces.Box(-np.inf, np.inf, (1,), np.float32),
            ([1e39], [10**400], ["inf"], ["nan"], [None], [[]]),
            [0.5],
            "number",
        ),
    ],
    ids=["multi-discrete", "multi-binary", "bytes", "unbounded"],
)
@pytest.mark.usefixtures("rooms")
def test_an_array_must_be_an_element_as_it_is(
    space: Any, mistakes: tuple[object, ...], right: object, items: str
) -> None:
    environment = room(space)

    *refused, taken = asyncio.run(_each(environment, *mistakes, right))

    assert [answer.startswith("Error: ") for answer in refused] == [True] * len(mistakes)
    assert all(f"is not an element of {space}" in answer for answer in refused)
    assert taken == "Observation: 0"
    assert environment.tools[0].parameters["properties"]["action"]["items"] == {"type": items}


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"a": spaces.Discrete(3)}),
        spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1))),
        spaces.Text(5),
    ],
    ids=["dict", "tuple", "text"],
)
@pytest.mark.usefixtures("rooms")
def test_actions_that_are_not_numbers_are_refused(space: Any) -> None:
    with pytest.raises(ConfigError, match="not numbers or an array of them"):
        room(space)


@pytest.mark.parametrize(
    ("name", "last"), [("mine/Taxi-v0", 2), ("mine/FrozenLake-v0", 3), ("Taxi-v99", 1)]
)
@pytest.mark.usefixtures("rooms")
def test_names_are_not_guessed_for_actions_of_others(name: str, last: int) -> None:
    environment = GymEnvironment(name)

    assert environment.tools[0].parameters["properties"]["action"] == {
        "type": "integer",
        "minimum": 0,
        "maximum": last,
    }


def test_a_formatter_decides_what_the_agent_reads() -> None:
    environment = GymEnvironment(
        "FrozenLake-v1", formatter=lambda observation, info: f"You stand on {observation}."
    )

    assert asyncio.run(environment.open(seed=0))[0].text == "You stand on 0."


def test_an_unknown_name_fails_when_the_environment_is_made() -> None:
    with pytest.raises(ConfigError, match=r"gym:NoSuchLake-v1: .*NoSuchLake"):
        GymEnvironment("NoSuchLake-v1")
    with pytest.raises(ConfigError, match="`action_names` has 2 names for 4 actions"):
        GymEnvironment("FrozenLake-v1", action_names=["a", "b"])


@pytest.mark.parametrize(
    ("options", "words"),
    [({"bogus": 1}, "TypeError: .*'bogus'"), ({"map_name": "7x7"}, "KeyError: '7x7'")],
)
def test_wrong_options_are_refused_with_what_the_environment_says(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=f"gym:FrozenLake-v1: .*{words}") as refused:
        GymEnvironment("FrozenLake-v1", options=options)

    assert refused.value.hint == "check `options`"


def test_a_name_that_cannot_be_made_is_refused_before_anything_is_made() -> None:
    gymnasium.register("mine/Elsewhere-v0", entry_point="no_such_module_here:Room")
    try:
        with pytest.raises(ConfigError, match="No module named 'no_such_module_here'") as broken:
            environment_by_name("gym:mine/Elsewhere-v0")
    finally:
        del gymnasium.registry["mine/Elsewhere-v0"]
    with pytest.raises(ConfigError, match=r"gym:FrozenLake-v7: .*`v7`") as unknown:
        environment_by_name("gym:FrozenLake-v7")

    assert broken.value.hint is None
    assert unknown.value.hint == "see `gymnasium.registry` for the names"


def test_environments_are_made_by_name() -> None:
    assert isinstance(environment_by_name("gym:FrozenLake-v1")(), GymEnvironment)
    with pytest.raises(ConfigError, match=r"unknown environment 'gym:'[\s\S]*'calculator'"):
        environment_by_name("gym:")
