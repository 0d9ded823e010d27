"""Which examples an update has, and that only tokens that count have a gradient."""

from array import array
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch

from assay.train.sft_batches import (
    compute_masked_loss,
    compute_summed_loss,
    iterate_batches,
    iterate_epoch_batches,
    pack_examples,
)
from assay.train.sft_data import Example
from assay.train.token_spans import tokenize_sample
from mask_rollouts import CHATS, scripted_rollout, weights_of
from tiny_models import tiny_weights

torch.set_num_threads(1)


def example(size: int, *, trained: int = 1, first: int = 5) -> Example:
    mask = bytes([0] * (size - trained) + [1] * trained)
    return Example(array("i", range(first, first + size)), mask, f"prompt of {size}")


def sizes(batch: list[Example]) -> list[int]:
    return [len(each.tokens) for each in batch]


def test_an_epoch_has_every_example_once_within_the_tokens_of_an_update() -> None:
    examples = [example(size) for size in range(2, 20)]

    found = list(iterate_epoch_batches(examples, seed=0, epoch=0, tokens=30))

    assert sorted(size for batch in found for size in sizes(batch)) == list(range(2, 20))
    assert all(sum(sizes(batch)) <= 30 for batch in found)
    assert len(found) < len(examples)


def test_an_example_that_is_too_long_for_an_update_is_one_alone() -> None:
    found = list(iterate_epoch_batches([example(50), example(3)], seed=0, epoch=0, tokens=10))

    assert sorted(map(sizes, found)) == [[3], [50]]


def test_the_order_follows_the_seed_and_changes_with_the_epoch() -> None:
    examples = [example(size) for size in range(2, 20)]

    def order(seed: int, count: int) -> list[list[int]]:
        return [
            sizes(batch)
            for batch in islice(iterate_batches(examples, seed=seed, tokens=9**9), count)
        ]

    first, second = order(0, 2)
    assert first != second
    assert order(0, 2) == [first, second]
    assert order(1, 1) != [first]


def test_a_batch_is_cut_into_passes_with_their_padding() -> None:
    found = pack_examples([example(size) for size in (3, 9, 4, 10)], 20)

    assert [sizes(some) for some in found] == [[10, 9], [4, 3]]
    assert [sizes(some) for some in pack_examples([example(30), example(30)], 20)] == [[30], [30]]


def test_the_loss_is_that_of_the_tokens_that_count_however_they_are_padded() -> None:
    model = tiny_weights().eval()
    short, long = example(6, trained=2), example(11, trained=4, first=30)

    with torch.no_grad():
        apart = sum(float(compute_summed_loss(model, [each], "cpu")) for each in (short, long))
        together = float(compute_summed_loss(model, [long, short], "cpu"))
        expected = 0.0
        for each in (short, long):
            logits = model(input_ids=torch.tensor([list(each.tokens)])).logits[0].log_softmax(-1)
            for place, counts in enumerate(each.mask):
                if counts:
                    expected -= float(logits[place - 1, each.tokens[place]])

    assert together == pytest.approx(apart, abs=1e-4)
    assert together == pytest.approx(expected, abs=1e-4)


Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def with_gradient(loss: Loss, ids: list[int], mask: list[float]) -> set[int]:
    """The tokens whose logits have a gradient, where each stands."""
    logits = torch.randn(1, len(ids), 600, requires_grad=True)
    loss(logits, torch.tensor([ids]), torch.tensor([mask])).backward()
    assert logits.grad is not None
    # The logits that predict a token stand one place before it.
    return {place + 1 for place in logits.grad[0].abs().sum(-1).nonzero()[:, 0].tolist()}


@pytest.mark.parametrize("name", CHATS)
def test_only_tokens_that_count_have_a_gradient(name: str) -> None:
    for sample in tokenize_sample(scripted_rollout(name)):
        counted = {place for place, value in enumerate(sample.loss_mask) if value}

        assert with_gradient(compute_masked_loss, sample.tokens, sample.loss_mask) == counted


def not_shifted(logits: Any, ids: Any, mask: Any) -> Any:
    counts = mask.bool()
    return torch.nn.functional.cross_entropy(logits[counts], ids[counts])


def everywhere(logits: Any, ids: Any, mask: Any) -> Any:
    return compute_masked_loss(logits, ids, torch.ones_like(mask))


def with_entropy(logits: Any, ids: Any, mask: Any) -> Any:
    return compute_masked_loss(logits, ids, mask) + 0.01 * logits.softmax(-1).pow(2).mean()


@pytest.mark.parametrize("faulty", [not_shifted, everywhere, with_entropy])
def test_a_loss_that_reaches_other_tokens_is_flagged(faulty: Loss) -> None:
    (sample,) = tokenize_sample(scripted_rollout("qwen2.5"))
    counted = {place for place, value in enumerate(sample.loss_mask) if value}

    assert with_gradient(faulty, sample.tokens, sample.loss_mask) != counted


def test_logits_of_the_model_have_no_gradient_off_the_mask() -> None:
    """The same through a model: its output is what the loss reaches."""
    model, size = weights_of("qwen2.5"), 9
    kept: list[Any] = []

    def watched(**inputs: Any) -> Any:
        out = model(**inputs)
        out.logits.requires_grad_(True)
        kept.append(out.logits)
        return out

    compute_summed_loss(watched, [example(size, trained=2)], "cpu").backward()

    (logits,) = kept
    assert logits.shape[1] == 3, "logits are made of the end alone"
    assert (logits.grad[0].abs().sum(-1) > 0).tolist() == [True, True, False]
