"""Which examples an update learns from, and the loss of what they say."""

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .sft_data import Example

if TYPE_CHECKING:
    from torch import Tensor


def iterate_batches(
    examples: Sequence[Example], *, seed: int, tokens: int
) -> Iterator[list[Example]]:
    """Updates without end: each epoch in an order of its own, the same for the same seed."""
    epoch = 0
    while True:
        yield from iterate_epoch_batches(examples, seed=seed, epoch=epoch, tokens=tokens)
        epoch += 1


def iterate_epoch_batches(
    examples: Sequence[Example], *, seed: int, epoch: int, tokens: int
) -> Iterator[list[Example]]:
    """The updates of one epoch: each of at most so many tokens, or of one longer example."""
    order = list(range(len(examples)))
    random.Random(f"{seed}:{epoch}").shuffle(order)
    batch: list[Example] = []
    room = tokens
    for place in order:
        example = examples[place]
        if batch and len(example.tokens) > room:
            yield batch
            batch, room = [], tokens
        batch.append(example)
        room -= len(example.tokens)
    if batch:
        yield batch


def pack_examples(batch: Sequence[Example], tokens: int) -> list[list[Example]]:
    """A batch in passes of at most `tokens`, padding included; one example may be larger alone."""
    passes: list[list[Example]] = []
    # Sorting is stable: examples of one length stay in their order.
    for example in sorted(batch, key=lambda each: -len(each.tokens)):
        if not passes or (len(passes[-1]) + 1) * len(passes[-1][0].tokens) > tokens:
            passes.append([])
        passes[-1].append(example)
    return passes


def compute_summed_loss(model: Any, examples: Sequence[Example], device: Any) -> "Tensor":
    """The negative logprob of every token that counts, summed; other tokens have no part in it."""
    import torch

    width = len(max((example.tokens for example in examples), key=len))
    ids = torch.zeros(len(examples), width, dtype=torch.long)
    attention = torch.zeros(len(examples), width, dtype=torch.long)
    mask = torch.zeros(len(examples), width, dtype=torch.bool)
    for row, example in enumerate(examples):
        size = len(example.tokens)
        ids[row, :size] = torch.tensor(example.tokens)
        attention[row, :size] = 1
        mask[row, :size] = torch.tensor(list(example.mask), dtype=torch.bool)
    ids, attention, mask = ids.to(device), attention.to(device), mask.to(device)
    # Most of a prompt comes before anything that counts: no logits are made of it.
    first = min(example.mask.index(1) for example in examples)
    logits = model(
        input_ids=ids, attention_mask=attention, use_cache=False, logits_to_keep=width - first + 1
    ).logits
    return compute_masked_loss(logits, ids[:, first - 1 :], mask[:, first - 1 :])


def compute_masked_loss(logits_RTV: "Tensor", ids_RT: "Tensor", mask_RT: "Tensor") -> "Tensor":
    """The summed negative logprob of the ids that the mask is on, each by the logits before it."""
    from torch.nn.functional import cross_entropy

    counts = mask_RT[:, 1:].bool()
    loss: Tensor = cross_entropy(
        logits_RTV[:, :-1][counts].float(), ids_RT[:, 1:][counts], reduction="sum"
    )
    return loss
