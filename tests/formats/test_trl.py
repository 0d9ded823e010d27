"""Rows of TRL: what is trained on, what is context, and that rows come back as samples."""

import json

import pytest

from assay.errors import WireError
from assay.formats.trl import (
    from_trl,
    to_trl_kto,
    to_trl_messages,
    to_trl_preference,
    to_trl_prompt,
    to_trl_sft,
    to_trl_tokens,
)
from assay.types import EvaluateResult, Message, Sample, Trajectory
from make import answered, asked, called, said, sample

TOOL = {"name": "look", "parameters": {"type": "object", "properties": {}}}
HISTORY = [asked("one?"), said("shown"), asked("two?")]


def conversation(**fields: object) -> Sample:
    return sample(
        asked("where?"),
        said("I look.", called("look", "1", at="n"), called("look", "2")),
        answered("north", "1"),
        answered("south", "2"),
        said("There."),
        **fields,
    )


def with_history(answer: str) -> Sample:
    messages = [*HISTORY, said(answer)]
    return Sample(id="h", prompt=HISTORY, trajectory=Trajectory(messages=messages))


def test_a_conversation_is_parted_into_prompt_and_completion() -> None:
    row = to_trl_sft(conversation(metadata={"tools": [TOOL]})).exact()

    assert row["prompt"] == [{"role": "user", "content": "where?"}]
    assert [each["role"] for each in row["completion"]] == [
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    calls = row["completion"][0]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == [{"at": "n"}, {}]
    assert row["completion"][1]["name"] == "look"
    assert json.loads(row["tools"])[0]["function"]["name"] == "look"


def test_assistant_turns_of_the_prompt_stay_in_the_prompt() -> None:
    row = to_trl_sft(with_history("mine")).value

    assert [each["content"] for each in row["prompt"]] == ["one?", "shown", "two?"]
    assert row["completion"] == [{"role": "assistant", "content": "mine"}]


def test_an_agent_that_speaks_first_answers_to_the_system_message() -> None:
    system = Message(role="system", content="Greet the user.")

    row = to_trl_sft(sample(system, said("Hello!"), asked("Hi"), said("How are you?"))).exact()

    assert row["prompt"] == [{"role": "system", "content": "Greet the user."}]
    assert [each["role"] for each in row["completion"]] == ["assistant", "user", "assistant"]


def test_one_list_of_messages_refuses_assistant_turns_of_the_prompt() -> None:
    with pytest.raises(WireError, match="would be trained on"):
        to_trl_messages(with_history("mine"))

    assert len(to_trl_messages(conversation()).value["messages"]) == 5


def test_a_sample_comes_back_from_its_row() -> None:
    given = conversation(metadata={"tools": [TOOL]})

    (read,) = from_trl(to_trl_sft(given).value)
    (listed,) = from_trl(to_trl_messages(given).value)

    assert read.trajectory is not None
    assert [m.text for m in read.messages] == [m.text for m in given.messages]
    assert [m.tool_calls for m in read.messages] == [m.tool_calls for m in given.messages]
    assert to_trl_sft(read).value == to_trl_sft(given).value
    assert to_trl_sft(listed).value == to_trl_sft(given).value


def test_reasoning_is_kept_and_a_call_without_words_says_nothing() -> None:
    thought = Message(role="assistant", reasoning="hm", tool_calls=(called("look"),))

    row = to_trl_sft(sample(asked("?"), thought)).value

    assert row["completion"][0]["reasoning_content"] == "hm"
    assert row["completion"][0]["content"] == ""


def test_unknown_tools_and_messages_behind_the_last_turn_are_reported() -> None:
    converted = to_trl_sft(sample(asked("?"), said(None, called("look")), answered("x")))

    assert {loss.where for loss in converted.dropped} == {"tools", "messages"}


def test_a_prompt_for_grpo_has_the_ground_truth_beside_it() -> None:
    row = to_trl_prompt(Sample(id="a", prompt="1+1?", ground_truth=2)).exact()

    assert row == {"prompt": [{"role": "user", "content": "1+1?"}], "ground_truth": 2, "id": "a"}
    (read,) = from_trl(row)
    assert (read.id, read.ground_truth, read.trajectory) == ("a", 2, None)


def test_a_preference_has_two_answers_to_one_context() -> None:
    good, bad = with_history("good"), with_history("bad")
    good.score, bad.score = EvaluateResult(score=1.0), EvaluateResult(score=0.25)

    row = to_trl_preference(good, bad).exact()

    assert row["chosen"][0]["content"] == "good"
    assert row["rejected"][0]["content"] == "bad"
    assert (row["score_chosen"], row["score_rejected"]) == (1.0, 0.25)
    assert [each.response for each in from_trl(row)] == ["good", "bad"]


def test_answers_to_different_contexts_are_no_preference() -> None:
    with pytest.raises(WireError, match="not to the same context"):
        to_trl_preference(sample(asked("a"), said("x")), sample(asked("b"), said("y")))


def test_a_label_says_whether_the_answer_is_good() -> None:
    assert to_trl_kto(conversation(), good=False).value["label"] is False


def test_labels_are_the_tokens_under_the_mask() -> None:
    masked = Sample(tokens=[5, 6, 7], loss_mask=[0.0, 1.0, 1.0])

    row = to_trl_tokens(masked).exact()

    assert row == {"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}
    (read,) = from_trl(row)
    assert (read.tokens, read.loss_mask) == (masked.tokens, masked.loss_mask)


@pytest.mark.parametrize(
    ("tokens", "mask", "problem"),
    [
        ([], [], "0 tokens"),
        ([1], [1.0, 1.0], "1 tokens and 2 mask values"),
        ([1, 2], [0.0, 0.5], "0.5 is neither 0 nor 1"),
        ([1, 2], [0.0, 0.0], "no token to train on"),
    ],
)
def test_tokens_without_a_fitting_mask_are_refused(
    tokens: list[int], mask: list[float], problem: str
) -> None:
    with pytest.raises(WireError, match=problem):
        to_trl_tokens(Sample(tokens=tokens, loss_mask=mask))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (Sample(trajectory=Trajectory(messages=[said("first")])), "nothing comes before"),
        (Sample(prompt="never answered"), "took no turn"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(given: Sample, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        to_trl_sft(given)


def test_a_sample_without_a_prompt_is_no_prompt() -> None:
    with pytest.raises(WireError, match="has no prompt"):
        to_trl_prompt(Sample(id="x"))


def test_what_is_no_row_of_trl_is_refused() -> None:
    with pytest.raises(WireError, match="has no `prompt`"):
        from_trl({"text": "x"})
