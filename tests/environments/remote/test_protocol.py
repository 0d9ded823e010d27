"""The own protocol's messages read back what they wrote, and refuse what was not said."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from assay.environments import Step
from assay.environments.remote.episodes import StoredStep
from assay.environments.remote.protocol import (
    ErrorDetail,
    ErrorResponse,
    OpenRequest,
    OpenResponse,
    StepRequest,
    StepResponse,
)
from assay.errors import WireError
from assay.types import Message
from make import called, said
from message_strategies import any_messages

COUNT = said(None, called("count"))
DONE: dict[str, Any] = {
    "step_index": 0,
    "replies": [],
    "reward": None,
    "terminated": False,
    "truncated": False,
    "ended_by_agent": False,
    "info": {},
    "reason": None,
}
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(
    st.builds(
        Step,
        replies=st.lists(any_messages(), max_size=3).map(tuple),
        reward=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        terminated=st.booleans(),
        truncated=st.booleans(),
        ended_by_agent=st.booleans(),
        info=st.dictionaries(st.text(max_size=5), values, max_size=3),
        reason=st.none() | st.text(max_size=5),
        observation=values,
        acted=st.booleans(),
    )
)
def test_every_step_arrives_as_it_was(step: Step) -> None:
    answer = StepResponse.of(StoredStep(3, COUNT, step))

    again = StepResponse.from_json(answer.to_json())

    assert again.step_index == 3
    assert again.step() == step


@given(any_messages(), st.integers(0, 2**40))
def test_every_action_arrives_as_it_was(action: Message, step_index: int) -> None:
    request = StepRequest(action=action, step_index=step_index)

    assert StepRequest.from_json(json.dumps(request.to_dict())) == request


@given(st.none() | st.integers(), st.dictionaries(st.text(max_size=5), values, max_size=3))
def test_every_seed_and_task_arrive_as_they_were(seed: int | None, task: dict[str, Any]) -> None:
    request = OpenRequest(seed=seed, task=task, episode_id="e")

    assert OpenRequest.from_json(request.to_json()) == request


def test_a_refusal_is_read_back() -> None:
    refusal = ErrorResponse(error=ErrorDetail(kind="capacity", message="full", hint="wait"))

    assert ErrorResponse.from_json(refusal.to_json()) == refusal


@pytest.mark.parametrize("missing", DONE)
def test_an_answer_that_leaves_something_unsaid_is_refused(missing: str) -> None:
    StepResponse.from_json(json.dumps(DONE))

    with pytest.raises(ValidationError, match="Field required"):
        StepResponse.from_json(json.dumps({key: DONE[key] for key in DONE if key != missing}))


@pytest.mark.parametrize(
    "wrong",
    [{"reward": "0.5"}, {"reward": True}, {"terminated": 0}, {"terminated": None},
     {"truncated": "no"}, {"replies": None}, {"done": True}, {"step_index": 0.5}],
)  # fmt: skip
def test_an_answer_that_says_something_else_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        StepResponse.from_json(json.dumps({**DONE, **wrong}))


def test_a_reward_that_is_no_number_is_refused_in_both_directions() -> None:
    with pytest.raises(ValueError, match="line 1 column 44"):
        StepResponse.from_json(json.dumps({**DONE, "reward": float("inf")}))
    with pytest.raises(ValidationError):
        StepResponse.of(StoredStep(0, COUNT, Step(reward=float("nan"))))


@pytest.mark.parametrize("info", ['{"odds": NaN}', '{"odds": -Infinity}'])
def test_what_is_no_json_is_refused_wherever_it_stands(info: str) -> None:
    text = json.dumps({**DONE, "info": "here"})

    with pytest.raises(ValueError, match="line 1 column"):
        StepResponse.from_json(text.replace('"here"', info))
    assert StepResponse.from_json(text.replace('"here"', '{"odds": "NaN"}')).info == {"odds": "NaN"}


def test_info_that_json_has_no_word_for_is_refused() -> None:
    with pytest.raises(WireError, match="NaN"):
        StepResponse.of(StoredStep(0, COUNT, Step(info={"odds": float("nan")}))).to_json()


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\r\nX: 1", "a\n", "é", "x" * 201])
def test_a_name_that_would_change_an_address_or_a_header_is_refused(name: str) -> None:
    limits = {"capacity": 1, "idle_s": 1.0, "largest_body": 1}
    good = {"session": "s", "token": "t", "observation": [], "tools": [], "limits": limits}
    OpenResponse.from_json(json.dumps(good))

    for key in ("session", "token"):
        with pytest.raises(ValidationError):
            OpenResponse.from_json(json.dumps({**good, key: name}))
