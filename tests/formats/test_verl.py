"""Rows of verl and SkyRL: columns of one type, and samples that come back from them."""

from typing import Any

import pytest

from assay.errors import WireError
from assay.formats.verl import from_verl, to_skyrl, to_verl, to_verl_sft
from assay.types import Message, Sample, Trajectory
from make import answered, asked, called, said, sample


def test_a_prompt_comes_back_from_verl_and_from_skyrl() -> None:
    given = Sample(id="a", index=3, prompt="1+1?", ground_truth="2", input={"data_source": "sums"})

    for row in (to_verl(given).exact(), to_skyrl(given).exact()):
        read = from_verl(row)

        assert row["data_source"] == "sums"
        assert (read.id, read.index, read.ground_truth) == ("a", 3, "2")
        assert read.messages == [asked("1+1?")]


def test_the_layouts_are_those_of_their_readers() -> None:
    given = Sample(id="a", prompt="?", ground_truth="2", metadata={"env_class": "gsm8k"})

    assert to_verl(given).value["reward_model"] == {"style": "rule", "ground_truth": "2"}
    assert to_skyrl(given).value["reward_spec"] == {"method": "rule", "ground_truth": "2"}
    assert to_skyrl(given).value["env_class"] == "gsm8k"


@pytest.mark.parametrize(
    ("truth", "written"), [(None, None), ("2", "2"), (2, "2"), ({"a": 1}, '{"a": 1}')]
)
def test_a_ground_truth_is_text_and_unknown_stays_unknown(
    truth: object, written: str | None
) -> None:
    row = to_verl(Sample(id="a", prompt="?", ground_truth=truth)).value

    assert row["reward_model"]["ground_truth"] == written


TOOL = {"name": "look", "parameters": {"type": "object", "properties": {}}}


def test_a_conversation_comes_back_with_its_calls_and_tools() -> None:
    given = sample(
        asked("?"),
        said(None, called("look", "1", at="n")),
        answered("x", "1"),
        said("ok"),
        metadata={"tools": [TOOL]},
    )

    row = to_verl_sft(given).exact()
    read = from_verl(row)

    assert row["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"at": "n"}
    assert row["tools"] == [{"type": "function", "function": TOOL}]
    assert [m.text for m in read.messages] == [m.text for m in given.messages]
    assert read.messages[1].tool_calls[0].arguments == {"at": "n"}
    assert to_verl_sft(read).value == row


def test_keys_that_parquet_padded_objects_with_are_dropped_when_read() -> None:
    call: dict[str, Any] = {
        "id": "1",
        "type": "function",
        "function": {"name": "look", "arguments": {}},
    }
    padded = {**call["function"], "arguments": {"at": "n", "days": None, "deep": {"x": None}}}
    row = {
        "messages": [
            {"role": "user", "content": "?", "tool_calls": None, "name": None},
            {"role": "assistant", "content": "", "tool_calls": [{**call, "function": padded}]},
        ],
        "tools": [{"type": "function", "function": {**TOOL, "strict": None}}],
    }

    read = from_verl(row)

    assert read.messages[1].tool_calls[0].arguments == {"at": "n", "deep": {}}
    assert read.metadata["tools"] == [{"type": "function", "function": TOOL}]


def test_calls_of_tools_that_are_not_recorded_are_reported() -> None:
    given = sample(asked("?"), said(None, called("look", "1")))

    assert [loss.where for loss in to_verl_sft(given).dropped] == ["tools"]


def test_assistant_turns_of_the_prompt_are_refused_where_all_are_trained_on() -> None:
    prompt = [asked("one?"), said("shown"), asked("two?")]
    given = Sample(prompt=prompt, trajectory=Trajectory(messages=[*prompt, said("mine")]))

    with pytest.raises(WireError, match="would be trained on"):
        to_verl_sft(given)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (Sample(id="a"), "has no prompt"),
        (Sample(prompt=[said(None, called("f")), asked("?")]), "tool calls in the prompt"),
    ],
)
def test_prompts_that_do_not_fit_the_column_are_refused(given: Sample, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        to_verl(given)


def test_names_in_a_prompt_are_reported() -> None:
    named = Message(role="user", content="?", name="Ann")

    assert [loss.where for loss in to_verl(Sample(prompt=[named])).dropped] == ["messages[0].name"]
