"""OpenEnv traces: strict, with a mask over prompt and completion of each call."""

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.errors import WireError
from assay.formats.openenv_trace import from_openenv_trace, to_openenv_trace
from assay.types import CallPurpose, EvaluateResult, ModelCall, Sample, Trajectory
from make import asked, said


class Turn(BaseModel):
    """The fields of a turn, as the consumer declares them."""

    model_config = ConfigDict(strict=True, extra="forbid")

    node_id: str = Field(min_length=1)
    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    per_token_logps: list[float]
    loss_mask: list[int]
    request: dict[str, Any]
    response: dict[str, Any]
    metadata: dict[str, Any]


class Trace(BaseModel):
    """The fields of a trace, as the consumer declares them."""

    model_config = ConfigDict(strict=True, extra="forbid")

    schema_version: int
    turns: list[Turn]


CALLS = [
    ModelCall(
        prompt_ids=(1, 2),
        completion_ids=(3,),
        logprobs=(-0.5,),
        model="m",
        sampling={"temperature": 1.0},
        finish_reason="tool_calls",
        message_index=1,
    ),
    ModelCall(prompt_ids=(1, 2, 3, 4), completion_ids=(5, 6), logprobs=(-1.0, 0.0)),
]


def recorded(*calls: ModelCall) -> Sample:
    return Sample(
        id="a",
        rollout_id="a#0",
        prompt="?",
        trajectory=Trajectory(messages=[asked("?"), said("x")], calls=list(calls)),
        score=EvaluateResult(score=0.5),
    )


@pytest.mark.parametrize("purpose", ["title", "summary", "retry"])
def test_calls_for_another_purpose_are_not_trained_on(purpose: CallPurpose) -> None:
    title = CALLS[0].model_copy(update={"purpose": purpose, "completion_ids": (9,)})

    assert to_openenv_trace(recorded(title, *CALLS)) == to_openenv_trace(recorded(*CALLS))
    with pytest.raises(WireError, match="no model call is recorded"):
        to_openenv_trace(recorded(title))


def test_a_trace_fits_the_consumers_types() -> None:
    trace = Trace.model_validate(to_openenv_trace(recorded(*CALLS)).value)

    assert trace.turns[1].loss_mask == [0, 0, 0, 0, 1, 1]
    assert len({turn.node_id for turn in trace.turns}) == 2
    assert trace.turns[0].metadata["reward"] == 0.5
    with pytest.raises(ValidationError):
        Trace.model_validate({**trace.model_dump(), "score": 1})


def test_calls_come_back() -> None:
    read = from_openenv_trace(to_openenv_trace(recorded(*CALLS)).value)

    assert read.trajectory is not None
    assert (read.id, read.rollout_id, read.reward) == ("a", "a#0", 0.5)
    for got, given in zip(read.trajectory.calls, CALLS, strict=True):
        assert got == given.model_copy(update={"message_index": None})


def test_what_the_trace_has_no_place_for_is_reported() -> None:
    assert [loss.where for loss in to_openenv_trace(recorded(*CALLS)).dropped] == ["messages"]


@pytest.mark.parametrize(
    "call",
    [
        ModelCall(),
        ModelCall(prompt_ids=(1,), completion_ids=(2,)),
        ModelCall(prompt_ids=(1,), completion_ids=(2,), logprobs=(-1.0, -1.0)),
        ModelCall(prompt_ids=(1,), completion_ids=(2,), logprobs=(0.5,)),
    ],
)
def test_a_call_whose_tokens_are_not_known_is_refused(call: ModelCall) -> None:
    with pytest.raises(WireError, match="a model call has"):
        to_openenv_trace(recorded(call))


def test_a_sample_without_calls_is_refused() -> None:
    with pytest.raises(WireError, match="no model call is recorded"):
        to_openenv_trace(Sample(prompt="?"))


@pytest.mark.parametrize(
    "trace",
    [
        {"schema_version": 2, "turns": []},
        {"schema_version": 1},
        {"schema_version": 1, "turns": [{"node_id": "x", "loss_mask": []}]},
        {
            "schema_version": 1,
            "turns": [
                {
                    "node_id": "x",
                    "prompt_token_ids": [1],
                    "completion_token_ids": [2],
                    "loss_mask": [1],
                }
            ],
        },
    ],
)
def test_what_is_no_trace_is_refused(trace: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        from_openenv_trace(trace)
