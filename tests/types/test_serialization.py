"""How types are written and made on the quick ways, compared with the plain ones."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from assay.types import EvaluateResult, Message, Metric, ModelCall, Sample, Trajectory, Usage
from assay.types.serialization import construct_unchecked, validate
from make import answered, asked, called, said, sample

BLOCKS = Message.model_validate(
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Look at half an emoji: \ud83d", "cache": True},
            {"type": "image_url", "image_url": {"url": "data:,", "detail": None}},
        ],
    }
)
CONVERSATION = [asked("2+2?"), said(None, called("add", a=2, b=2)), answered("4"), BLOCKS]


def test_messages_are_written_in_a_sample_as_on_their_own() -> None:
    written = json.loads(Sample(prompt=CONVERSATION).to_json())

    assert written["prompt"] == [json.loads(message.to_json()) for message in CONVERSATION]
    assert written["prompt"][3] == {
        "role": "user",
        "content": [
            {"type": "text", "text": "Look at half an emoji: \ufffd", "cache": True},
            {"type": "image_url", "image_url": {"url": "data:,", "detail": None}},
        ],
    }


@pytest.mark.parametrize("prompt", ["plain words", "", CONVERSATION, [], [asked("x")] * 3])
def test_a_prompt_of_any_kind_is_read_back_the_same(prompt: str | list[Message]) -> None:
    one = Sample(id="s", prompt=prompt)

    assert Sample.from_json(one.to_json()) == one
    assert Sample.from_dict(one.to_dict()) == one
    assert json.loads(one.to_json()) == one.to_dict()


def test_the_bytes_are_those_of_the_text() -> None:
    one = sample(asked("Grüße"), said("ok"))

    assert one.to_json_bytes() == one.to_json().encode()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Message, {"role": "assistant", "content": "x", "refusal": "no"}),
        (Usage, {"input_tokens": 3, "output_tokens": None, "counted": "words"}),
        (ModelCall, {"sampling": None, "usage": Usage(input_tokens=1), "latency_s": 0.5}),
        (Trajectory, {"messages": CONVERSATION, "calls": [ModelCall(model="m")], "steps": 1}),
        (EvaluateResult, {"score": 0.5}),
        (EvaluateResult, {"metrics": {"a": {"score": 1.0}}}),
        (Sample, {"question": "x", "prompt": "x", "input": {"a": 1}, "metadata": None}),
    ],
)
def test_what_is_made_the_quick_way_is_what_validation_makes(
    kind: type[BaseModel], fields: dict[str, Any]
) -> None:
    quick, usual = validate(kind, dict(fields)), kind.model_validate(dict(fields))

    assert quick == usual
    assert quick.model_fields_set == usual.model_fields_set
    assert quick.model_dump_json() == usual.model_dump_json()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Message, {"role": "user", "content": "x"}),
        (ModelCall, {"model": "m", "usage": Usage(input_tokens=1), "latency_s": 0.5}),
        (ModelCall, {"sampling": {"seed": 1}, "completion_ids": (1, 2)}),
        (EvaluateResult, {"score": 0.0}),
    ],
)
def test_what_is_assembled_is_what_validation_makes(
    kind: type[BaseModel], fields: dict[str, Any]
) -> None:
    quick, usual = construct_unchecked(kind, dict(fields)), kind.model_validate(dict(fields))

    assert quick == usual
    assert list(quick.__dict__) == list(usual.__dict__)
    assert quick.model_fields_set == usual.model_fields_set
    assert quick.model_extra == usual.model_extra
    assert quick.model_dump_json() == usual.model_dump_json()
    assert quick.model_copy(deep=True) == usual


def test_what_is_assembled_shares_nothing_that_can_change() -> None:
    one, other = (construct_unchecked(EvaluateResult, {"score": 1.0}) for _ in range(2))

    one.metrics["own"] = Metric(score=1.0)

    assert other.metrics == {}
    assert EvaluateResult(score=1.0).metrics == {}


def test_what_does_not_fit_is_refused_on_the_quick_way_too() -> None:
    with pytest.raises(ValidationError, match="latency_s"):
        validate(ModelCall, {"latency_s": float("nan")})


def test_a_part_equals_its_like_and_never_nothing() -> None:
    usage = Usage(input_tokens=1)
    nothing: Any = None

    assert usage == Usage(input_tokens=1)
    assert usage != Usage(input_tokens=2)
    assert (usage == nothing, ModelCall() == nothing, asked("x") == nothing) == (False,) * 3
    assert hash(usage) == hash(Usage(input_tokens=1))
