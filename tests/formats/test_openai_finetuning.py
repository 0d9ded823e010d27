"""Rows of OpenAI's fine-tuning, held to the published rules."""

import json
from typing import Any

import pytest

from assay.errors import WireError
from assay.formats.openai_finetuning import (
    from_openai_finetuning,
    to_openai_dpo,
    to_openai_rft,
    to_openai_sft,
)
from assay.types import EvaluateResult, Message, Sample, Trajectory
from make import answered, asked, called, said, sample
from openai_rules import check_messages, check_row

TOOL = {"name": "look", "parameters": {"type": "object", "properties": {}}}


def conversation(**fields: Any) -> Sample:
    return sample(
        asked("where?"),
        said(None, called("look", "1", at="n"), called("look", "2")),
        answered("north", "1"),
        answered("south", "2"),
        said("There."),
        **fields,
    )


def test_a_conversation_keeps_the_rules() -> None:
    row = to_openai_sft(conversation(metadata={"tools": [TOOL]})).exact()

    check_row(row, "sft")
    first = row["messages"][1]["tool_calls"][0]
    assert json.loads(first["function"]["arguments"]) == {"at": "n"}
    assert row["parallel_tool_calls"] is True
    assert [each.get("weight") for each in row["messages"]] == [None] * 5


def test_assistant_turns_of_the_prompt_weigh_nothing() -> None:
    prompt = [asked("one?"), said("shown"), asked("two?")]
    given = Sample(prompt=prompt, trajectory=Trajectory(messages=[*prompt, said("mine")]))

    row = to_openai_sft(given).exact()

    check_row(row, "sft")
    assert [each.get("weight") for each in row["messages"]] == [None, 0, None, None]
    (read,) = from_openai_finetuning(row)
    assert read.prompt == prompt
    assert read.response == "mine"


def test_a_sample_comes_back_from_its_row() -> None:
    given = conversation(metadata={"tools": [TOOL]})

    (read,) = from_openai_finetuning(to_openai_sft(given).value)

    assert [m.tool_calls for m in read.messages] == [m.tool_calls for m in given.messages]
    assert to_openai_sft(read).value == to_openai_sft(given).value


def test_calls_without_ids_get_them_and_so_do_their_answers() -> None:
    nameless = [call.model_copy(update={"id": None}) for call in (called("a"), called("b"))]
    answers = [Message(role="tool", content=text) for text in ("x", "y")]

    row = to_openai_sft(sample(asked("?"), said(None, *nameless), *answers, said("ok"))).value

    check_row(row, "sft")
    ids = [call["id"] for call in row["messages"][1]["tool_calls"]]
    assert [each["tool_call_id"] for each in row["messages"][2:4]] == ids


def test_reasoning_and_foreign_keys_are_left_out_and_reported() -> None:
    odd = Message.model_validate(
        {"role": "assistant", "content": "x", "reasoning": "hm", "annotations": [1]}
    )

    converted = to_openai_sft(sample(Message(role="developer", content="d"), asked("?"), odd))

    check_row(converted.value, "sft")
    assert converted.value["messages"][0]["role"] == "system"
    assert {loss.where.split(".")[-1] for loss in converted.dropped} == {
        "role",
        "reasoning",
        "annotations",
    }


def test_images_of_the_user_are_kept() -> None:
    block = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}
    image = Message.model_validate({"role": "user", "content": [block]})

    row = to_openai_sft(sample(image, said("a cat"))).exact()

    assert row["messages"][0]["content"] == [block]


def test_a_call_that_was_never_answered_is_refused() -> None:
    hanging = sample(asked("?"), said(None, called("a")), asked("well?"), said("sorry"))

    with pytest.raises(WireError, match="is not answered"):
        to_openai_sft(hanging)


def test_an_answer_to_no_call_is_refused() -> None:
    with pytest.raises(WireError, match="answers no preceding call"):
        to_openai_sft(sample(asked("?"), answered("x", "9"), said("ok")))


def test_a_turn_of_an_unknown_role_is_refused() -> None:
    with pytest.raises(WireError, match="does not accept 'critic' messages"):
        to_openai_sft(sample(asked("?"), Message(role="critic", content="x"), said("ok")))


def test_a_preference_keeps_the_rules() -> None:
    good = sample(asked("?"), said("good"), score=EvaluateResult(score=1.0))
    bad = sample(asked("?"), said("bad"), score=EvaluateResult(score=0.0))

    row = to_openai_dpo(good, bad).exact()

    check_row(row, "dpo")
    assert [each.response for each in from_openai_finetuning(row)] == ["good", "bad"]


def test_a_preference_between_several_turns_is_refused() -> None:
    with pytest.raises(WireError, match="between single messages"):
        to_openai_dpo(conversation(), sample(asked("where?"), said("No.")))


def test_a_preference_between_answers_to_different_questions_is_refused() -> None:
    with pytest.raises(WireError, match="not to the same context"):
        to_openai_dpo(sample(asked("a"), said("x")), sample(asked("b"), said("y")))


def test_a_prompt_for_reinforcement_keeps_the_rules() -> None:
    given = Sample(id="a", prompt="1+1?", ground_truth={"sum": 2}, metadata={"tools": [TOOL]})

    row = to_openai_rft(given).exact()

    check_row(row, "rft")
    (read,) = from_openai_finetuning(row)
    assert (read.id, read.ground_truth, read.messages) == ("a", {"sum": 2}, [asked("1+1?")])


def test_a_part_that_openai_does_not_have_is_refused() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    attached = {"type": "file", "mime": "text/plain", "url": "file:///srv/app/a.txt"}
    words = {"type": "text", "text": "What is this?"}

    def ask_about(part: dict[str, Any]) -> Sample:
        asked = Message.model_validate({"role": "user", "content": [part, words]})
        return sample(asked, said("A cat."))

    assert to_openai_sft(ask_about(image)).exact()["messages"][0]["content"] == [image, words]
    with pytest.raises(WireError, match=r"content\[0\]: OpenAI has no such `file` part"):
        to_openai_sft(ask_about(attached))


def test_a_prompt_that_does_not_end_with_the_user_is_refused() -> None:
    with pytest.raises(WireError, match="does not end with the user"):
        to_openai_rft(Sample(prompt=[Message(role="system", content="only this")]))


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "user", "content": "x"}],
        [{"role": "robot", "content": "x"}, {"role": "assistant", "content": "y"}],
        [{"role": "assistant", "content": "y", "weight": 2}],
        [{"role": "assistant", "content": None}],
        [{"role": "assistant", "content": "y", "reasoning": "z"}],
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}
                ],
            }
        ],
    ],
)
def test_the_rules_say_no(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(AssertionError):
        check_messages(messages, ends_with="assistant")
