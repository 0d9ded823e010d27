"""The order of prompts: all of them in each epoch, and the same for the same seed."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.train.prompt_order import PromptOrder, fingerprint_prompts
from assay.types import EvaluateResult, Message, Sample, Status

PROMPTS = [Sample(id=name, prompt=name) for name in "abcdef"]


def ids(seed: int, position: int, count: int) -> list[str]:
    return [each.sample.id for each in PromptOrder(PROMPTS, seed).take(position, count)]


def test_each_epoch_has_every_prompt_once_in_an_order_of_its_own() -> None:
    drawn = PromptOrder(PROMPTS, 3).take(0, 18)

    epochs = [[each.sample.id for each in drawn if each.epoch == epoch] for epoch in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [list("abcdef")] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert [each.position for each in drawn] == list(range(18))


def test_it_can_be_taken_up_at_any_place() -> None:
    assert ids(0, 0, 20)[7:12] == ids(0, 7, 5)


def test_seeds_give_different_orders() -> None:
    assert ids(0, 0, 6) != ids(1, 0, 6)


def test_more_prompts_than_there_are_come_from_the_next_epoch() -> None:
    order = PromptOrder(PROMPTS[:2], 0)

    assert [each.epoch for each in order.take(0, 5)] == [0, 0, 1, 1, 2]


def row(**fields: Any) -> Sample:
    return Sample(**{"id": "1", "prompt": "?", "input": {"a": 1, "b": 2}, **fields})


@pytest.mark.parametrize(
    "other",
    [
        row(id="2"),
        row(prompt="??"),
        row(
            prompt=[Message(role="system", content="Be brief."), Message(role="user", content="?")]
        ),
        row(ground_truth="4"),
        row(input={"a": 1, "b": 3}),
        row(metadata={"split": "test"}),
    ],
    ids=["id", "prompt", "messages", "answer", "row", "metadata"],
)
def test_a_fingerprint_covers_what_a_prompt_holds(other: Sample) -> None:
    assert fingerprint_prompts([row()]) != fingerprint_prompts([other])


def test_a_fingerprint_leaves_out_earlier_results_and_the_order_of_keys() -> None:
    again = row(input={"b": 2, "a": 1}, score=EvaluateResult(score=1.0), status=Status.COMPLETED)

    assert fingerprint_prompts([row()]) == fingerprint_prompts([again])


def test_a_prompt_that_no_store_can_hold_is_refused_by_its_id() -> None:
    with pytest.raises(
        ConfigError, match=r"sample '1': the prompt cannot be recorded: .*cannot be written as JSON"
    ):
        fingerprint_prompts([row(ground_truth=object())])
