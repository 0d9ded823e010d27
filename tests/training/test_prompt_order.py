"""The order of prompts: all of them in each epoch, and the same for the same seed."""

from assay.models import Sample
from assay.training.prompt_order import PromptOrder

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
