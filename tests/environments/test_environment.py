"""What an environment may give: read as it is meant, or refused as its fault."""

import math
from datetime import date
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from assay.environments import Step
from assay.environments.environment import check_items, check_step, to_plain_info, to_plain_json
from assay.errors import EnvironmentFault
from assay.types import Message, ToolSpec
from make import asked


def step(**fields: Any) -> Step:
    """A step as code without types would make it."""
    return Step(**fields)


@pytest.mark.parametrize(
    "ordinary",
    [Step(), Step(terminated=True), Step(replies=(asked("hi"),), reward=0.5, reason="so")],
)
def test_an_ordinary_step_is_taken_as_it_is(ordinary: Step) -> None:
    assert check_step(ordinary) is ordinary


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (step(replies=None), Step()),
        (step(replies=[asked("hi")]), Step(replies=[asked("hi")])),  # type: ignore[arg-type]
        (step(replies=({"role": "user", "content": "hi"},)), Step(replies=(asked("hi"),))),
        (step(reward=1), Step(reward=1.0)),
        (step(reward=np.float32(0.5)), Step(reward=0.5)),
        (step(terminated=np.bool_(True)), Step(terminated=True)),
        (step(truncated=1, ended_by_agent=0), Step(truncated=True)),
    ],
)
def test_what_is_meant_is_taken(given: Step, meant: Step) -> None:
    checked = check_step(given)

    assert checked == meant
    assert type(checked.reward) is type(meant.reward)
    assert type(checked.terminated) is bool


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "`step` returned None, not a `Step`"),
        ((0, 1.0, True, False, {}), r"`step` returned \(0, 1.0"),
        (step(replies="hello"), "`Step.replies` is 'hello'"),
        (step(replies=asked("hello")), r"`Step.replies` is Message\("),
        (step(replies=("hello",)), "`Step.replies` contains 'hello', which is not a `Message`"),
        (step(replies=({"content": "hi"},)), "`Step.replies` contains {'content'"),
        (step(reward="1.0"), "the reward is '1.0', not a finite number"),
        (step(reward=math.nan), "the reward is nan, not a finite number"),
        (step(reward=10**400), "the reward is 1000"),
        (step(reward=[1.0]), r"the reward is \[1.0\]"),
        (step(terminated="no"), "`Step.terminated` is 'no', not a bool"),
        (step(truncated=None), "`Step.truncated` is None"),
        (step(reason=3), "`Step.reason` is 3, not text"),
    ],
)
def test_a_step_that_means_nothing_is_a_fault_of_the_environment(given: object, told: str) -> None:
    with pytest.raises(EnvironmentFault, match=told):
        check_step(given)


def test_what_is_shown_of_a_strange_step_is_short() -> None:
    with pytest.raises(EnvironmentFault) as caught:
        check_step("x" * 100_000)

    assert len(str(caught.value)) < 200


def test_tools_may_be_dictionaries_and_nothing() -> None:
    spec = ToolSpec(name="go")

    assert check_items(ToolSpec, [{"name": "go"}, spec], "tools") == (spec, spec)
    assert check_items(ToolSpec, None, "tools") == ()


@pytest.mark.parametrize("given", [[print], {"name": "go"}, 3, "go"])
def test_tools_that_are_none_are_a_fault_of_the_environment(given: object) -> None:
    with pytest.raises(EnvironmentFault, match="`tools` "):
        check_items(ToolSpec, given, "tools")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, {}),
        ({}, {}),
        ({"place": (1, 2), "day": date(2026, 1, 2)}, {"place": [1, 2], "day": "2026-01-02"}),
        ({1: 2}, {"1": 2}),
        ({"grid": np.zeros((1, 2)), "n": np.int64(3)}, {"grid": [[0.0, 0.0]], "n": 3}),
        ({"bounds": [math.inf, np.float64("nan"), 0.5]}, {"bounds": [None, None, 0.5]}),
        (MappingProxyType({"a": MappingProxyType({"b": 1})}), {"a": {"b": 1}}),
        ({"said": asked("hi")}, {"said": asked("hi").model_dump(mode="json")}),
    ],
)
def test_info_is_kept_as_a_record_holds_it(given: object, kept: dict[str, Any]) -> None:
    assert to_plain_info(given) == kept


def test_info_is_kept_as_it_was() -> None:
    info = {"visited": [1]}

    kept = to_plain_info(info)
    info["visited"].append(2)

    assert kept == {"visited": [1]}


def circular() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


@pytest.mark.parametrize("value", [object(), b"\xff", "\ud800", circular(), {"deep": {1j, print}}])
def test_info_that_json_cannot_hold_is_a_fault_that_names_the_key(value: object) -> None:
    with pytest.raises(EnvironmentFault, match=r"`Step.info\['bad'\]` cannot be written as JSON"):
        to_plain_info({"good": 1, "bad": value})


@pytest.mark.parametrize("given", [["a"], "text", 3])
def test_info_that_is_no_mapping_is_a_fault(given: object) -> None:
    with pytest.raises(EnvironmentFault, match=r"`Step\.info` is"):
        to_plain_info(given)


def test_an_observation_is_kept_likewise() -> None:
    assert to_plain_json(np.array([1.0, math.inf]), "Step.observation") == [1.0, None]
    assert to_plain_json(3, "Step.observation") == 3
    with pytest.raises(EnvironmentFault, match=r"`Step\.observation` cannot be written"):
        to_plain_json(object(), "Step.observation")


def test_messages_stay_the_objects_they_are() -> None:
    given = (asked("a"), asked("b"))

    assert check_items(Message, given, "open") is given
